package virtual

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"attache/internal/sim/trace"
)

// drawWorkload draws a few requests with common beginnings, some of which follow others.
func drawWorkload(t *rapid.T, blockTokens int) *trace.Workload {
	w := &trace.Workload{BlockTokens: blockTokens}
	children := map[[2]int32]int32{}
	for i := range rapid.IntRange(1, 30).Draw(t, "requests") {
		r := &trace.Request{
			Index: i, Prompt: rapid.IntRange(1, 14*blockTokens).Draw(t, "prompt"), Output: rapid.IntRange(1, 5*blockTokens).Draw(t, "output"),
			Arrival: time.Duration(rapid.IntRange(0, 30).Draw(t, "arrival")) * 20 * time.Millisecond,
		}
		parent := int32(-1)
		for range r.Prompt / blockTokens {
			branch := [2]int32{parent, int32(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "branch"))}
			id, known := children[branch]
			if !known {
				id = int32(len(children))
				children[branch] = id
			}
			r.IDs = append(r.IDs, id)
			parent = id
		}
		for range rapid.IntRange(0, min(2, i)).Draw(t, "after") {
			if before := w.All[rapid.IntRange(0, i-1).Draw(t, "before")]; !slices.Contains(before.Next, r) {
				before.Next = append(before.Next, r)
				r.After++
				r.Think = time.Duration(rapid.IntRange(0, 3).Draw(t, "think")) * 50 * time.Millisecond
			}
		}
		if w.All = append(w.All, r); r.After == 0 {
			w.Heads = append(w.Heads, r)
		}
	}
	slices.SortStableFunc(w.Heads, func(a, b *trace.Request) int { return int(a.Arrival - b.Arrival) })
	w.IDs = len(children)
	return w
}

// drawConfig draws a small cluster in which at least the last worker stays.
func drawConfig(t *rapid.T, blockTokens int) Config {
	cfg := Config{
		Workers: rapid.IntRange(1, 3).Draw(t, "workers"), Profile: rapid.SampledFrom(Profiles()[:2]).Draw(t, "profile"),
		KVTokens: blockTokens * rapid.IntRange(4, 40).Draw(t, "blocks"), MaxSeqs: rapid.IntRange(1, 5).Draw(t, "seqs"),
		KV: rapid.SampledFrom([]float64{1, 1.5}).Draw(t, "kv"),
	}
	cfg.MaxTokens = cfg.MaxSeqs + rapid.IntRange(1, 40).Draw(t, "tokens")
	for range cfg.Workers {
		cfg.Speeds = append(cfg.Speeds, rapid.SampledFrom([]float64{.5, 1, 3}).Draw(t, "speed"))
	}
	for w := range cfg.Workers - 1 {
		up, at := rapid.Bool().Draw(t, "joins"), time.Duration(0)
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			at += time.Duration(rapid.IntRange(1, 300).Draw(t, "later")) * time.Millisecond
			cfg.Changes = append(cfg.Changes, Change{at, w, up})
			up = !up
		}
	}
	return cfg
}

// auditor is a router that routes and holds as drawn, and checks all it hears: nobody's memory overflows, requests end once,
// and what it was told of the caches is what they are.
type auditor struct {
	t      *rapid.T
	c      *Cluster
	lag    bool
	shared bool // what it is told of caches means nothing
	up     []bool
	caches []map[int32]bool
	flying map[int]int // by request: worker
	ended  []int
	first  []bool
	now    time.Duration
	output []int // blocks of answers
}

func (a *auditor) check(now time.Duration, worker int) {
	if now < a.now {
		a.t.Fatalf("time went back from %v to %v", a.now, now)
	}
	a.now = now
	if p := a.c.pool(worker); p != nil {
		checkPool(a.t, p)
	}
}

func (a *auditor) Route(now time.Duration, r *trace.Request) (worker int, ok bool) {
	for w := range a.c.Workers() {
		a.check(now, w)
		if a.c.Up(w) != a.up[w] {
			a.t.Fatalf("worker %d is up: %v", w, a.c.Up(w))
		}
		held := 0
		for held < len(r.IDs) && a.caches[w][r.IDs[held]] {
			held++
		}
		if got := a.c.Held(w, r.IDs); !a.lag && !a.shared && got != held {
			a.t.Fatalf("worker %d holds %d blocks of request %d, told %d", w, got, r.Index, held)
		}
		idle := 0
		for range a.c.IdleBlocks(w) {
			idle++
		}
		if a.c.Free(w)+a.c.InUse(w)+idle != a.c.Capacity(w) {
			a.t.Fatalf("worker %d: %d free, %d in use and %d idle blocks of %d", w, a.c.Free(w), a.c.InUse(w), idle, a.c.Capacity(w))
		}
	}
	if _, twice := a.flying[r.Index]; twice || a.ended[r.Index] > 0 {
		a.t.Fatalf("request %d is offered again", r.Index)
	}
	if len(a.flying) > 0 && rapid.IntRange(0, 3).Draw(a.t, "hold") == 0 {
		return 0, false
	}
	worker = rapid.IntRange(0, a.c.Workers()-1).Draw(a.t, "worker")
	for !a.up[worker] {
		worker = (worker + 1) % a.c.Workers()
	}
	a.flying[r.Index] = worker
	return worker, true
}

func (a *auditor) FirstToken(now time.Duration, r *trace.Request) {
	if _, flying := a.flying[r.Index]; !flying || a.first[r.Index] {
		a.t.Fatalf("first token of request %d, which is in flight: %v", r.Index, flying)
	}
	a.first[r.Index] = true
}

func (a *auditor) End(now time.Duration, r *trace.Request, o Outcome) {
	a.check(now, o.Worker)
	worker, flying := a.flying[r.Index]
	if !flying || worker != o.Worker {
		a.t.Fatalf("request %d ends on worker %d, it is on %d: %v", r.Index, o.Worker, worker, flying)
	}
	delete(a.flying, r.Index)
	switch o.Status {
	case Lost:
		a.first[r.Index] = false
		return
	case Answered:
		if !a.first[r.Index] || o.Output != r.Output || o.Cached > r.Prompt || o.TTFT <= 0 {
			a.t.Fatalf("request %d (first token %v): %+v", r.Index, a.first[r.Index], o)
		}
	case Refused:
		if need := (r.Prompt+r.Output)/a.c.workload.BlockTokens + 2; need <= a.c.Capacity(worker) {
			a.t.Fatalf("request %d needs %d of %d blocks and was refused", r.Index, need, a.c.Capacity(worker))
		}
	}
	a.ended[r.Index]++
}

func (a *auditor) Stored(now time.Duration, worker int, r *trace.Request, from, to int) {
	for _, id := range r.IDs[from:to] {
		a.caches[worker][id] = true
	}
}

func (a *auditor) Removed(now time.Duration, worker int, ids []int32) {
	for _, id := range ids {
		if !a.caches[worker][id] && !a.shared {
			a.t.Fatalf("worker %d gave up block %d, which it did not have", worker, id)
		}
		delete(a.caches[worker], id)
	}
}

func (a *auditor) Outputs(now time.Duration, worker, stored, evicted int) {
	if a.output[worker] += stored - evicted; a.output[worker]+evicted < evicted {
		a.t.Fatalf("worker %d evicted more blocks of answers than it stored", worker)
	}
}

func (a *auditor) Up(now time.Duration, worker int) { a.up[worker] = true }

func (a *auditor) Down(now time.Duration, worker int) {
	a.up[worker] = false
	a.caches[worker], a.output[worker] = map[int32]bool{}, 0
}

func TestClusterKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blockTokens := rapid.IntRange(1, 6).Draw(t, "block tokens")
		w, cfg := drawWorkload(t, blockTokens), drawConfig(t, blockTokens)
		cfg.Lag = rapid.SampledFrom([]time.Duration{0, 30 * time.Millisecond}).Draw(t, "lag")
		switch rapid.IntRange(0, 3).Draw(t, "reuse") {
		case 0:
			cfg.SharedCache = true
		case 1:
			cfg.NoReuse = true
		}
		c, err := New(cfg, w)
		if err != nil {
			t.Fatal(err)
		}
		a := &auditor{
			t: t, c: c, lag: cfg.Lag > 0, shared: cfg.SharedCache, up: make([]bool, cfg.Workers), flying: map[int]int{}, ended: make([]int, len(w.All)),
			first: make([]bool, len(w.All)), output: make([]int, cfg.Workers),
		}
		for range cfg.Workers {
			a.caches = append(a.caches, map[int32]bool{})
		}
		r, err := c.Run(a)
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range a.ended {
			if n != 1 {
				t.Fatalf("request %d ended %d times", i, n)
			}
		}
		if len(r.Records) != len(w.All) {
			t.Fatalf("%d records of %d requests", len(r.Records), len(w.All))
		}
		for i := range r.Records {
			x := &r.Records[i]
			if x.Status == Answered && (x.Admitted < x.Arrive || x.First < x.Admitted || x.End < x.First) {
				t.Fatalf("%+v", x)
			}
		}
		for i := range c.nodes {
			if c.Up(i) && c.InUse(i) != 0 {
				t.Fatalf("%d blocks of worker %d are in use at the end", c.InUse(i), i)
			}
			for id := range int32(w.IDs) { // whatever was told late has been told now
				if held := c.Up(i) && c.pool(i).at[id] > 0; held != a.caches[i][id] && !a.shared {
					t.Fatalf("worker %d holds block %d at the end: %v, told %v", i, id, held, a.caches[i][id])
				}
			}
		}
	})
}

// one is a workload of requests with nothing in common that arrive at once.
func one(prompts ...int) *trace.Workload {
	w := &trace.Workload{BlockTokens: 64}
	for i, n := range prompts {
		r := &trace.Request{Index: i, Prompt: n, Output: 3}
		for range n / 64 {
			r.IDs = append(r.IDs, int32(w.IDs))
			w.IDs++
		}
		w.All, w.Heads = append(w.All, r), append(w.Heads, r)
	}
	return w
}

func mustRun(t *testing.T, cfg Config, w *trace.Workload, r Router) *Result {
	t.Helper()
	c, err := New(cfg, w)
	if err != nil {
		t.Fatal(err)
	}
	result, err := c.Run(r)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// A worker at half the speed takes twice as long.
func TestSpeeds(t *testing.T) {
	for _, profile := range Profiles() {
		r := mustRun(t, Config{Workers: 2, Profile: profile, Speeds: []float64{1, .5}}, one(5000, 5000), RoundRobin())
		if a, b := r.Records[0].E2E(), r.Records[1].E2E(); b < 2*a-3 || b > 2*a+3 { // whole nanoseconds, three passes
			t.Errorf("%s: %v at full speed, %v at half", profile, a, b)
		}
	}
}

// What a worker was doing when it went down begins again elsewhere, and a worker that joins gets its share.
func TestWorkersComeAndGo(t *testing.T) {
	w := one(5000, 5000, 5000, 5000)
	for i, r := range w.All[2:] {
		r.Arrival = time.Duration(i+1) * time.Second
	}
	for _, profile := range Profiles() {
		cfg := Config{Workers: 3, Profile: profile, Changes: []Change{{500 * time.Millisecond, 2, true}, {5 * time.Millisecond, 0, false}}}
		r := mustRun(t, cfg, w, RoundRobin())
		for i, want := range []struct{ worker, attempts int }{{1, 2}, {1, 1}, {2, 1}, {1, 1}} {
			if x := r.Records[i]; x.Worker != want.worker || x.Attempts != want.attempts || x.Status != Answered {
				t.Errorf("%s: request %d: %d attempts, on worker %d at last, %v, want %v", profile, i, x.Attempts, x.Worker, x.Status, want)
			}
		}
		if r.Busy[0] != 5*time.Millisecond {
			t.Errorf("%s: the worker that failed at 5 ms was busy for %v", profile, r.Busy[0])
		}
	}
}

// What does not fit is refused at the end of the pass that finds out, and keeps nobody waiting.
func TestRefused(t *testing.T) {
	for _, profile := range Profiles() {
		r := mustRun(t, Config{Workers: 1, Profile: profile, KVTokens: 6400}, one(6000, 7000, 640), RoundRobin())
		s := r.Summary(0, Limits{})
		if r.Records[1].Status != Refused || s.Refused != 1 || s.Completed != 2 {
			t.Errorf("%s: %+v", profile, s)
		}
	}
}

// A tier of host memory is more room in the cache.
func TestTier(t *testing.T) {
	w := one(6000, 6000, 6000)
	again := *w.All[0]
	again.Index, again.Arrival = 3, time.Minute
	w.All, w.Heads = append(w.All, &again), append(w.Heads, &again)
	for _, profile := range Profiles() {
		for _, c := range []struct {
			kv   float64
			want int
		}{{1, 0}, {4, 93 * 64}} {
			r := mustRun(t, Config{Workers: 1, Profile: profile, KVTokens: 6400, KV: c.kv}, w, RoundRobin())
			if got := r.Records[3].Reused; got != c.want {
				t.Errorf("%s, KV %v: %d tokens reused, want %d", profile, c.kv, got, c.want)
			}
		}
	}
}

// With a router for all ideas of load, the same work is done.
func TestBlindRouters(t *testing.T) {
	w := open(t, "conversation-jittered", 0, 2)
	for _, r := range []Router{RoundRobin(), Random(1), LeastRequests(1)} {
		s := mustRun(t, Config{Workers: 8, Profile: "qwen3-32b-2xh100", KV: 4}, w, r).Summary(time.Minute, Limits{2 * time.Second, 50 * time.Millisecond})
		t.Logf("%T: %+v", r, s)
		if s.Completed < 3500 || s.Refused != 0 || s.Good <= 0 || s.Good > 1 || s.Utilisation > 1 {
			t.Errorf("%T: %+v", r, s)
		}
	}
}

// scripted routes as a function says.
type scripted struct {
	Blind

	route func() (int, bool)
}

func (s scripted) Route(time.Duration, *trace.Request) (int, bool) { return s.route() }

func TestRoutersMistakes(t *testing.T) {
	for _, c := range []struct {
		want  string
		route func() (int, bool)
	}{
		{"chose worker 2", func() (int, bool) { return 2, true }},
		{"chose worker -1", func() (int, bool) { return -1, true }},
		{"chose worker 1: one of 2 that is up", func() (int, bool) { return 1, true }},
		{"holds 1 requests", func() (int, bool) { return 0, false }},
	} {
		cluster, err := New(Config{Workers: 2, Changes: []Change{{0, 1, false}}}, one(100))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.Run(scripted{route: c.route}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
		if _, err := cluster.Run(RoundRobin()); err == nil {
			t.Error("a cluster ran twice")
		}
	}
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct {
		want string
		cfg  Config
	}{
		{"0 workers", Config{}},
		{"profile", Config{Workers: 1, Profile: "abacus"}},
		{"KV memory", Config{Workers: 1, KVTokens: 63}},
		{"KV memory", Config{Workers: 1, KV: -1}},
		{"more tokens than sequences", Config{Workers: 1, MaxTokens: 10, MaxSeqs: 10}},
		{"speeds", Config{Workers: 2, Speeds: []float64{1}}},
		{"speed 0", Config{Workers: 1, Speeds: []float64{0}}},
		{"lag", Config{Workers: 1, Lag: -1}},
		{"there are 1 workers", Config{Workers: 1, Changes: []Change{{0, 1, true}}}},
		{"two changes", Config{Workers: 1, Changes: []Change{{2, 0, true}, {1, 0, true}}}},
	} {
		if _, err := New(c.cfg, one(1)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", c.cfg, err, c.want)
		}
	}
}

// What a worker computed, any worker may read if they share a cache, none if there is no reuse, itself otherwise.
func TestWhoMayReuse(t *testing.T) {
	w := &trace.Workload{BlockTokens: 64, IDs: 16}
	ids := make([]int32, 16)
	for i := range ids {
		ids[i] = int32(i)
	}
	for i := range 6 { // by round robin: workers 0, 1, 0, 1, ...
		r := &trace.Request{Index: i, Arrival: time.Duration(i) * time.Minute, Prompt: 1030, Output: 80, IDs: ids}
		w.All, w.Heads = append(w.All, r), append(w.Heads, r)
	}
	for _, profile := range Profiles()[:2] {
		for _, c := range []struct {
			name   string
			cfg    Config
			reused []int // by request
		}{
			{"own", Config{}, []int{0, 0, 1024, 1024, 1024, 1024}},
			{"shared", Config{SharedCache: true}, []int{0, 1024, 1024, 1024, 1024, 1024}},
			{"none", Config{NoReuse: true}, []int{0, 0, 0, 0, 0, 0}},
		} {
			c.cfg.Workers, c.cfg.Profile = 2, profile
			cluster, err := New(c.cfg, w)
			if err != nil {
				t.Fatal(err)
			}
			alone := [2]time.Duration{cluster.Alone(0, 1030, 0), cluster.Alone(0, 6, 1024)}
			r, err := cluster.Run(RoundRobin())
			if err != nil {
				t.Fatal(err)
			}
			for i := range r.Records {
				x := &r.Records[i]
				if x.Reused != c.reused[i] {
					t.Errorf("%s, %s: request %d reused %d tokens, want %d", profile, c.name, i, x.Reused, c.reused[i])
				}
				// The mocked engine adds a decode step of about 6 ms to the pass of a first token.
				if want := alone[min(1, x.Reused)]; x.TTFT() < want || x.TTFT() > want+7*time.Millisecond {
					t.Errorf("%s, %s: request %d has its first token after %v, alone %v", profile, c.name, i, x.TTFT(), want)
				}
			}
			if held := cluster.Held(0, ids); (held == 0) != c.cfg.NoReuse {
				t.Errorf("%s, %s: worker 0 holds %d blocks in the end", profile, c.name, held)
			}
		}
	}
}

// The shared cache keeps what was used last, and the beginnings of prompts longer than their ends.
func TestSharedAgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 12).Draw(t, "capacity")
		s := newShared(capacity, 20)
		var list []int32 // newest first
		for range rapid.IntRange(1, 40).Draw(t, "uses") {
			from := rapid.IntRange(0, 19).Draw(t, "from")
			var ids []int32
			for id := from; id < min(20, from+rapid.IntRange(0, 6).Draw(t, "n")); id++ {
				ids = append(ids, int32(id))
			}
			s.touch(ids)
			list = append(slices.Clone(ids), slices.DeleteFunc(list, func(id int32) bool { return slices.Contains(ids, id) })...)
			list = list[:min(len(list), capacity)]
			for id := range int32(20) {
				if got, want := s.match([]int32{id}) == 1, slices.Contains(list, id); got != want {
					t.Fatalf("block %d there: %v, want %v; %v", id, got, want, list)
				}
			}
		}
	})
}
