package hints

import "testing"

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		name  string
		trust []string
		want  string
	}{
		{"the default", DefaultConfig().Trust, ""},
		{"nothing", nil, ""},
		{"all", []string{"all"}, ""},
		{"none", []string{"none"}, ""},
		{"every group", groupNames[:], ""},
		{"a word that is no group", []string{"session", "price"},
			`trust[1]: "price": must be one of session, length, slo, cache, priority, tenant, pin, policy, model, all, none`},
		{"all and one", []string{"all", "pin"}, `trust[0]: "all": must be the only word of the list`},
		{"a group twice", []string{"pin", "pin"}, `trust[1]: "pin": must not be repeated`},
	} {
		got := ""
		if err := (Config{Trust: c.trust}).Validate(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}
}
