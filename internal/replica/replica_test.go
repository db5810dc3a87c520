package replica_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"attache/internal/block"
	"attache/internal/bubble"
	"attache/internal/replica"
	"attache/internal/replica/replicatest"
)

func TestReplicasKnowWhatOthersHaveUnderWay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rnd, b, c := rand.New(rand.NewPCG(1, 2)), newBus(), replicatest.Chains{}
		link := replica.LogLink{Log: b}
		desks := []*replicatest.Desk{replicatest.Start(t, link, "a"), replicatest.Start(t, link, "b"), replicatest.Start(t, link, "c")}
		work := func(n int) {
			for range n {
				desks[rnd.IntN(len(desks))].Work(rnd, &c)
				if rnd.IntN(10) == 0 {
					time.Sleep(time.Duration(rnd.IntN(10)) * time.Millisecond)
				}
			}
		}
		settle := func() { time.Sleep(5 * time.Second) }
		time.Sleep(time.Second)
		work(500)
		time.Sleep(10 * time.Millisecond) // a batch, no heartbeat
		replicatest.Agree(t, "after work", desks...)
		for _, d := range desks {
			if n := d.Figure(t, "attache_replica_unknown_chains_total"); n != 0 {
				t.Errorf("%s: %v chains are not known", d.Name, n)
			}
		}

		desks = append(desks, replicatest.Start(t, link, "d"))
		time.Sleep(time.Second)
		replicatest.Agree(t, "with one that has come", desks...)
		work(300)
		settle()
		replicatest.Agree(t, "after its work", desks...)

		b.set(func() { b.losing = true })
		work(300)
		b.set(func() { b.losing = false })
		work(10)
		settle()
		replicatest.Agree(t, "after records were lost", desks...)

		b.set(func() { b.broken = true })
		work(300)
		time.Sleep(replica.DefaultConfig().Lease + 2*time.Second)
		for _, d := range desks {
			if d.Down() == nil || len(d.Peers()) != 0 || d.Knows() != 0 {
				t.Errorf("%s: nobody is heard, and it still knows of %v (%v)", d.Name, d.Peers(), d.Down())
			}
		}
		b.set(func() { b.broken = false })
		settle()
		replicatest.Agree(t, "after the link was broken", desks...)

		b.set(func() { b.slow = 2 * time.Second })
		work(300)
		time.Sleep(20 * time.Second)
		b.set(func() { b.slow = 0 })
		settle()
		replicatest.Agree(t, "after it was slow", desks...)

		b.trim()
		b.set(func() { b.trimmed += 1000 })
		work(100)
		settle()
		replicatest.Agree(t, "after it forgot", desks...)

		for _, d := range desks {
			d.Stop()
		}
	})
}

func TestLeaving(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		link := replica.LogLink{Log: newBus()}
		a, b := replicatest.Start(t, link, "a"), replicatest.Start(t, link, "b")
		time.Sleep(time.Second)
		a.Book([]block.Hash{1, 2})
		time.Sleep(time.Second)
		replicatest.Agree(t, "before", a, b)
		if _, learnt := b.Told(); learnt != "a has learnt" {
			t.Errorf("b was told %q of what a has learnt", learnt)
		}
		a.Stop()
		synctest.Wait()
		if kept, gone := b.Kept("a"); !gone || kept != replica.DefaultConfig().Handover {
			t.Errorf("a has left; its requests count for %v (%v)", kept, gone)
		}
		again := replicatest.Start(t, link, "a")
		time.Sleep(2 * time.Second)
		again.Book([]block.Hash{3})
		time.Sleep(time.Second)
		replicatest.Agree(t, "when it is there again", again, b)
		again.Stop()
		b.Stop()
	})
}

func TestWaitingElsewhere(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		link := replica.LogLink{Log: newBus()}
		desks := []*replicatest.Desk{replicatest.Start(t, link, "a"), replicatest.Start(t, link, "b"), replicatest.Start(t, link, "c")}
		for i, d := range desks {
			d.SetWaiting(replica.Waiting{Requests: i + 1, PromptTokens: int64(10 * (i + 1)), BodyBytes: int64(100 * (i + 1))})
		}
		time.Sleep(3 * time.Second)
		for i, want := range []replica.Waiting{{5, 50, 500}, {4, 40, 400}, {3, 30, 300}} {
			if got, _ := desks[i].Told(); got != want {
				t.Errorf("%s: %+v waits elsewhere, want %+v", desks[i].Name, got, want)
			}
		}
		desks[2].Stop()
		synctest.Wait()
		if got, _ := desks[0].Told(); got != (replica.Waiting{Requests: 2, PromptTokens: 20, BodyBytes: 200}) {
			t.Errorf("with c gone %+v waits elsewhere", got)
		}
		desks[0].Stop()
		desks[1].Stop()
	})
}

func TestTwoOfOneName(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		link := replica.LogLink{Log: newBus()}
		a := replicatest.Start(t, link, "a")
		time.Sleep(time.Second)
		twin := replicatest.Start(t, link, "a")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if !strings.Contains(a.Log(), "another replica has this one's name") {
			t.Error("a process of the same name was not noticed")
		}
		a.Stop()
		twin.Stop()
	})
}

// TestMuchAtOnce: what is told within one batch may be more than one record may hold.
func TestMuchAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b, rnd := newBus(), rand.New(rand.NewPCG(7, 8))
		a, other := replicatest.Start(t, replica.LogLink{Log: b}, "a"), replicatest.Start(t, replica.LogLink{Log: b}, "b")
		time.Sleep(time.Second)
		for range 60 {
			chain := make([]block.Hash, 5000)
			for i := range chain {
				chain[i] = rnd.Uint64()
			}
			a.Book(chain)
		}
		time.Sleep(time.Second)
		replicatest.Agree(t, "after much at once", a, other)
		third := replicatest.Start(t, replica.LogLink{Log: b}, "c")
		time.Sleep(time.Second)
		replicatest.Agree(t, "in a snapshot", a, other, third)
		for _, r := range b.records {
			if len(r) > 1<<20 {
				t.Errorf("a record of %d bytes", len(r))
			}
		}
		for _, d := range []*replicatest.Desk{a, other, third} {
			d.Stop()
		}
	})
}
