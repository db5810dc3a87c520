package envoy

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func full() Params {
	return Params{
		NodeID: "gateway-1", Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", ExtProc: []string{"127.0.0.1:9002"}, XDS: []string{"127.0.0.1:18000"},
		Pools:          []Pool{{Name: "default", Workers: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:8000"), netip.MustParseAddrPort("[fd00::1]:8000")}}},
		MessageTimeout: 2 * time.Second, MaxMessageTimeout: 2 * time.Minute, IdleTimeout: 10 * time.Minute, HealthInterval: time.Second,
		BodyLimit: 32 << 20, Version: Newest, Usage: UsageMetadata,
	}
}

// TestRenderedConfigurationsAreValid lets every Envoy at hand validate everything that can be printed.
func TestRenderedConfigurationsAreValid(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Envoys")
	}
	binaries := filepath.SplitList(os.Getenv("ENVOY_ALL"))
	if len(binaries) == 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("ENVOY_ALL names no Envoy; run `make test`")
		}
		t.Skip("ENVOY_ALL names no Envoy; `make test` brings them")
	}
	cert, key := pair(t)
	variants := map[string]func(*Params){
		"plain":       func(*Params) {},
		"full duplex": func(p *Params) { p.FullDuplex = true },
		"fail closed": func(p *Params) { p.FailClosed = true },
		"sockets": func(p *Params) {
			p.ExtProc, p.XDS = []string{"unix:///run/attache/extproc.sock"}, []string{"unix:///run/attache/xds.sock"}
		},
		"replicas":    func(p *Params) { p.ExtProc = []string{"attache-0.attache:9002", "attache-1.attache:9002"} },
		"tls":         func(p *Params) { p.TLS = &TLS{CA: cert, Name: "attache"} },
		"mutual tls":  func(p *Params) { p.TLS = &TLS{CA: cert, Name: "attache", Cert: cert, Key: key} },
		"no usage":    func(p *Params) { p.Usage = UsageNone },
		"usage by ai": func(p *Params) { p.Usage = UsageAI },
		"baseline":    func(p *Params) { p.Baseline = "127.0.0.1:0" },
		"pools":       func(p *Params) { p.Pools = append(p.Pools, Pool{Name: "big", Workers: p.Pools[0].Workers}) },
		"everything in front": func(p *Params) {
			p.Security = Security{Keys: []Key{{"alice", "sk-1"}, {"bob", "sk-2"}}, MaxBody: 32 << 20,
				RateLimit: &RateLimit{Requests: 60, Per: time.Minute, Clients: map[string]uint32{"alice": 600}}}
		},
		"jwt": func(p *Params) {
			p.Security.JWT = &JWT{Issuer: "https://issuer.example", ClientClaim: "sub", JWKS: `{"keys":[{"kty":"oct","alg":"HS256","k":"c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"}]}`}
		},
	}
	for _, binary := range binaries {
		out, err := exec.Command(binary, "--version").CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v", binary, err)
		}
		parts := strings.Split(string(out), "/")
		if len(parts) < 2 {
			t.Fatalf("%s --version: %s", binary, out)
		}
		for name, change := range variants {
			for _, mode := range []Mode{ModeADS, ModeAttach, ModeStatic} {
				p := full()
				for _, part := range parts {
					if v, err := ParseVersion(strings.TrimSpace(part)); err == nil {
						p.Version = v
					}
				}
				change(&p)
				text, err := Render(mode, p)
				if err != nil {
					t.Fatal(err)
				}
				file := filepath.Join(t.TempDir(), "envoy.yaml")
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if out, err := exec.Command(binary, "--mode", "validate", "-l", "error", "-c", file).CombinedOutput(); err != nil {
					t.Errorf("Envoy %s refuses %s, mode %s:\n%s", p.Version, name, mode, out)
				}
			}
		}
	}
}

// pair writes a self-signed certificate and its key.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"attache"}}
	der, err := x509.CreateCertificate(nil, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}
