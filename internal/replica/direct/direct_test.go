package direct

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"attache/internal/bubble"
	"attache/internal/replica"
	"attache/internal/replica/replicatest"
)

func desks(offices []*office) (all []*replicatest.Desk) {
	for _, o := range offices {
		all = append(all, o.desk)
	}
	return all
}

func TestReplicasKnowWhatOthersHaveUnderWay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rnd, chains, w := rand.New(rand.NewPCG(1, 2)), replicatest.Chains{}, newNetwork()
		addresses := []string{"10.0.0.1:9004", "10.0.0.2:9004", "10.0.0.3:9004", "10.0.0.4:9004"}
		cfg := config(addresses...) // every replica has the same list
		var all []*office
		open := func(i int) *office { return w.open(t, fmt.Sprintf("replica-%d", i), addresses[i], cfg) }
		for i := range addresses {
			all = append(all, open(i))
		}
		work := func(n int) {
			for range n {
				all[rnd.IntN(len(all))].desk.Work(rnd, &chains)
				if rnd.IntN(10) == 0 {
					time.Sleep(time.Duration(rnd.IntN(10)) * time.Millisecond)
				}
			}
		}
		settle := func() { time.Sleep(5 * time.Second) }
		settle()
		work(500)
		time.Sleep(10 * time.Millisecond) // a batch, no heartbeat
		replicatest.Agree(t, "after work", desks(all)...)
		for _, d := range desks(all) {
			if n := d.Figure(t, "attache_replica_unknown_chains_total"); n != 0 {
				t.Errorf("%s: %v chains are not known", d.Name, n)
			}
			if n := d.Figure(t, "attache_replica_gaps_total"); n != 0 {
				t.Errorf("%s: %v gaps", d.Name, n)
			}
		}

		all[3].kill()
		all = all[:3]
		work(100)
		time.Sleep(replica.DefaultConfig().Lease + 2*time.Second)
		replicatest.Agree(t, "when one is gone", desks(all)...)
		all = append(all, open(3))
		work(100)
		settle()
		replicatest.Agree(t, "when it is there again", desks(all)...)

		all[3].close()
		time.Sleep(10 * time.Millisecond)
		for _, d := range desks(all[:3]) {
			if kept, gone := d.Kept("replica-3"); !gone || kept != replica.DefaultConfig().Handover {
				t.Errorf("%s: replica-3 has left; its requests count for %v (%v)", d.Name, kept, gone)
			}
		}
		for _, o := range all[:3] {
			if o.desk.Down() != nil {
				t.Errorf("%s: %v", o.desk.Name, o.desk.Down())
			}
			o.close()
		}
	})
}

// TestFirstWords: whenever the second of two replicas comes, each knows of the other as soon as both directions are there.
func TestFirstWords(t *testing.T) {
	for _, c := range []struct{ after, within time.Duration }{
		{10 * time.Millisecond, firstPause}, // the first one's first try has just failed
		{time.Minute, longestPause + 10*time.Millisecond},
	} {
		bubble.Test(t, func(t *testing.T) {
			w, cfg := newNetwork(), config("10.0.0.1:9004", "10.0.0.2:9004")
			a := w.open(t, "a", "10.0.0.1:9004", cfg)
			a.desk.Book(nil)
			time.Sleep(c.after)
			b := w.open(t, "b", "10.0.0.2:9004", cfg)
			b.desk.Book(nil)
			time.Sleep(c.within + 200*time.Millisecond) // more than the least time between two snapshots, less than until it is asked again
			replicatest.Agree(t, "a little later", a.desk, b.desk)
			a.close()
			b.close()
		})
	}
}

func TestAlone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newNetwork()
		for _, cfg := range []Config{config(), config("10.0.0.1:9004"), config("nobody:9004")} {
			a, heard := w.start(t, "10.0.0.1:9004", cfg), &ear{}
			stop := listen(a.Link("llama"), heard)
			time.Sleep(time.Minute)
			if got := heard.told(); got != "joined 1, lost 0: " {
				t.Errorf("with peers %v: %s (%s)", cfg.Peers, got, heard.lastLoss())
			}
			stop()
			a.stop()
		}
	})
}

func TestLost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w, heard := newNetwork(), &ear{}
		cfg := config("10.0.0.1:9004")
		cfg.DNS = "gateways"
		w.set("gateways", errors.New("the server is away"))
		a := w.start(t, "10.0.0.1:9004", cfg)
		stop := listen(a.Link("llama"), heard)
		expect := func(when, told, lost string) {
			t.Helper()
			time.Sleep(20 * time.Second)
			if got := heard.told(); got != told || !strings.Contains(heard.lastLoss(), lost) {
				t.Errorf("%s: %s (%s), want %s (%s)", when, got, heard.lastLoss(), told, lost)
			}
		}
		expect("without DNS", "joined 1, lost 1: ", "gateways cannot be looked up: the server is away")
		w.set("gateways", nil, "10.0.0.1", "10.0.0.2")
		expect("with one that is not there", "joined 1, lost 2: ", "10.0.0.2:9004: connection error")
		w.set("gateways", nil, "10.0.0.1")
		expect("when it is not listed any more", "joined 2, lost 2: ", "")
		w.set("gateways", nil, "10.0.0.1", "10.0.0.2")
		expect("when it is again", "joined 2, lost 3: ", "10.0.0.2:9004: connection error")
		b := w.start(t, "10.0.0.2:9004", config())
		expect("when it does not have the pool", "joined 3, lost 3: ", "10.0.0.2")
		_ = b.Link("llama").Publish(t.Context(), []byte("nobody hears this"))
		expect("when it has it", "joined 4, lost 3: ", "10.0.0.2")
		if err := b.Link("llama").Publish(t.Context(), []byte("one"), []byte("two"), nil, []byte("three")); err != nil {
			t.Error(err)
		}
		expect("when it has published", "joined 4, lost 3: one two  three", "10.0.0.2")
		w.set("gateways", errors.New("the server is away"))
		expect("without DNS, but with what was found", "joined 4, lost 3: one two  three", "10.0.0.2")
		w.set("gateways", nil, "10.0.0.1")
		_ = b.Link("llama").Publish(t.Context(), []byte("four"))
		expect("not listed, but still connected", "joined 4, lost 3: one two  three four", "10.0.0.2")
		before := w.dials("10.0.0.2:9004")
		_ = b.Link("llama").Publish(t.Context(), []byte("last"))
		b.stop()
		expect("gone", "joined 4, lost 3: one two  three four last", "10.0.0.2")
		if n := w.dials("10.0.0.2:9004") - before; n > 0 {
			t.Errorf("what is not listed any more was called %d times", n)
		}
		if err := b.Link("llama").Publish(t.Context(), []byte("x")); err == nil {
			t.Error("a node that has stopped publishes")
		}
		stop()
		a.stop()
	})
}

// TestTwoAddresses: whoever is found under two addresses is followed under one.
func TestTwoAddresses(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w, heard := newNetwork(), &ear{}
		b := w.start(t, "10.0.0.2:9004", config())
		w.mu.Lock()
		w.listeners["10.9.9.9:9004"] = w.listeners["10.0.0.2:9004"]
		w.mu.Unlock()
		a := w.start(t, "10.0.0.1:9004", config("10.0.0.1:9004", "10.0.0.2:9004", "10.9.9.9:9004"))
		link := b.Link("llama")
		stop := listen(a.Link("llama"), heard)
		time.Sleep(time.Minute)
		_ = link.Publish(t.Context(), []byte("one"))
		time.Sleep(time.Second)
		if got := heard.told(); got != "joined 2, lost 0: one" {
			t.Error(got)
		}
		if got := a.Link("llama").following.Load().counts(); got != [states]int{following: 1, itself: 1, twice: 1} {
			t.Errorf("addresses by state: %v", got)
		}
		stop()
		a.stop()
		b.stop()
	})
}

// TestSlow: a subscriber that takes nothing is cut off, the others get everything, and it comes again when it can.
func TestSlow(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w, slow, quick := newNetwork(), &ear{gate: make(chan struct{})}, &ear{}
		cfg := config("10.0.0.1:9004")
		cfg.Buffer = 1 << 20
		a := w.start(t, "10.0.0.1:9004", cfg)
		b, c := w.start(t, "10.0.0.2:9004", cfg), w.start(t, "10.0.0.3:9004", cfg)
		link := a.Link("llama")
		stopSlow, stopQuick := listen(b.Link("llama"), slow), listen(c.Link("llama"), quick)
		time.Sleep(time.Second)
		record := []byte(strings.Repeat("x", 100_000))
		const sent = 100
		for range sent {
			if err := link.Publish(t.Context(), record); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := testutil.ToFloat64(a.metrics.of("llama").cut); n != 1 {
			t.Errorf("%v subscribers were cut off, want 1", n)
		}
		if n := link.hub.count(); n != 1 {
			t.Errorf("%d subscribers are left, want 1", n)
		}
		if got, _ := quick.heard(); len(got) != sent {
			t.Errorf("the quick one got %d of %d records", len(got), sent)
		}
		close(slow.gate)
		time.Sleep(longestPause)
		before, _ := slow.heard()
		if len(before) >= sent {
			t.Errorf("the slow one got all %d records", len(before))
		}
		_ = link.Publish(t.Context(), []byte("again"))
		time.Sleep(time.Second)
		got, joined := slow.heard()
		if got = got[len(before):]; len(got) != 1 || got[0] != "again" || joined != 3 {
			t.Errorf("the slow one has joined %d times and got %d more", joined, len(got))
		}
		if !strings.Contains(a.log.String(), "too slow") {
			t.Errorf("log: %s", a.log)
		}
		stopSlow()
		stopQuick()
		a.stop()
		b.stop()
		c.stop()
	})
}

// TestMuchAtOnce: what is published in one go arrives, however much it is.
func TestMuchAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w, heard := newNetwork(), &ear{}
		cfg := config("10.0.0.1:9004")
		cfg.Buffer = 1 << 20
		a, b := w.start(t, "10.0.0.1:9004", cfg), w.start(t, "10.0.0.2:9004", cfg)
		link := a.Link("llama")
		stop := listen(b.Link("llama"), heard)
		time.Sleep(time.Second)
		var records [][]byte
		for range 200 {
			records = append(records, make([]byte, 128<<10))
		}
		records = append(records, make([]byte, maxRecord))
		if err := link.Publish(t.Context(), records...); err != nil {
			t.Fatal(err)
		}
		_ = link.Publish(t.Context(), []byte("a little more"))
		time.Sleep(time.Second)
		if got, _ := heard.heard(); len(got) != len(records)+1 {
			t.Errorf("%d records arrived of %d", len(got), len(records)+1)
		}
		if err := link.Publish(t.Context(), nil, make([]byte, maxRecord+1)); err == nil || !strings.Contains(err.Error(), "record 2 of 2 has 1048577 bytes") {
			t.Errorf("a record that is too large: %v", err)
		}
		stop()
		a.stop()
		b.stop()
	})
}

// TestLastWords: what was published before a node stops reaches those who follow it.
func TestLastWords(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w, heard := newNetwork(), &ear{}
		a, b := w.start(t, "10.0.0.1:9004", config()), w.start(t, "10.0.0.2:9004", config("10.0.0.1:9004"))
		link := a.Link("llama")
		stop := listen(b.Link("llama"), heard)
		time.Sleep(time.Second)
		for range 50 {
			_ = link.Publish(t.Context(), make([]byte, 100_000))
		}
		begun := time.Now()
		a.stop()
		if time.Since(begun) >= lastWords { // of virtual time
			t.Error("a node waits although everything was told")
		}
		synctest.Wait()
		if got, _ := heard.heard(); len(got) != 50 {
			t.Errorf("%d of 50 last records arrived", len(got))
		}
		stop()
		b.stop()
	})
}
