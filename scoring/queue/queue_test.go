package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestNames(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Classes = []ClassConfig{DefaultClass(), {Name: "batch", Policy: "wspt", Quantum: 1, DefaultSLO: time.Second}}
	q := New[int](cfg)
	if c := q.ClassOf("batch", 7); q.Name(c) != "batch" {
		t.Errorf("the class of batch is %s", q.Name(c))
	}
	if c := q.ClassOf("", 7); q.Name(c) != "default" {
		t.Errorf("without a name and buckets the class is %s", q.Name(c))
	}
	q.Push(0, Request{Class: 1, PromptTokens: 5, BodyBytes: 70}, 1)
	q.Push(0, Request{Class: 1, PromptTokens: 6, BodyBytes: 80}, 2)
	if requests, tokens, bytes := q.Depth(1); requests != 2 || tokens != 11 || bytes != 150 {
		t.Errorf("%d requests, %d tokens, %d bytes wait; want 2, 11, 150", requests, tokens, bytes)
	}
}

func TestNextExpiry(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Limits.MaxWait = 0
	q := New[int](cfg)
	if at, ok := q.NextExpiry(); ok {
		t.Errorf("an empty queue expires at %v", at)
	}
	q.Push(time.Second, Request{}, 0)
	if at, ok := q.NextExpiry(); ok {
		t.Errorf("without limits something expires at %v", at)
	}
	late, _, _ := q.Push(time.Second, Request{Deadline: 9 * time.Second}, 1)
	soon, _, _ := q.Push(time.Second, Request{Deadline: 5 * time.Second}, 2)
	for _, e := range []*Entry[int]{soon, late} {
		if at, ok := q.NextExpiry(); !ok || at != e.Request.Deadline {
			t.Errorf("expires at %v, %v; want %v", at, ok, e.Request.Deadline)
		}
		q.Remove(e)
	}
}

// TestAPanicLeavesTheQueueWhole: what was blocked in the round of a panic is asked again in the next.
func TestAPanicLeavesTheQueueWhole(t *testing.T) {
	q := New[int](DefaultConfig())
	q.Push(0, Request{Lane: 1}, 1)
	q.Push(0, Request{Lane: 2}, 2)
	func() {
		defer func() { _ = recover() }()
		q.Dispatch(0, func(e *Entry[int]) Placement {
			if e.Value == 2 {
				panic("no")
			}
			return Blocked
		})
	}()
	if placed := q.Dispatch(0, func(*Entry[int]) Placement { return Placed }); placed != 2 || q.Len() != 0 {
		t.Errorf("%d were placed, %d are left", placed, q.Len())
	}
}

// TestServiceStaysInRange: over 3000 half-lives the unit of service changes, and the order stays right.
func TestServiceStaysInRange(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Fairness.HalfLife = time.Second
	c := DefaultClass()
	c.Fair = true
	cfg.Classes = []ClassConfig{c}
	q := New[string](cfg)
	for now := time.Duration(0); now < 3000*time.Second; now += 7 * time.Second {
		for i, name := range []string{"c", "a", "b"} {
			q.Push(now, Request{Flow: name, Lane: uint64(i % 2)}, name)
		}
		q.Served(now, "a", 10, 0)
		q.Served(now, "b", 0, 10)
		q.Served(now, "c", 30, 0)
		var order string
		q.Dispatch(now+5*time.Second, func(e *Entry[string]) Placement {
			order += e.Value + " "
			return Placed
		})
		if order != "a b c " {
			t.Fatalf("after %v: %s", now, order)
		}
	}
	if got := q.Attained(3000 * time.Second)["b"]; !(got > 0 && got < 20) {
		t.Errorf("b attained %g tokens", got)
	}
}

// TestForgottenService: flows whose service has fallen to nothing take turns, whoever of them had attained more; in one
// lane, and in lanes of their own.
func TestForgottenService(t *testing.T) {
	for lanes := range uint64(2) {
		cfg := DefaultConfig()
		cfg.Limits.MaxWait = 0
		c := DefaultClass()
		c.Fair = true
		cfg.Classes = []ClassConfig{c}
		q := New[int](cfg)
		var order []int
		place := func(e *Entry[int]) Placement {
			order = append(order, e.Value)
			return Placed
		}
		want := []int{7, 6, 5, 4, 3, 2, 1, 0}
		for range 2 {
			for _, i := range want {
				q.Push(0, Request{Lane: uint64(i) * lanes, Flow: fmt.Sprint(i)}, i)
			}
			if len(order) == 0 {
				q.Dispatch(0, place)
			}
		}
		for i := range want {
			q.Served(0, fmt.Sprint(i), 10+i, 0)
		}
		q.Served(100*time.Hour, "somebody", 1, 0)
		q.Dispatch(100*time.Hour, place)
		if want := slices.Concat(want, want); !slices.Equal(order, want) {
			t.Errorf("served %v, want %v", order, want)
		}
	}
}

// TestRetryAfter: the rate counts the seconds of backlog only, is right from the start, and forgets.
func TestRetryAfter(t *testing.T) {
	var r rate
	want := func(requests int, want time.Duration) {
		t.Helper()
		if got := r.retryAfter(requests); got != want {
			t.Errorf("at %v: %d requests are gone in %v, want %v", r.at, requests, got, want)
		}
	}
	want(1, time.Minute)
	now := time.Duration(0)
	serve := func(n int, gap time.Duration) {
		for range n {
			now += gap
			r.serve(now)
		}
	}
	serve(1, time.Second)
	want(5, 5*time.Second)
	serve(20, time.Second)
	want(5, 5*time.Second)
	want(1000, time.Minute)
	want(0, time.Second)
	now += time.Hour
	r.advance(now, false)
	serve(1, time.Second)
	want(5, 5*time.Second)
	serve(2000, 100*time.Millisecond)
	want(50, 5*time.Second)
	now += time.Hour
	r.advance(now, true)
	want(1, time.Minute)

	r = rate{}
	r.serve(0)
	want(1000, time.Second) // served at once: no time has passed
}

// crowd is a queue with n requests in it, of 1000 flows, and a few in lanes of their own.
func crowd(n int, policy string, fair bool) (*Queue[int], []*Entry[int]) {
	cfg := DefaultConfig()
	cfg.Fairness.Flows = 2000
	cfg.Evict = true
	for _, name := range []string{"a", "b"} {
		c := DefaultClass()
		c.Name, c.Policy, c.Fair = name, policy, fair
		cfg.Classes = append(cfg.Classes, c)
	}
	q := New[int](cfg)
	flows := make([]string, 1000)
	for i := range flows {
		flows[i] = fmt.Sprint("tenant ", i)
	}
	entries := make([]*Entry[int], n)
	for i := range entries {
		entries[i], _, _ = q.Push(time.Duration(i), crowdRequest(i, flows[i%len(flows)]), i)
	}
	return q, entries
}

func crowdRequest(i int, flow string) Request {
	r := Request{Class: Class(i % 2), UncachedTokens: i * 7919 % 10_007, PromptTokens: 10_007, Flow: flow}
	if i%16 == 0 {
		r.Lane = 1 + uint64(i/16%8)
	}
	return r
}

func TestDispatchAllocatesNothing(t *testing.T) {
	for _, fair := range []bool{false, true} {
		q, entries := crowd(10_000, "wspt", fair)
		n := 0
		place := func(*Entry[int]) Placement {
			if n++; n%4 == 0 {
				return Blocked
			}
			return Placed
		}
		q.Dispatch(time.Second, place) // the list of blocked lanes grows once
		allocated := testing.AllocsPerRun(100, func() {
			q.Dispatch(time.Second, place)
			for !entries[0].Waiting() {
				entries = entries[1:]
			}
			q.Remove(entries[0])
		})
		if allocated != 0 {
			t.Errorf("fair %v: dispatching and removing allocate %v times", fair, allocated)
		}
	}
}

func TestPushAllocatesItsEntry(t *testing.T) {
	q, _ := crowd(10_000, "wspt", true)
	i := 0
	allocated := testing.AllocsPerRun(1000, func() {
		e, _, _ := q.Push(time.Second, crowdRequest(2*i+1, "tenant 1"), i)
		q.Remove(e)
		i++
	})
	if allocated > 1 {
		t.Errorf("pushing allocates %v times", allocated)
	}
}

// BenchmarkQueue pushes a request and dispatches another while n wait in 10 lanes, all of which are asked.
func BenchmarkQueue(b *testing.B) {
	for _, fair := range []bool{false, true} {
		for _, n := range []int{1000, 100_000} {
			b.Run(fmt.Sprintf("fair=%v/%d", fair, n), func(b *testing.B) {
				q, _ := crowd(n, "wspt", fair)
				flows := make([]string, 1000)
				for i := range flows {
					flows[i] = fmt.Sprint("tenant ", i)
				}
				free := 0
				place := func(*Entry[int]) Placement {
					if free == 0 {
						return Blocked
					}
					free--
					return Placed
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					now := time.Second + time.Duration(i)
					q.Push(now, crowdRequest(i, flows[i%len(flows)]), i)
					free = 1
					q.Dispatch(now, place)
					if fair {
						q.Served(now, flows[i%len(flows)], 100, 10)
					}
				}
			})
		}
	}
}

// BenchmarkRemove takes one of 100,000 out and lets another in.
func BenchmarkRemove(b *testing.B) {
	q, entries := crowd(100_000, "wspt", false)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		at := i * 7919 % len(entries)
		q.Remove(entries[at])
		entries[at], _, _ = q.Push(time.Second, crowdRequest(i, ""), i)
	}
}

// BenchmarkSaturated asks in vain: a question for each lane with a backlog.
func BenchmarkSaturated(b *testing.B) {
	q, _ := crowd(100_000, "wspt", false)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		q.Dispatch(time.Second, func(*Entry[int]) Placement { return Blocked })
	}
}
