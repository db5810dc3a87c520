package queue

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestReconfigure draws two configurations and who waits when the first gives way to the second: all go on to wait, as long as they were
// told, and are served in the order in which a queue that had the second one from the beginning serves them.
func TestReconfigure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, second := drawConfig(t), drawConfig(t)
		first.Limits.BodyBytes = 0
		q := New[int](first)
		unlimited := second
		unlimited.Limits, unlimited.Classes = Limits{}, slices.Clone(second.Classes)
		for i := range unlimited.Classes {
			unlimited.Classes[i].Limits = Limits{}
		}
		twin := New[int](unlimited)
		expires := map[int]time.Duration{}
		now := time.Duration(0)
		for i := range rapid.IntRange(0, 40).Draw(t, "requests") {
			now += time.Duration(rapid.IntRange(0, 500).Draw(t, "pause")) * time.Millisecond
			r := drawRequest(t, len(first.Classes), now)
			e, evicted, no := q.Push(now, r, i)
			for _, d := range evicted {
				delete(expires, d.Entry.Value)
			}
			if no == nil {
				expires[i] = e.expires
			}
		}
		byArrival := waitingIn(q)
		for _, e := range byArrival {
			r := e.Request
			r.Class = twin.ClassOf(first.Classes[r.Class].Name, r.UncachedTokens)
			if _, _, no := twin.Push(e.Arrival, r, e.Value); no != nil {
				t.Fatalf("the twin has no limits, and says %v", no)
			}
		}
		q.Reconfigure(now, second)
		if q.Len() != len(expires) || len(q.flows.byName) > second.Fairness.Flows {
			t.Fatalf("%d wait, of %d; %d flows are remembered, at most %d", q.Len(), len(expires), len(q.flows.byName), second.Fairness.Flows)
		}
		for _, e := range byArrival {
			if at, _ := e.Expires(); !e.Waiting() || at != expires[e.Value] {
				t.Fatalf("%d waits (%v) until %v, was told %v", e.Value, e.Waiting(), at, expires[e.Value])
			}
		}
		if got, want := order(q, now), order(twin, now); !slices.Equal(got, want) {
			t.Fatalf("served %v, want %v", got, want)
		}
		for c := range q.classes {
			if n, tokens, bytes := q.Depth(Class(c)); n != 0 || tokens != 0 || bytes != 0 || len(q.expiry) != 0 {
				t.Fatalf("class %d keeps %d, %d, %d, and %d that may expire", c, n, tokens, bytes, len(q.expiry))
			}
		}
	})
}

// waitingIn are those that wait, in the order of arrival.
func waitingIn(q *Queue[int]) (all []*Entry[int]) {
	q.Each(func(e *Entry[int]) { all = append(all, e) })
	slices.SortFunc(all, func(a, b *Entry[int]) int { return int(a.number) - int(b.number) })
	return all
}

// order is in which all are served.
func order(q *Queue[int], now time.Duration) (values []int) {
	q.Dispatch(now, func(e *Entry[int]) Placement {
		values = append(values, e.Value)
		return Placed
	})
	return values
}

// TestReconfigureKeepsWhatFlowsAttained: who was served most goes last under the new configuration, too, and fades at its pace.
func TestReconfigureKeepsWhatFlowsAttained(t *testing.T) {
	cfg := DefaultConfig()
	class := DefaultClass()
	class.Fair = true
	cfg.Classes = []ClassConfig{class}
	q := New[int](cfg)
	q.Served(0, "much", 4000, 0)
	q.Served(0, "little", 1000, 0)
	next := cfg
	next.Fairness.HalfLife = 2 * cfg.Fairness.HalfLife
	q.Reconfigure(cfg.Fairness.HalfLife, next)
	if got := q.Attained(3 * cfg.Fairness.HalfLife); got["much"] != 1000 || got["little"] != 250 {
		t.Errorf("after a half-life of each configuration: %v, want a quarter", got)
	}
	next.Fairness.Flows = 1
	q.Reconfigure(3*cfg.Fairness.HalfLife, next)
	if got := q.Attained(3 * cfg.Fairness.HalfLife); len(got) != 1 || got["much"] != 1000 {
		t.Errorf("with room for one: %v", got)
	}
}
