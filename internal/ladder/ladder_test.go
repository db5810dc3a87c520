// Package ladder holds the import ladder of docs/architecture.md: who may import whom.
package ladder

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// rungs lists every edge that is allowed, downward only. A package that is not listed may not exist; "*" may import all.
// internal/field and internal/slot are the two leaves that everybody may use.
var rungs = map[string][]string{
	"cmd/attache":               {"*"},
	"internal/app":              {"*"},
	"internal/demo":             {"*"},
	"e2e":                       {"*"},
	"e2e/vllm":                  {"*"},
	"e2e/chaos":                 {"*"},
	"extproc/bench":             {"*"},
	"indexer/bench":             {"indexer/runs", "indexer/yardstick", "internal/block"},
	"internal/config/configdoc": {"internal/config"},
	// Config types only.
	"internal/config": {"extproc", "internal/admin", "internal/prompt", "indexer", "internal/replica", "internal/replica/direct", "internal/router", "internal/state", "internal/tracing",
		"internal/warm", "internal/worker", "internal/worker/discovery/dns", "internal/worker/discovery/kubernetes", "scoring", "xds"},

	"extproc":           {"envoy", "internal/hints", "internal/openai", "internal/router", "internal/traceparent", "internal/worker"},
	"extproc/accesslog": {"envoy", "internal/router"},
	"xds":               {"envoy", "internal/worker"},
	"internal/router": {"indexer", "indexer/events", "indexer/runs", "scoring", "scoring/queue", "internal/block", "internal/hints", "internal/openai",
		"internal/packed", "internal/prompt", "internal/replica", "internal/traceparent", "internal/wholefile", "internal/worker"},
	"internal/replica":             {"internal/block"},
	"internal/replica/bench":       {"*"},
	"internal/replica/direct":      {"internal/replica"},
	"internal/replica/replicatest": {"internal/block", "internal/replica"}, // of tests only
	"internal/tracing":             {"internal/router", "internal/traceparent"},
	"internal/warm":                {"internal/openai", "internal/router", "internal/worker"},
	"internal/traceparent":         {},
	"internal/hints":               {"internal/openai"},
	"internal/prompt":              {"internal/openai", "internal/block", "internal/prompt/jinja", "internal/prompt/tokenizer"},
	"internal/prompt/jinja":        {},
	"internal/prompt/tokenizer":    {},
	"internal/sim":                 {"scoring", "indexer", "indexer/events/wire", "indexer/events/zmtp", "internal/block", "internal/openai", "internal/prompt", "internal/worker"},
	"internal/sim/trace":           {"internal/block", "internal/sim/trace/data"},
	"internal/sim/trace/data":      {},
	"internal/sim/virtual":         {"internal/sim", "internal/sim/trace"},
	"internal/sim/gateway":         {"internal/sim/trace", "internal/sim/virtual", "indexer/runs", "internal/block", "scoring", "scoring/queue"},
	"internal/sim/quality":         {"internal/sim/trace", "internal/sim/virtual", "internal/sim/gateway", "scoring", "scoring/queue"},
	"internal/admin":               {"internal/router", "internal/worker", "internal/worker/register", "indexer"},
	"indexer":                      {"internal/block", "internal/packed"},
	"indexer/runs":                 {"internal/block", "internal/packed"},
	"indexer/pages":                {"internal/block", "internal/packed"},
	"indexer/yardstick":            {"internal/block", "internal/sim/trace/data"},
	"indexer/events": {"indexer/events/wire", "indexer/events/zmtp", "indexer/pages", "indexer/runs", "internal/block",
		"internal/packed", "internal/worker"},
	"indexer/events/wire":                  {},
	"indexer/events/zmtp":                  {},
	"internal/state":                       {},
	"internal/state/statetest":             {"internal/proc", "internal/state"}, // of tests only
	"internal/worker":                      {"internal/watch"},
	"internal/watch":                       {},
	"scoring":                              {"internal/block"},
	"scoring/queue":                        {},
	"internal/block":                       {},
	"internal/openai":                      {},
	"envoy":                                {},
	"internal/field":                       {},
	"internal/golden":                      {}, // of tests only
	"internal/bubble":                      {}, // of tests only
	"internal/packed":                      {},
	"internal/proc":                        {},
	"internal/slot":                        {},
	"internal/ladder":                      {},
	"internal/wholefile":                   {},
	"internal/worker/discovery/dns":        {"internal/worker"},
	"internal/worker/discovery/kubernetes": {"internal/worker"},

	// Workers that register themselves, and what makes them do it.
	"internal/worker/register": {"internal/worker"},
	"internal/join":            {"internal/worker", "internal/worker/register"},
	"internal/reload":          {"internal/config", "internal/watch"},
}

var everybody = []string{"internal/field", "internal/slot"}

// only says which package alone may import a module: "only internal/app knows fx", and so on.
var only = map[string][]string{
	"go.uber.org/fx":                         {"internal/app"},
	"github.com/envoyproxy/go-control-plane": {"extproc", "extproc/accesslog", "extproc/bench", "envoy", "xds", "e2e"},
	"github.com/alecthomas/kong":             {"cmd/attache"},
	"github.com/redis/go-redis":              {"internal/state"},
	"k8s.io":                                 {"internal/worker/discovery/kubernetes"},
	"go.opentelemetry.io/otel":               {"internal/tracing"},
}

func TestImportLadder(t *testing.T) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := 0
	for d := json.NewDecoder(strings.NewReader(string(out))); ; seen++ {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, "attache/")
		allowed, known := rungs[name]
		if !known {
			t.Errorf("%s is not on the ladder: add it with what it may import, and to docs/architecture.md", name)
			continue
		}
		for _, path := range p.Imports {
			for module, owners := range only {
				if strings.HasPrefix(path, module) && !slices.Contains(owners, name) {
					t.Errorf("%s imports %s, which is for %s only", name, path, strings.Join(owners, ", "))
				}
			}
			ours, is := strings.CutPrefix(path, "attache/")
			if is && !slices.Contains(allowed, "*") && !slices.Contains(allowed, ours) && !slices.Contains(everybody, ours) {
				t.Errorf("%s imports %s: not on the ladder (it may import %s)", name, ours, strings.Join(allowed, ", "))
			}
		}
	}
	if seen < 10 {
		t.Errorf("go list showed %d packages only", seen)
	}
}
