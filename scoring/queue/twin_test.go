package queue

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// twin is the queue as anybody would write it: one slice that is searched from end to end, rounds walked one by one, and
// service halved as time passes. Only the rank of an entry is the queue's own.
type twin struct {
	cfg     Config
	waiting []*Entry[int]
	sharing map[*Entry[int]]bool // they stand for a flow that there was no room for
	flows   []*twinFlow          // remembered ones
	others  twinFlow
	now     time.Duration
	passed  int // half-lives since service was nothing, so few that sums are exact
	turns   int
	deficit []int64
	turn    int
	earned  bool
}

type twinFlow struct {
	name    string
	service float64
	turn    int
}

func (w *twin) pass(d time.Duration) {
	w.now += d
	for _, f := range append(slices.Clone(w.flows), &w.others) {
		f.service *= math.Exp2(-d.Seconds() / w.cfg.Fairness.HalfLife.Seconds())
	}
}

func (w *twin) class(e *Entry[int]) *ClassConfig { return &w.cfg.Classes[e.Request.Class] }

func (w *twin) flow(name string) *twinFlow {
	for _, f := range w.flows {
		if f.name == name {
			return f
		}
	}
	return &w.others
}

// remember makes room for a flow that is about to wait, or was served.
func (w *twin) remember(name string) {
	if w.flow(name) != &w.others {
		return
	}
	if len(w.flows) == w.cfg.Fairness.Flows {
		idle := slices.DeleteFunc(slices.Clone(w.flows), func(f *twinFlow) bool {
			return slices.ContainsFunc(w.waiting, func(e *Entry[int]) bool {
				return w.class(e).Fair && w.owner(e) == f
			})
		})
		if len(idle) == 0 {
			return
		}
		least := slices.MinFunc(idle, func(a, b *twinFlow) int {
			if (a.service < b.service) || (a.service == b.service && (a.turn < b.turn || a.turn == b.turn && a.name < b.name)) {
				return -1
			}
			return 1
		})
		w.flows = slices.DeleteFunc(w.flows, func(f *twinFlow) bool { return f == least })
	}
	w.flows = append(w.flows, &twinFlow{name: name})
}

// owner is the flow of a waiting entry: an entry that shared a place goes on to share it.
func (w *twin) owner(e *Entry[int]) *twinFlow {
	if w.sharing[e] {
		return &w.others
	}
	return w.flow(e.Request.Flow)
}

func (w *twin) before(a, b *Entry[int]) bool {
	if a.Request.Tier != b.Request.Tier {
		return a.Request.Tier > b.Request.Tier
	}
	if w.class(a).Fair {
		f, g := w.owner(a), w.owner(b)
		if f.service != g.service {
			return f.service < g.service
		}
		if f.turn != g.turn {
			return f.turn < g.turn
		}
	}
	if a.rank != b.rank {
		return a.rank.window < b.rank.window || a.rank.window == b.rank.window && a.rank.key < b.rank.key
	}
	return a.Value < b.Value
}

type laneOf struct {
	class Class
	key   uint64
}

// dispatch returns what is offered, in order, and what became of it.
func (w *twin) dispatch(place func(*Entry[int]) Placement) {
	blocked := map[laneOf]bool{}
	for {
		heads := make([]*Entry[int], len(w.cfg.Classes))
		var top *Entry[int]
		for _, e := range w.waiting {
			if !blocked[laneOf{e.Request.Class, e.Request.Lane}] {
				if h := heads[e.Request.Class]; h == nil || w.before(e, h) {
					heads[e.Request.Class] = e
				}
				if top == nil || e.Request.Tier > top.Request.Tier {
					top = e
				}
			}
		}
		if top == nil {
			return
		}
		deficit, turn, earned := slices.Clone(w.deficit), w.turn, w.earned
		var e *Entry[int]
		for {
			if h := heads[turn]; h != nil && h.Request.Tier == top.Request.Tier {
				cost := int64(max(1, h.Request.UncachedTokens))
				if deficit[turn] < cost && !earned {
					deficit[turn], earned = deficit[turn]+int64(w.cfg.Classes[turn].Quantum), true
				}
				if deficit[turn] >= cost {
					deficit[turn] -= cost
					e = h
					break
				}
			}
			turn, earned = (turn+1)%len(heads), false
		}
		switch place(e) {
		case Placed:
			w.deficit, w.turn, w.earned = deficit, turn, earned
			if w.class(e).Fair {
				w.turns++
				w.owner(e).turn = w.turns
			}
			w.remove(e)
		case Dropped:
			w.remove(e)
		default:
			blocked[laneOf{e.Request.Class, e.Request.Lane}] = true
		}
	}
}

func (w *twin) remove(e *Entry[int]) {
	w.waiting = slices.DeleteFunc(w.waiting, func(o *Entry[int]) bool { return o == e })
	if !slices.ContainsFunc(w.waiting, func(o *Entry[int]) bool { return o.Request.Class == e.Request.Class }) {
		w.deficit[e.Request.Class] = 0
	}
}

func (w *twin) used(c Class, all bool) (u usage) {
	for _, e := range w.waiting {
		if all || e.Request.Class == c {
			u.requests++
			u.tokens += int64(e.Request.PromptTokens)
			u.bytes += e.Request.BodyBytes
		}
	}
	return u
}

// within says whether a request fits under the limits, and if not, whether it is those of all.
func (w *twin) within(r *Request) (fits, total bool) {
	fit := func(l Limits, u usage) bool {
		return (l.Requests == 0 || u.requests < l.Requests) &&
			(l.PromptTokens == 0 || u.tokens+int64(r.PromptTokens) <= l.PromptTokens) &&
			(l.BodyBytes == 0 || u.bytes+r.BodyBytes <= int64(l.BodyBytes))
	}
	if !fit(w.cfg.Classes[r.Class].Limits, w.used(r.Class, false)) {
		return false, false
	}
	return fit(w.cfg.Limits, w.used(0, true)), true
}

// evict returns who has to go for the request; false if it cannot be let in.
func (w *twin) evict(r *Request) ([]*Entry[int], bool) {
	var out []*Entry[int]
	all := slices.Clone(w.waiting)
	defer func() { w.waiting = all }()
	for {
		fits, total := w.within(r)
		if fits {
			return out, true
		}
		var worst *Entry[int]
		for _, e := range w.waiting { // in the order of arrival
			if (total || e.Request.Class == r.Class) && (worst == nil || e.Request.Tier <= worst.Request.Tier) {
				worst = e
			}
		}
		if !w.cfg.Evict || worst == nil || worst.Request.Tier >= r.Tier || len(out) == maxEvictions {
			return nil, false
		}
		w.waiting = slices.DeleteFunc(slices.Clone(w.waiting), func(e *Entry[int]) bool { return e == worst })
		out = append(out, worst)
	}
}

func (w *twin) overdue(e *Entry[int]) bool {
	for _, d := range []time.Duration{w.cfg.Limits.MaxWait, w.class(e).Limits.MaxWait} {
		if d > 0 && w.now-e.Arrival >= d {
			return true
		}
	}
	return e.Request.Deadline > 0 && w.now >= e.Request.Deadline
}

func drawConfig(t *rapid.T) Config {
	cfg := DefaultConfig()
	limits := func() (l Limits) {
		if rapid.Bool().Draw(t, "limited") {
			l.Requests = rapid.IntRange(0, 12).Draw(t, "requests")
			l.PromptTokens = rapid.Int64Range(0, 3000).Draw(t, "tokens")
			l.MaxWait = time.Duration(rapid.IntRange(0, 8).Draw(t, "wait")) * time.Second
		}
		return l
	}
	cfg.Limits = limits()
	cfg.Limits.BodyBytes = 40
	cfg.Evict = rapid.Bool().Draw(t, "evict")
	cfg.Fairness = FairnessConfig{Flows: rapid.IntRange(1, 4).Draw(t, "flows"), HalfLife: time.Second}
	for i := range rapid.IntRange(1, 3).Draw(t, "classes") {
		c := DefaultClass()
		c.Name = fmt.Sprint("class", i)
		c.Policy = rapid.SampledFrom([]string{"fcfs", "lcfs", "wspt", "edf"}).Draw(t, "policy")
		c.Quantum = rapid.IntRange(1, 700).Draw(t, "quantum")
		c.Ageing = time.Duration(rapid.IntRange(0, 4).Draw(t, "ageing")) * time.Second
		c.Fair = rapid.Bool().Draw(t, "fair")
		c.Limits = limits()
		cfg.Classes = append(cfg.Classes, c)
	}
	return cfg
}

func drawRequest(t *rapid.T, classes int, now time.Duration) Request {
	r := Request{
		Class:          Class(rapid.IntRange(0, classes-1).Draw(t, "class")),
		Lane:           rapid.SampledFrom([]uint64{0, 0, 0, 1, 1 << 63}).Draw(t, "lane"),
		Tier:           rapid.SampledFrom([]uint32{0, 0, 0, 1, math.MaxUint32}).Draw(t, "tier"),
		Priority:       rapid.SampledFrom([]float64{0, 0, -1, 1, 7, 1e9, math.NaN()}).Draw(t, "priority"),
		Flow:           rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "flow"),
		UncachedTokens: rapid.IntRange(0, 900).Draw(t, "uncached"),
		BodyBytes:      rapid.Int64Range(0, 4).Draw(t, "bytes"),
		SLO:            time.Duration(rapid.IntRange(0, 3).Draw(t, "slo")) * time.Second,
	}
	r.PromptTokens = r.UncachedTokens + rapid.IntRange(0, 100).Draw(t, "cached")
	if rapid.IntRange(0, 3).Draw(t, "has deadline") == 0 {
		r.Deadline = now + time.Duration(rapid.IntRange(1, 5).Draw(t, "deadline"))*time.Second
	}
	return r
}

// TestTwin draws what happens to a queue and to its twin. Times are whole half-lives, so that the twin's sums of service
// are exact and equals are equal in both.
func TestTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		q := New[int](cfg)
		w := &twin{cfg: cfg, sharing: map[*Entry[int]]bool{}, deficit: make([]int64, len(cfg.Classes))}
		var all []*Entry[int]
		for range rapid.IntRange(20, 120).Draw(t, "operations") {
			switch op := rapid.IntRange(0, 19).Draw(t, "operation"); {
			case op < 9:
				r := drawRequest(t, len(cfg.Classes), w.now)
				out, fits := w.evict(&r)
				e, evicted, no := q.Push(w.now, r, len(all))
				if fits != (no == nil) {
					t.Fatalf("push of %+v: %v; the twin lets it in: %v", r, no, fits)
				}
				if no != nil {
					continue
				}
				for _, o := range out {
					w.remove(o)
				}
				if got, want := dropped(evicted), values(out); got != want {
					t.Fatalf("evicted %v, want %v", got, want)
				}
				all = append(all, e)
				if w.class(e).Fair {
					w.remember(r.Flow)
					w.sharing[e] = w.flow(r.Flow) == &w.others
				}
				w.waiting = append(w.waiting, e)
			case op < 11:
				if len(all) == 0 {
					continue
				}
				e := rapid.SampledFrom(all).Draw(t, "who")
				if was := slices.Contains(w.waiting, e); q.Remove(e) != was {
					t.Fatalf("removing %d: it was waiting: %v", e.Value, was)
				} else if was {
					w.remove(e)
				}
			case op < 12:
				if w.passed++; w.passed < 30 {
					w.pass(time.Second)
				}
			case op < 13 && rapid.IntRange(0, 3).Draw(t, "a long time") == 0:
				w.pass(5000 * time.Second) // all service falls to nothing, which the queue finds out when somebody is served
				w.passed = 0
				serve(t, q, w)
			case op < 14:
				serve(t, q, w)
			case op < 15:
				var want []*Entry[int]
				for _, e := range slices.Clone(w.waiting) {
					if w.overdue(e) {
						want = append(want, e)
						w.remove(e)
					}
				}
				got := q.Expire(w.now, nil)
				slices.SortFunc(got, func(a, b Drop[int]) int { return a.Entry.Value - b.Entry.Value })
				if dropped(got) != values(want) {
					t.Fatalf("at %v expired %v, want %v", w.now, dropped(got), values(want))
				}
			default:
				answers := rapid.SliceOfN(rapid.SampledFrom([]Placement{Placed, Placed, Blocked, Dropped}), 0, 12).Draw(t, "answers")
				offered := func() (place func(*Entry[int]) Placement, log *strings.Builder) {
					i := 0
					log = new(strings.Builder)
					return func(e *Entry[int]) Placement {
						answer := Blocked
						if i < len(answers) {
							answer = answers[i]
						}
						i++
						fmt.Fprintf(log, " %d:%d", e.Value, answer)
						return answer
					}, log
				}
				place, want := offered()
				w.dispatch(place)
				place, got := offered()
				q.Dispatch(w.now, place)
				if got.String() != want.String() {
					t.Fatalf("offered%v, want%v", got, want)
				}
			}
			compare(t, q, w)
		}
	})
}

func serve(t *rapid.T, q *Queue[int], w *twin) {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g"}).Draw(t, "flow")
	in, out := rapid.IntRange(0, 400).Draw(t, "in"), rapid.IntRange(0, 100).Draw(t, "out")
	q.Served(w.now, name, in, out)
	if slices.ContainsFunc(w.cfg.Classes, func(c ClassConfig) bool { return c.Fair }) {
		w.remember(name)
		w.flow(name).service += float64(in + 2*out)
	}
}

func compare(t *rapid.T, q *Queue[int], w *twin) {
	if q.Len() != len(w.waiting) || q.used != w.used(0, true) {
		t.Fatalf("%d wait, %+v; want %d, %+v", q.Len(), q.used, len(w.waiting), w.used(0, true))
	}
	for _, e := range w.waiting {
		if !e.Waiting() {
			t.Fatalf("%d has left", e.Value)
		}
	}
	for i, c := range q.classes {
		if c.used != w.used(Class(i), false) {
			t.Fatalf("class %d: %+v, want %+v", i, c.used, w.used(Class(i), false))
		}
		if q.rounds.deficit[i] != w.deficit[i] {
			t.Fatalf("class %d: deficit %d, want %d", i, q.rounds.deficit[i], w.deficit[i])
		}
		for _, key := range []uint64{0, 1, 1 << 63} {
			want := 0
			for _, e := range w.waiting {
				if e.Request.Class == Class(i) && e.Request.Lane == key {
					want++
				}
			}
			if got := q.Backlog(Class(i), key); got != want {
				t.Fatalf("class %d lane %d: backlog %d, want %d", i, key, got, want)
			}
		}
		ordered(t, c.ready)
		ordered(t, c.victims)
		for _, l := range c.lanes {
			ordered(t, l.lines)
			for _, waiting := range l.lines {
				ordered(t, waiting.entries)
			}
		}
	}
	ordered(t, q.expiry)
	ordered(t, q.flows.idle)
	if got := q.Attained(w.now); len(got) != len(w.flows) {
		t.Fatalf("%d flows are remembered, want %d", len(got), len(w.flows))
	}
	if got := q.flows.attained(&q.flows.others, w.now); got != w.others.service {
		t.Fatalf("the others attained %v, want %v", got, w.others.service)
	}
	for _, f := range w.flows {
		if got := q.Attained(w.now)[f.name]; got != f.service {
			t.Fatalf("flow %s attained %v, want %v", f.name, got, f.service)
		}
	}
}

// ordered checks a heap and the places it keeps.
func ordered[E node[E]](t *rapid.T, h heap[E]) {
	for i, e := range h {
		if *e.place() != i+1 {
			t.Fatalf("element %d of a heap believes to be at %d", i+1, *e.place())
		}
		if i > 0 && e.before(h[(i-1)/2]) {
			t.Fatalf("element %d of a heap is before its parent", i+1)
		}
	}
}

func dropped(all []Drop[int]) string {
	entries := make([]*Entry[int], len(all))
	for i, d := range all {
		entries[i] = d.Entry
	}
	return values(entries)
}

func values(all []*Entry[int]) string {
	var out strings.Builder
	for _, e := range all {
		fmt.Fprintf(&out, "%d ", e.Value)
	}
	return out.String()
}
