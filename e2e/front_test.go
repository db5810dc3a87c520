package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"
)

// decided is what the admin API tells of a decision.
type decided struct {
	RequestID  string `json:"request_id"`
	Tenant     string `json:"tenant"`
	Outcome    string `json:"outcome"`
	Chosen     string `json:"chosen"`
	Prompt     int    `json:"prompt_tokens"`
	Delivered  *int   `json:"delivered_cached_tokens"`
	Rung       string `json:"rung"`
	RungReason string `json:"rung_reason"`
	Candidates []struct {
		Worker       string `json:"worker"`
		CachedTokens int    `json:"cached_tokens"`
	} `json:"candidates"`
}

// predicted is how many tokens the chosen worker was believed to hold.
func (d decided) predicted() int {
	for _, c := range d.Candidates {
		if c.Worker == d.Chosen {
			return c.CachedTokens
		}
	}
	return 0
}

// decision waits until the decision on a request has its report.
func (r *rig) decision(requestID string) decided {
	r.t.Helper()
	var found decided
	r.eventually("the decision on "+requestID+" has its report", func() bool {
		var all []decided
		if err := r.api("decisions", &all); err != nil {
			return false
		}
		for _, d := range all {
			if d.RequestID == requestID && d.Outcome != "" {
				found = d
				return true
			}
		}
		return false
	})
	return found
}

func bearer(key string) map[string]string { return map[string]string{"authorization": "Bearer " + key} }

// TestClientsAreKnown: keys are checked before attache is asked, each client has its own rate, and decisions say whose
// requests they were. What a client says of itself does not count.
func TestClientsAreKnown(t *testing.T) {
	r := start(t, setup{mode: "ads", engines: 1, header: bearer("sk-bob-00001"),
		files:   map[string]string{"keys.yaml": "alice: sk-alice-0001\nbob: sk-bob-00001\n"},
		gateway: "    api_keys_file: DIR/keys.yaml\n    rate_limit: {requests: 1000, per: 1h, clients: {alice: 3}}\n"})
	for _, c := range []struct {
		name   string
		header map[string]string
		status int
	}{
		{"no key", nil, 401},
		{"a wrong key", bearer("sk-mallory-1"), 401},
		{"only a claim", map[string]string{"x-client-id": "bob"}, 401},
		{"a key", bearer("sk-bob-00001"), 200},
	} {
		a, err := r.chat(t.Context(), chatRequest{prompt: "hello", tokens: 1, header: c.header})
		if err != nil || a.status != c.status {
			t.Errorf("%s: status %d, %v, want %d", c.name, a.status, err, c.status)
		}
	}
	header := bearer("sk-alice-0001")
	header["x-client-id"], header["x-request-id"] = "bob", "whose"
	for i := range 4 {
		a, err := r.chat(t.Context(), chatRequest{prompt: "hello", tokens: 1, header: header})
		want := 200
		if i == 3 {
			want = 429
		}
		if err != nil || a.status != want {
			t.Errorf("request %d of alice, who may send 3: status %d, %v, want %d", i+1, a.status, err, want)
		}
	}
	if a, err := r.chat(t.Context(), chatRequest{prompt: "hello", tokens: 1, header: bearer("sk-bob-00001")}); err != nil || a.status != 200 {
		t.Errorf("bob, who has his own rate: status %d, %v", a.status, err)
	}
	if d := r.decision("whose"); d.Tenant != "alice" {
		t.Errorf("the decision is on a request of %q, want alice, whose key it was", d.Tenant)
	}
	if text, err := readAll(r.admin + "/api/v1/config"); err != nil || strings.Contains(text, "sk-") {
		t.Errorf("the configuration shows keys: %v", err)
	}
}

// token is a JSON web token of the issuer, signed with the key (HS256).
func token(key []byte, claims string) string {
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode([]byte(claims))
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(signed))
	return signed + "." + encode(mac.Sum(nil))
}

// TestTokensAndBodyLimit: tokens of one issuer are let in, their claim names the client; bodies above the hard limit are
// cut off while they arrive, however they are sent.
func TestTokensAndBodyLimit(t *testing.T) {
	key := []byte("a key that is long enough for HS256")
	good := fmt.Sprintf(`{"iss":"https://issuer.example","sub":"alice","exp":%d}`, time.Now().Add(time.Hour).Unix())
	r := start(t, setup{mode: "ads", engines: 1, header: bearer(token(key, good)),
		files:   map[string]string{"jwks.json": `{"keys":[{"kty":"oct","alg":"HS256","k":"` + base64.RawURLEncoding.EncodeToString(key) + `"}]}`},
		gateway: "    jwt: {issuer: https://issuer.example, jwks_file: DIR/jwks.json}\n    hard_body_limit: 1MiB\n"})
	expired := fmt.Sprintf(`{"iss":"https://issuer.example","sub":"alice","exp":%d}`, time.Now().Add(-time.Hour).Unix())
	for _, c := range []struct {
		name   string
		header map[string]string
		status int
	}{
		{"no token", nil, 401},
		{"another key's token", bearer(token([]byte("a key that nobody has told Envoy of!"), good)), 401},
		{"another issuer's token", bearer(token(key, strings.Replace(good, "issuer.example", "mallory.example", 1))), 401},
		{"an expired token", bearer(token(key, expired)), 401},
		{"a token", bearer(token(key, good)), 200},
	} {
		a, err := r.chat(t.Context(), chatRequest{prompt: "hello", tokens: 1, header: c.header})
		if err != nil || a.status != c.status {
			t.Errorf("%s: status %d, %v, want %d", c.name, a.status, err, c.status)
		}
	}
	header := bearer(token(key, good))
	header["x-request-id"] = "whose"
	r.must(chatRequest{prompt: "hello", header: header})
	if d := r.decision("whose"); d.Tenant != "alice" {
		t.Errorf("the decision is on a request of %q, want alice, whose token it was", d.Tenant)
	}
	if a, err := r.chat(t.Context(), chatRequest{prompt: words("large", 2<<20), header: header}); err == nil && a.status != 413 {
		t.Errorf("2 MiB where 1 MiB is allowed: status %d, want 413", a.status)
	}
}

// TestDeliveredReuse: what engines say they reused comes back, from plain answers and from streams, by each of the ways
// in which Envoy can read it.
func TestDeliveredReuse(t *testing.T) {
	for _, usage := range []string{"metadata", "ai"} {
		t.Run(usage, func(t *testing.T) {
			r := start(t, setup{mode: "ads", engines: 2, extproc: "  include_usage: true\n", gateway: "    usage: " + usage + "\n"})
			for _, stream := range []bool{false, true} {
				name := map[bool]string{false: "plain", true: "stream"}[stream]
				prompt := words(name, 8_000)
				r.must(chatRequest{prompt: prompt, tokens: 2, stream: stream, header: map[string]string{"x-request-id": name + "-first"}})
				r.must(chatRequest{prompt: prompt, tokens: 2, stream: stream, header: map[string]string{"x-request-id": name + "-again"}})
				first, again := r.decision(name+"-first"), r.decision(name+"-again")
				if first.Delivered == nil || again.Delivered == nil {
					t.Errorf("%s: nothing is known of what was reused", name)
					continue
				}
				if *first.Delivered > 100 || *again.Delivered < 1000 {
					t.Errorf("%s: %d, then %d cached tokens delivered, want none and then most of the prompt", name, *first.Delivered, *again.Delivered)
				}
			}
		})
	}
}

// TestSidecar: attache behind a Unix socket, as in one pod with the gateway.
func TestSidecar(t *testing.T) {
	for _, mode := range []string{"ads", "attach", "static"} {
		r := start(t, setup{mode: mode, engines: 2, socket: true})
		prompt := words("sidecar", 8_000)
		home := r.must(chatRequest{prompt: prompt}).engine
		for range 3 {
			if a := r.must(chatRequest{prompt: prompt}); a.engine != home {
				t.Errorf("%s: served by %s, the prompt is known on %s", mode, a.engine, home)
			}
		}
	}
}

// TestMutualTLS: Envoy and attache know each other by certificates; whoever has none is not answered.
func TestMutualTLS(t *testing.T) {
	cert, key := pair(t)
	r := start(t, setup{mode: "ads", engines: 2, files: map[string]string{"cert.pem": cert, "key.pem": key},
		extproc: "  tls: {cert: DIR/cert.pem, key: DIR/key.pem, client_ca: DIR/cert.pem}\n",
		gateway: "    tls: {ca: DIR/cert.pem, name: attache, cert: DIR/cert.pem, key: DIR/key.pem}\n"})
	prompt := words("secret", 8_000)
	home := r.must(chatRequest{prompt: prompt}).engine
	for i := range 3 {
		if a := r.must(chatRequest{prompt: prompt, header: map[string]string{"x-request-id": "tls"}}); a.engine != home {
			t.Errorf("request %d: served by %s, the prompt is known on %s", i, a.engine, home)
		}
	}
	if d := r.decision("tls"); d.Chosen == "" {
		t.Error("no decision was made")
	}
}

// pair is a self-signed certificate for the name attache, and its key, in PEM.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"attache"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}
