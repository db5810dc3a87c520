package router

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attache/internal/worker"
)

// TestLearntOverARestart: what was learnt of the workers' speed is there again, also for one that appears later, and what cannot
// be used is left.
func TestLearntOverARestart(t *testing.T) {
	dir := t.TempDir()
	keep := func(c *Config) { c.LearntDir = dir }
	before := newWorld(t, keep, nil, workers("default", 1, worker.Ready, worker.Ready)...)
	before.remind() // nothing is there yet
	for range 60 {
		d := before.route(t, "", strings.Repeat("word ", 2000)+before.clock.String())
		d.Done.End()
		o := Outcome{Status: 200, Attempts: 1, EngineTTFT: 3 * d.Done.rec.booking.PredictedTTFT, Served: d.Done.rec.named[0].Addr}
		before.clock = before.clock.Add(10 * time.Second)
		before.Report(d.ID, o)
	}
	learnt := before.pools[0].scorer.SpeedFactor()
	if learnt < 2 {
		t.Fatalf("k is %v after 60 requests three times slower than predicted", learnt)
	}
	before.note()

	after := newWorld(t, keep, nil, workers("default", 1, worker.Ready)...)
	after.remind()
	after.publish(workers("default", 1, worker.Ready, worker.Ready)...)
	for _, w := range after.fleet.set.All() {
		if got := after.pools[0].scorer.Load(w.Slot).SpeedFactor; got < learnt*.9 || got > learnt*1.1 {
			t.Errorf("%s: k is %v after the restart, %v before", w.Name, got, learnt)
		}
	}

	path := filepath.Join(dir, "default.learnt.json")
	if err := os.WriteFile(path, []byte(`{"version": 99}`), 0o600); err != nil {
		t.Fatal(err)
	}
	spoilt := newWorld(t, keep, nil, workers("default", 1, worker.Ready)...)
	spoilt.remind()
	if got := spoilt.pools[0].scorer.SpeedFactor(); got != 1 {
		t.Errorf("k is %v after a file that cannot be used", got)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) != 1 {
		t.Errorf("files %v, %v", files, err)
	}
}
