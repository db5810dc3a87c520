package envoy

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/golden from what Render prints; commit only a difference you understand")

// golden is a gateway with two pools of one worker each, else as attache configures it by default.
func golden() Params {
	return Params{
		NodeID: "gateway-1", Listen: "0.0.0.0:8080", Admin: "127.0.0.1:9901", ExtProc: []string{"127.0.0.1:9002"}, XDS: []string{"127.0.0.1:18000"},
		Pools: []Pool{
			{Name: "default", Workers: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.11:8000")}},
			{Name: "large", Workers: []netip.AddrPort{netip.MustParseAddrPort("10.0.1.11:8000")}},
		},
		MessageTimeout: 2 * time.Second, MaxMessageTimeout: 2 * time.Minute, IdleTimeout: 10 * time.Minute, HealthInterval: time.Second,
		BodyLimit: 32 << 20, Version: Newest, Usage: UsageMetadata,
	}
}

// TestGolden compares what people copy from, byte by byte: a change of testdata/golden is a change of what Envoys do.
func TestGolden(t *testing.T) {
	for _, mode := range []Mode{ModeADS, ModeAttach, ModeStatic} {
		t.Run(string(mode), func(t *testing.T) {
			got, err := Render(mode, golden())
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "golden", string(mode)+".yaml")
			if *update {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			const how = "`go test ./envoy -run TestGolden -update` writes it; commit only a difference you understand"
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v\n%s", err, how)
			}
			if string(want) != got {
				t.Errorf("%s differs (-want +got):\n%s\n%s", path, cmp.Diff(string(want), got), how)
			}
		})
	}
}

func TestRenderRefusesUnknownModes(t *testing.T) {
	text, err := Render("eds", golden())
	if err == nil || err.Error() != `"eds": must be ads, attach or static` || text != "" {
		t.Errorf("mode eds: %q, %v; want an error that names the modes", text, err)
	}
}
