package router

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"attache/internal/bubble"
	"attache/internal/traceparent"
	"attache/internal/worker"
)

// observed keeps what it is told.
type observed struct{ all []*Finished }

func (o *observed) Finished(f *Finished) { o.all = append(o.all, f) }

const ms = time.Millisecond

// timedWorld is a world whose clock moves by a millisecond whenever somebody looks at it.
func timedWorld(t *testing.T) (*world, *observed) {
	t.Helper()
	w, o := newWorld(t, nil, nil, workers("default", 1, worker.Ready)...), &observed{}
	w.observer = o
	w.now = func() time.Time {
		w.clock = w.clock.Add(ms)
		return w.clock
	}
	return w, o
}

// inOrder checks that phases follow upon each other, and not how long they were: how often the clock is looked at is nobody's business.
func inOrder(t *testing.T, phases ...time.Duration) {
	t.Helper()
	for i := 1; i < len(phases); i++ {
		if phases[i] <= phases[i-1] {
			t.Errorf("phase %d ends after %s, the one before it after %s", i, phases[i], phases[i-1])
		}
	}
}

func TestPhasesOfARequest(t *testing.T) {
	w, o := timedWorld(t)
	req := chatOf(t, "m", long("a prompt", 4000))
	parent, _ := traceparent.Parse([]byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
	req.Timing = Timing{Received: w.clock.Add(-20 * ms), Complete: w.clock.Add(-5 * ms), Parsed: w.clock.Add(-1 * ms), Parent: parent}
	d, err := w.Route(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	d.Done.Sent()
	rec := d.Done.rec
	rec.stored(rec.blocks/2, false)
	rec.stored(rec.blocks, true)
	before := d.Done.Phases()
	d.Done.Sent() // all of it a second time, and later, changes nothing
	rec.stored(rec.blocks, true)
	if after := d.Done.Phases(); before != after {
		t.Errorf("phases changed: %s", cmp.Diff(before, after))
	}
	d.Done.End()
	w.Report(d.ID, Outcome{Status: 200, Served: addr(1), Attempts: 1, TTFT: time.Second, EngineTTFT: time.Second})
	if len(o.all) != 1 {
		t.Fatalf("%d requests shown, want one", len(o.all))
	}
	f := o.all[0]
	p := f.Phases
	if p.Complete != 15*ms || p.Parsed != 19*ms || p.FirstToken != time.Second || p.Transferred != 0 || f.Began != req.Timing.Received || f.Parent != parent {
		t.Errorf("%+v", f)
	}
	inOrder(t, p.Complete, p.Parsed, p.Chained, p.Looked, p.Picked, p.Decided, p.Sent, p.Prefilling, p.Prefilled, p.Ended)
	if f.Worker != "w1" || f.Served != "w1" || f.Policy != "time" || f.Rung != "approximate" || f.ID != d.ID || f.Outcome == nil || f.PromptTokens == 0 ||
		d.Worker != "w1" || d.Waited != 0 {
		t.Errorf("%+v\n%+v", f, d)
	}
}

func TestARequestThatNobodyTimes(t *testing.T) {
	w, o := timedWorld(t)
	d := w.route(t, "m", long("a prompt", 4000))
	d.Done.Sent()
	d.Done.End()
	w.clock = w.clock.Add(2 * time.Minute)
	w.table.forget(w.clock.Add(-w.settings.Load().FeedbackTTL), w.tell)
	if len(o.all) != 1 {
		t.Fatalf("%d requests shown, want the one that nobody reported", len(o.all))
	}
	p := o.all[0].Phases
	inOrder(t, 0, p.Decided, p.Ended)
	p.Decided, p.Ended = 0, 0
	if p != (Phases{}) || o.all[0].Outcome != nil {
		t.Errorf("timed nevertheless: %+v", o.all[0])
	}
	if (Done{}).Phases() != (Phases{}) {
		t.Error("no decision has phases")
	}
	Done{}.Sent()
}

func TestTimingAllocatesNothing(t *testing.T) {
	if bubble.Raced {
		t.Skip("allocations cannot be counted under the race detector")
	}
	w := newWorld(t, nil, nil, workers("default", 1, worker.Ready, worker.Ready)...)
	req := chatOf(t, "m", long("a prompt", 4000))
	count := func() float64 { // the least of some, because the garbage collector empties what is kept between requests
		least := math.Inf(1)
		for range 5 {
			least = min(least, testing.AllocsPerRun(200, func() {
				d, err := w.Route(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				d.Done.Sent()
				d.Done.End()
				w.table.take(w.ids.Load())
			}))
		}
		return least
	}
	count() // numbers of the first decisions are so short that naming them takes no memory
	without := count()
	req.Timing = Timing{Received: w.clock.Add(-ms), Complete: w.clock, Parsed: w.clock}
	if with := count(); with > without {
		t.Errorf("%v allocations with timing, %v without", with, without)
	}
}
