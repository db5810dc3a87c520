package worker

import (
	"strings"
	"testing"
)

func TestParseTraits(t *testing.T) {
	for _, c := range []struct {
		name   string
		labels map[string]string
		want   Traits
		err    string
	}{
		{"nothing", nil, Traits{}, ""},
		{"what has no meaning here", map[string]string{"zone": "a", "role": "gateway"}, Traits{}, ""},
		{"all", map[string]string{"role": "prefill", "max_in_flight": "8", "batch_tokens": "8192", "memory_gib": "80", "distance": "1.5"},
			Traits{Prefill: true, MaxInFlight: 8, BatchTokens: 8192, MemoryBytes: 80 << 30, Distance: 1.5}, ""},
		{"llm-d's name of the role", map[string]string{"llm-d.ai/role": "prefill"}, Traits{Prefill: true}, ""},
		{"ours comes first", map[string]string{"role": "decode", "llm-d.ai/role": "prefill"}, Traits{}, ""},
		{"no number", map[string]string{"max_in_flight": "many"}, Traits{}, `labels.max_in_flight: "many": must be a whole number from 1 to`},
		{"no whole number", map[string]string{"batch_tokens": "1.5"}, Traits{}, `labels.batch_tokens: "1.5": must be a whole number`},
		{"too small", map[string]string{"max_in_flight": "0"}, Traits{}, "labels.max_in_flight"},
		{"not finite", map[string]string{"distance": "NaN", "memory_gib": "40"}, Traits{MemoryBytes: 40 << 30}, "labels.distance"},
	} {
		got, err := ParseTraits(c.labels)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %+v, %v; want %+v, error %q", c.name, got, err, c.want, c.err)
		}
	}
}

func TestWorkersFileWithTraits(t *testing.T) {
	specs, err := parseFile([]byte("workers:\n- {name: a, address: 10.0.0.1:80, max_in_flight: 4, labels: {role: prefill}}\n"), "p", Auto)
	if err != nil {
		t.Fatal(err)
	}
	if traits, _ := ParseTraits(specs[0].Labels); !traits.Prefill || traits.MaxInFlight != 4 {
		t.Errorf("%+v", traits)
	}
	for _, bad := range []string{"max_in_flight: -1", "labels: {distance: far}"} {
		if _, err := parseFile([]byte("workers:\n- {name: a, address: 10.0.0.1:80, "+bad+"}\n"), "p", Auto); err == nil ||
			!strings.Contains(err.Error(), "worker a: labels.") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
