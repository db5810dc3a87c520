package router

import (
	"testing"
	"time"

	"attache/internal/worker"
)

// What was sent where can be taken out again, rank by rank, to teach somebody else.
func TestPrefixesAreThoseThatWereSent(t *testing.T) {
	one := worker.NewWorker(workers("default", 1, worker.Ready)[0].Spec, 1, worker.Ready, 5)
	w := newWorld(t, nil, nil, one)
	for _, text := range []string{"a system prompt", "another one"} {
		d := w.route(t, "m", long(text, 20_000))
		d.Done.End()
		w.clock = w.clock.Add(3 * time.Second)
	}
	ranks := w.Prefixes("w1", 10)
	if len(ranks) != 2 {
		t.Fatalf("%+v, want both ranks", ranks)
	}
	found, blocks := 0, 0
	for i, r := range ranks {
		if r.Pool != "default" || r.Rank != i || r.BlockTokens <= 0 {
			t.Errorf("rank %d: %+v", i, r)
		}
		for _, p := range r.Prefixes {
			found, blocks = found+1, blocks+p.Blocks
			if p.Hash == 0 || p.Blocks < 100 || p.Age < 3*time.Second {
				t.Errorf("rank %d: %+v", i, p)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d prefixes, want both prompts: %+v", found, ranks)
	}
	if got := w.Prefixes("w2", 10); got != nil {
		t.Errorf("of nobody: %+v", got)
	}
	index := w.Indexes()
	if len(index) != 1 || index[0].Pool != "default" || index[0].Sent.Held != blocks || index[0].MaxBytes <= 0 || index[0].MaxBlocks <= index[0].Sent.Held {
		t.Errorf("indexes: %+v", index)
	}
}
