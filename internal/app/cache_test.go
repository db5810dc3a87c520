package app

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"attache/internal/admin"
	"attache/internal/sim"
)

// The operator sees the feed of an engine that publishes, and that one has none whose engine does not.
func TestFeedsAreShown(t *testing.T) {
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	start := func(events bool) *sim.Engine {
		engine := sim.DefaultConfig()
		engine.Listen = "127.0.0.1:0"
		if events {
			engine.Events, engine.Replay = "tcp://127.0.0.1:0", "tcp://127.0.0.1:0"
		}
		e, err := sim.New(engine, options.Log)
		if err != nil {
			t.Fatal(err)
		}
		serving.Go(func() { _ = e.Run(t.Context()) })
		return e
	}
	loud, silent := start(true), start(false)
	events, replay := loud.Endpoints(0)
	file := filepath.Join(t.TempDir(), "workers.yaml")
	text := fmt.Sprintf("workers:\n- {name: loud, address: '%s', events: {endpoint: '%s', replay: '%s'}}\n- {name: silent, address: '%s'}\n",
		loud.Addr(), events, replay, silent.Addr())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := quiet()
	cfg.Pools[0].WorkersFile = file
	a := started(t, cfg)

	var feeds struct{ Feeds []admin.Feed }
	eventually(t, "the feed is live", func() bool {
		_, text := get(t, a, "/api/v1/feeds")
		return json.Unmarshal([]byte(text), &feeds) == nil && len(feeds.Feeds) == 1 && feeds.Feeds[0].State == "live"
	})
	if f := feeds.Feeds[0]; f.Worker != "loud" || f.Mode != "exact" || f.Endpoint != events || f.Replay != replay || !f.Complete || f.Replays == 0 {
		t.Errorf("feed: %+v", f)
	}
	var workers struct{ Workers []admin.Worker }
	if _, text := get(t, a, "/api/v1/workers"); json.Unmarshal([]byte(text), &workers) != nil || len(workers.Workers) != 2 {
		t.Fatalf("workers: %s", text)
	}
	for i, want := range []admin.Overlap{{Mode: "exact", State: "live", Feeds: 1, Live: 1}, {Mode: "approximate"}} {
		got := workers.Workers[i].Overlap
		if got.Since = want.Since; got != want {
			t.Errorf("%s: %+v, want %+v", workers.Workers[i].Name, got, want)
		}
	}
	var index struct{ Pools []admin.Index }
	_, text = get(t, a, "/api/v1/index")
	if json.Unmarshal([]byte(text), &index) != nil || len(index.Pools) != 1 || index.Pools[0].Index.MaxBytes != 1<<30 || index.Pools[0].Indexer.MaxBlocks != 8<<20 {
		t.Errorf("index: %s", text)
	}
	if status, text := get(t, a, "/api/v1/prefixes?worker=loud"); status != 200 || !strings.Contains(text, `"prefixes": []`) {
		t.Errorf("prefixes: %d %s", status, text)
	}
	if status, text := get(t, a, "/api/v1/prefixes?worker=nobody"); status != 404 || !strings.Contains(text, `"silent"`) {
		t.Errorf("prefixes of nobody: %d %s", status, text)
	}
	if _, text := get(t, a, "/api/v1/status"); strings.Contains(text, "feed of KV events") {
		t.Errorf("a warning of nothing: %s", text)
	} else if !strings.Contains(text, "pool default: its engines publish KV events, but prompts are cut by length (no_model)") {
		t.Errorf("events that are of no use, and no warning: %s", text)
	}
}
