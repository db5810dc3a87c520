package xds

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attache/envoy"
)

func TestKeysFile(t *testing.T) {
	const form = "must be a client's name and a key of at least 8 characters in quotes, both of printable characters without spaces"
	for _, c := range []struct{ name, text, want, err string }{
		{"two clients", "alice: sk-alice-1\nbob: 'sk-bob-22'\n", "alice=sk-alice-1 bob=sk-bob-22", ""},
		{"empty", "", "", "holds no keys, so that nobody could come in"},
		{"not a mapping", "- sk-alice-1\n", "", "must be YAML with a line `client: key` for each client"},
		{"not YAML", "alice: [sk-secret-1\n", "", "must be YAML with a line `client: key` for each client"},
		{"a short key", "alice: sk-alice-1\nbob: short\n", "", "entry 2 " + form},
		{"a key with a space", "alice: 'sk secret 1'\n", "", "entry 1 " + form},
		{"a key with a control character", "alice: \"sk-secret-1\\r\"\n", "", "entry 1 " + form},
		{"a client without a name", "'': sk-secret-1\n", "", "entry 1 " + form},
		{"a number", "alice: 1234567890\n", "", "entry 1 " + form},
		{"a number in quotes, as some YAML readers take it", "alice: '0X1234567'\n", "", "entry 1: the key must not be a number"},
		{"a number too large to be one", "alice: '99999999999999999999999999'\n", "", "entry 1: the key must not be a number"},
		{"a number with an exponent", "alice: '12345e99999'\n", "", "entry 1: the key must not be a number"},
	} {
		file := filepath.Join(t.TempDir(), "keys.yaml")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		keys, err := readKeys(file)
		var got []string
		for _, k := range keys {
			got = append(got, k.Client+"="+k.Secret)
		}
		if strings.Join(got, " ") != c.want || (err == nil) != (c.err == "") {
			t.Errorf("%s: got %v, %v", c.name, got, err)
		}
		if err == nil {
			continue
		}
		if !strings.HasPrefix(err.Error(), file+": "+c.err) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.err)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows a key: %v", c.name, err)
		}
	}
	if _, err := readKeys("/nonexistent"); err == nil || err.Error() != "open /nonexistent: no such file or directory" {
		t.Errorf("got %v", err)
	}
}

// TestGuards: what would lock everybody out, or let everybody in, is refused.
func TestGuards(t *testing.T) {
	dir := t.TempDir()
	keys, jwks := filepath.Join(dir, "keys.yaml"), filepath.Join(dir, "jwks.json")
	for file, text := range map[string]string{keys: "alice: sk-alice-1\n", jwks: `{"keys":[]}`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tokens := &JWT{Issuer: "i", JWKSFile: jwks}
	for _, c := range []struct {
		change func(*Gateway)
		want   string
	}{
		{func(g *Gateway) { g.APIKeysFile, g.JWT = keys, tokens },
			"jwt: cannot be joined with api_keys_file: both read the authorization header, so nobody could come in"},
		{func(g *Gateway) { g.APIKeysFile, g.Baseline = keys, "127.0.0.1:8081" },
			`baseline: "127.0.0.1:8081": must be empty where api_keys_file or jwt is set: nothing guards it`},
		{func(g *Gateway) { g.RateLimit = &RateLimit{Requests: 1, Per: 1e9} }, "rate_limit: needs api_keys_file or jwt to tell clients apart"},
		{func(g *Gateway) { g.JWT = tokens }, ""},
	} {
		g := DefaultConfig().Gateway
		c.change(&g)
		err := g.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func TestGatewayParams(t *testing.T) {
	g := DefaultConfig().Gateway
	g.BodyMode, g.FailOpen, g.JWT = "FULL_DUPLEX_STREAMED", false, &JWT{Issuer: "i", JWKSFile: "/nonexistent"}
	if _, err := GatewayParams(g, Reach{}, nil); err == nil || err.Error() != "xds.gateway.jwt.jwks_file: open /nonexistent: no such file or directory" {
		t.Errorf("got %v", err)
	}
	file := filepath.Join(t.TempDir(), "jwks")
	if err := os.WriteFile(file, []byte(`{"keys":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	g.JWT.JWKSFile, g.ExtProc = file, []string{"10.0.0.9:9002"}
	p, err := GatewayParams(g, Reach{ExtProc: []string{"127.0.0.1:1"}, XDS: []string{"127.0.0.1:2"}}, []envoy.Pool{{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	if p.ExtProc[0] != "10.0.0.9:9002" || p.XDS[0] != "127.0.0.1:2" {
		t.Errorf("reached at %v and %v: what is configured wins over where attache listens", p.ExtProc, p.XDS)
	}
	if !p.FullDuplex || !p.FailClosed || p.Security.JWT.ClientClaim != "sub" || p.Security.JWT.JWKS != `{"keys":[]}` {
		t.Errorf("parameters %+v", p)
	}
}
