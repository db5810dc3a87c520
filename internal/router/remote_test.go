package router

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"attache/internal/replica"
	"attache/internal/slot"
	"attache/internal/worker"
)

// thread tells one world at once what another one shares.
type thread struct {
	mu   sync.Mutex
	from string
	to   []*world
	cut  bool
}

func (l *thread) Share(d *replica.Delta) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.to {
		if !l.cut {
			deliver(w, l.from, d)
		}
	}
}

func deliver(w *world, from string, d *replica.Delta) {
	c := *d
	c.Chain = slices.Clone(d.Chain) // as if it had come over a wire
	w.Remote("default").Apply(from, &c)
}

// twoWorlds are two replicas that see each other's decisions at once. Their slots differ.
func twoWorlds(t *testing.T, change func(*Config), n int) (a, b *world, ab *thread) {
	t.Helper()
	states := make([]worker.State, n)
	for i := range states {
		states[i] = worker.Ready
	}
	there := workers("default", 1, states...)
	here := workers("default", 1, states...)
	for i, w := range here {
		w.Slot = slot.Slot(n - i)
	}
	a, b = newWorld(t, change, nil, there...), newWorld(t, change, nil, here...)
	ab = &thread{from: "a", to: []*world{b}}
	a.Share("default", ab)
	b.Share("default", &thread{from: "b", to: []*world{a}})
	a.replica, b.replica = "a", "b"
	return a, b, ab
}

// loads are what is booked, by worker.
func loads(w *world) string {
	text := ""
	for _, wk := range w.fleet.set.All() {
		l := w.byName["default"].scorer.Load(wk.Slot)
		text += fmt.Sprintf("%s: %d in flight, %d prompt tokens, %d blocks, %d active, %d output tokens\n", wk.Name, l.InFlight,
			l.ContextTokens, l.ContextBlocks, l.ActiveBlocks, l.OutputTokens)
	}
	return text
}

// toCompute are the prompt tokens that a worker has not computed, by the clock, which rounds here and there.
func toCompute(w *world, name string) int {
	for _, wk := range w.fleet.set.All() {
		if wk.Name == name {
			return w.byName["default"].scorer.Load(wk.Slot).PrefillTokens
		}
	}
	return -1
}

func TestReplicasDecideAsOne(t *testing.T) {
	a, b, _ := twoWorlds(t, nil, 4)
	rnd := rand.New(rand.NewPCG(1, 2))
	type open struct {
		d *Decision
		w *world
	}
	var running []open
	worlds := []*world{a, b}
	talks := map[string]string{} // a conversation's text, by its name
	homes := map[string]string{}
	same := 0
	for i := range 600 {
		for _, w := range worlds {
			w.clock = w.clock.Add(time.Duration(rnd.IntN(20)) * time.Millisecond)
		}
		a.clock = b.clock
		switch n := rnd.IntN(10); {
		case n < 5:
			w, name := worlds[rnd.IntN(2)], fmt.Sprint("talk ", rnd.IntN(12))
			talks[name] += long(fmt.Sprint(name, " turn ", i), 2000)
			d := w.route(t, "m", talks[name])
			if first(d) == homes[name] {
				same++
			}
			homes[name] = first(d)
			running = append(running, open{d, w})
		case len(running) == 0:
		case n < 6:
			running[rnd.IntN(len(running))].d.Done.Prefilled()
		default:
			at := rnd.IntN(len(running))
			o := running[at]
			running = slices.Delete(running, at, at+1)
			o.d.Done.End()
			if rnd.IntN(4) > 0 {
				rec := o.d.Done.rec
				o.w.Report(o.d.ID, Outcome{Status: 200, Served: rec.named[0].Addr, Attempts: 1, TTFT: time.Second, EngineTTFT: time.Duration(rnd.IntN(900)+100) * time.Millisecond,
					Usage: true, PromptTokens: rec.promptTokens, CachedTokens: rec.captured / 2, CachedKnown: true, CompletedTokens: rnd.IntN(600)})
			}
		}
		if got, want := loads(b), loads(a); got != want {
			t.Fatalf("step %d: the replicas see\n%sand\n%s", i, want, got)
		}
		for _, wk := range a.fleet.set.All() {
			if there, here := toCompute(a, wk.Name), toCompute(b, wk.Name); max(there-here, here-there) > 2 {
				t.Fatalf("step %d: the replicas think that %s has %d and %d tokens to compute", i, wk.Name, there, here)
			}
		}
	}
	if same < 150 {
		t.Errorf("only %d of about 300 turns went where the conversation was, whichever replica decided", same)
	}
	if fa, fb := a.byName["default"].scorer.SpeedFactor(), b.byName["default"].scorer.SpeedFactor(); math.Abs(fa/fb-1) > 1e-3 || fa == 1 {
		t.Errorf("the replicas have learnt %v and %v", fa, fb)
	}
	for _, o := range running {
		o.d.Done.End()
	}
	for _, w := range worlds {
		for _, wk := range w.fleet.set.All() {
			if l := w.byName["default"].scorer.Load(wk.Slot); l.InFlight != 0 || l.ActiveBlocks != 0 {
				t.Errorf("all is over, %s has %+v", wk.Name, l)
			}
		}
		if n := w.Remote("default").InFlight(); n != 0 {
			t.Errorf("all is over, %d requests of the other replica are under way", n)
		}
	}
}

func TestAReplicaThatComesIsToldAll(t *testing.T) {
	a, b, ab := twoWorlds(t, func(c *Config) { c.Affinity.Mode = affinityHard }, 3)
	ab.cut = true
	var ds []*Decision
	for i := range 6 {
		req := chatOf(t, "m", long(fmt.Sprint("conversation ", i), 4000))
		req.Hints.Session = fmt.Sprint("s", i)
		d, err := a.Route(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		ds = append(ds, d)
	}
	ds[5].Done.End()
	tell := func() {
		m := b.Remote("default")
		m.Begin("a")
		m.Learn("a", a.Remote("default").Learnt())
		a.Remote("default").Open(func(d *replica.Delta) { deliver(b, "a", d) })
		m.Finish("a")
	}
	tell()
	tell() // twice is as once
	if got, want := loads(b), loads(a); got != want {
		t.Errorf("the replica that came sees\n%sinstead of\n%s", got, want)
	}
	req := chatOf(t, "m", "something else")
	req.Hints.Session = "s5"
	d, err := b.Route(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if first(d) != first(ds[5]) {
		t.Errorf("session s5 goes to %s, it was bound to %s", first(d), first(ds[5]))
	}
	d.Done.End()
	for _, d := range ds[:3] {
		d.Done.End() // nobody tells b
	}
	tell()
	if n := b.Remote("default").InFlight(); n != 2 {
		t.Errorf("b knows of %d requests of a, 2 are under way", n)
	}

	m := b.Remote("default")
	m.Gone("a", 20*time.Second)
	if n := b.InFlight(1) + b.InFlight(2) + b.InFlight(3); n != 2 {
		t.Errorf("a has left 2 requests, b counts %d", n)
	}
	b.clock = b.clock.Add(21 * time.Second)
	m.upkeep(b.clock, time.Minute)
	if n := b.InFlight(1) + b.InFlight(2) + b.InFlight(3); n != 0 {
		t.Errorf("b still counts %d requests that a has left long ago", n)
	}
}

func TestADeadReplicasRequestsAreNoLoad(t *testing.T) {
	a, b, _ := twoWorlds(t, nil, 2)
	for i := range 5 {
		a.route(t, "m", long(fmt.Sprint("prompt ", i), 4000))
	}
	b.Remote("default").Gone("a", 0)
	if n := b.InFlight(1) + b.InFlight(2); n != 0 {
		t.Errorf("a is dead, b counts %d of its requests", n)
	}
	b.Remote("default").Gone("nobody", 0)
}

func TestARequestThatMovedMovesEverywhere(t *testing.T) {
	a, b, _ := twoWorlds(t, nil, 2)
	d := a.route(t, "m", long("prompt", 4000))
	ws := slices.Clone(a.fleet.set.All())
	for i, w := range ws {
		if w.Endpoint == first(d) {
			down := *w
			down.State = worker.Unhealthy
			ws[i] = &down
		}
	}
	a.publish(ws...)
	if got, want := loads(b), loads(a); got != want {
		t.Errorf("after it moved the replicas see\n%sand\n%s", want, got)
	}
	d.Done.End()
	if got, want := loads(b), loads(a); got != want {
		t.Errorf("after its end the replicas see\n%sand\n%s", want, got)
	}
}

// TestEnvoyTellsAnyReplica: the access log of a request comes to one replica, the decision was another one's.
func TestEnvoyTellsAnyReplica(t *testing.T) {
	a, b, _ := twoWorlds(t, nil, 3)
	d := a.route(t, "m", long("prompt", 4000))
	d.Done.End()
	o := Outcome{Status: 200, Served: d.Done.rec.named[0].Addr, Attempts: 1, TTFT: time.Second, EngineTTFT: time.Second, CompletedTokens: 7}
	b.Report(d.ID, o)
	if got := d.Done.rec.out; got == nil || *got != o {
		t.Errorf("b was told what became of a's decision, and a knows %+v", got)
	}
	if n := len(b.Remote("default").peers["a"].byNumber); n != 0 {
		t.Errorf("b still waits to hear of %d answers", n)
	}
	if fa, fb := a.byName["default"].scorer.SpeedFactor(), b.byName["default"].scorer.SpeedFactor(); fa == 1 || math.Abs(fa/fb-1) > 1e-3 {
		t.Errorf("the replicas have learnt %v and %v", fa, fb)
	}
	a.Report(d.ID, o)   // it is over
	b.Report("r7.1", o) // nobody knows it
}

func TestWhatIsNotKnownHereDoesNothing(t *testing.T) {
	_, b, _ := twoWorlds(t, nil, 2)
	m := b.Remote("default")
	for k := replica.Booked; k <= replica.Bound; k++ {
		m.Apply("a", &replica.Delta{Kind: k, Number: 7, Worker: addr(99), Session: 3, SessionTTL: time.Minute, PromptTokens: 100, BlockTokens: 32})
		m.Apply("a", &replica.Delta{Kind: k, Number: 8, Worker: addr(1), Rank: 5, PromptTokens: 100, BlockTokens: 32})
	}
	m.Learn("a", []byte("no JSON"))
	m.Finish("nobody")
	if m.InFlight() != 0 || b.byName["default"].sessions.count() != 0 {
		t.Errorf("%d requests and %d sessions at workers that are not known", m.InFlight(), b.byName["default"].sessions.count())
	}
	m.Apply("a", &replica.Delta{Kind: replica.Booked, Number: 9, Worker: addr(1), PromptTokens: 100, BlockTokens: 16, Chain: []uint64{1, 2, 3}})
	if l := b.byName["default"].scorer.Load(2); l.InFlight != 1 || l.ContextTokens != 100 {
		t.Errorf("a request with blocks of another size counts as %+v, want its load alone", l)
	}
}

func TestWhatWaitsElsewhereCounts(t *testing.T) {
	_, b, _ := twoWorlds(t, func(c *Config) {
		c.MaxInFlight = 1
		c.Queue.Limits.Requests = 5
	}, 1)
	b.route(t, "m", "one")
	b.Remote("default").Elsewhere(replica.Waiting{Requests: 5})
	_, err := b.Route(t.Context(), chatOf(t, "m", "two"))
	var shed *ShedError
	if !errors.As(err, &shed) {
		t.Errorf("five wait elsewhere, at most five may; one more: %v", err)
	}
}

func TestReplicasUnderLoad(t *testing.T) {
	a, b, _ := twoWorlds(t, nil, 3)
	var running sync.WaitGroup
	for g, w := range []*world{a, b, a, b} {
		running.Go(func() {
			for i := range 150 {
				d, err := w.Route(t.Context(), chatOf(t, "m", long(fmt.Sprint("talk ", (g+i)%5), 3000)))
				if err != nil {
					t.Error(err)
					return
				}
				if i%20 == 0 {
					w.Remote("default").Open(func(*replica.Delta) {})
					w.Remote("default").upkeep(w.clock, time.Minute)
				}
				d.Done.End()
				w.Report(d.ID, Outcome{Status: 200, Served: d.Done.rec.named[0].Addr, Attempts: 1, CompletedTokens: 10})
			}
		})
	}
	over, moving := make(chan struct{}), sync.WaitGroup{}
	for _, w := range []*world{a, b} {
		moving.Go(func() { // as if workers went down all the time
			for {
				select {
				case <-over:
					return
				default:
					w.table.each(func(rec *record) { rec.fallBack(w.fleet.set) })
				}
			}
		})
	}
	running.Wait()
	close(over)
	moving.Wait()
	for _, w := range []*world{a, b} {
		for s := range slot.Slot(4) {
			if n := w.InFlight(s); n != 0 {
				t.Errorf("all is over, %d in flight on slot %d", n, s)
			}
		}
	}
}

// BenchmarkRemote is what a request of another replica costs this one: booked, over, answered; a conversation of 128 blocks.
func BenchmarkRemote(b *testing.B) {
	w := newWorld(b, nil, nil, workers("default", 1, worker.Ready, worker.Ready)...)
	sc := scratch{eligible: w.fleet.set.All()}
	w.chain(b.Context(), w.byName["default"], &sc, chatOf(b, "m", long("seen before", 16_400)), "m")
	m, n := w.Remote("default"), uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		n++
		d := replica.Delta{Kind: replica.Booked, Number: n, Worker: addr(1), PromptTokens: sc.chain.Tokens, CachedTokens: 2000, BlockTokens: sc.chain.BlockTokens,
			Chain: sc.chain.Hashes}
		m.Apply("a", &d)
		m.Apply("a", &replica.Delta{Kind: replica.Ended, Number: n})
		m.Apply("a", &replica.Delta{Kind: replica.Answered, Number: n, Worker: addr(1), Outcome: replica.Outcome{
			Status: 200, Attempts: 1, EngineTTFT: time.Second, AnswerTokens: 300,
		}})
	}
}
