package main

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"attache/indexer/yardstick"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMeasures(t *testing.T) {
	for _, o := range []options{
		{measure: "yardstick", input: "synthetic"},
		{measure: "yardstick", input: "synthetic", hash: true, growing: true, of: "median"},
		{measure: "yardstick", input: "trace8"},
	} {
		if testing.Short() && o.input == "synthetic" && o.hash {
			continue
		}
		o.rounds, o.gc = 1, 100
		if o.of == "" {
			o.of = "best"
		}
		got, err := o.run()
		if err != nil {
			t.Errorf("%+v: %v", o, err)
		}
		if f, ok := got.(figures); !ok || f.Held == 0 || f.ChecksumStore == 0 || f.Rounds != 1 {
			t.Errorf("%+v: %+v", o, got)
		}
	}
}

func TestRefusals(t *testing.T) {
	good := options{measure: "yardstick", input: "synthetic", of: "best", rounds: 1, gc: 100}
	for name, change := range map[string]func(*options){
		"-measure": func(o *options) { o.measure = "speed" },
		"-input":   func(o *options) { o.input = "trace" },
		"-of":      func(o *options) { o.of = "mean" },
		"-rounds":  func(o *options) { o.rounds = 0 },
	} {
		o := good
		change(&o)
		if got, err := o.run(); err == nil || got != nil || !strings.Contains(err.Error(), name) {
			t.Errorf("a wrong %s: %v, %v", name, got, err)
		}
	}
}

func TestWrongChecksum(t *testing.T) {
	in := yardstick.Synthetic(false)
	in.AfterRemoves++
	o := options{input: "synthetic", of: "best", rounds: 1}
	if _, err := o.once(in, eventsOf(in.Stores, false), eventsOf(in.Removes, false), 0); err == nil ||
		!strings.Contains(err.Error(), "after the removes") {
		t.Errorf("error %v", err)
	}
}

// TestReplay replays a part of the trace: the answers are those of plain maps.
func TestReplay(t *testing.T) {
	r, err := yardstick.NewReplay(400, 4, 4, 2000)
	if err != nil {
		t.Fatal(err)
	}
	f := options{}.replayOnce(r)
	if f.Checksum != r.Sum || f.Removed == 0 || f.Held != f.Stored-f.Removed {
		t.Errorf("want checksum %d: %+v", r.Sum, f)
	}
}

func TestDrop(t *testing.T) {
	if testing.Short() {
		t.Skip("a million blocks")
	}
	if d, err := (options{rounds: 1}).drop(64); err != nil || d.Steps == 0 || d.After >= d.Before {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestChurn(t *testing.T) {
	if testing.Short() {
		t.Skip("two million blocks")
	}
	s := churn(0)
	if most := steadyWorkers * steadyRoom; s.held > most || s.held < most*9/10 {
		t.Errorf("%d blocks held, there is room for %d", s.held, most)
	}
}

// TestQuantile verifies the counts against sorted times.
func TestQuantile(t *testing.T) {
	var c counts
	for i := range 100 {
		c.by[i*10]++ // 0, 100 ns, ... 9.9 us
		c.n++
	}
	var twice counts
	twice.add(&c)
	twice.add(&c)
	for q, want := range map[float64]time.Duration{0: 0, .5: 5000, .99: 9900} {
		if got := twice.quantile(q); got != us(want+countStep/2) {
			t.Errorf("quantile %v is %v, want %v", q, got, us(want))
		}
	}
	twice.n += 1000
	if got := twice.quantile(.9); got != 100 {
		t.Errorf("beyond all steps: %v", got)
	}
}

func TestWindow(t *testing.T) {
	in := yardstick.Synthetic(false)
	x := newIndex(in.Workers, 0)
	apply(x, eventsOf(in.Stores, false))
	w := watch(x, in.Queries, eventsOf(in.Changes(), false), 2)
	if w.P50 <= 0 || w.P99 < w.P50 || w.Queries <= 0 || w.Written <= 0 {
		t.Errorf("%+v", w)
	}
}
