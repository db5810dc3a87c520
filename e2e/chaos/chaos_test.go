// Package chaos holds the index of events against everything that can go wrong between engines and their follower.
//
// In one process, over sockets of the loopback, simulated engines of every dialect answer requests with small caches, so
// that blocks come and go all the time, and ledgers follow them through proxies. A seeded schedule lets events be lost,
// repeated and reordered, replays fail, engines restart, change their ranks or fall silent, connections break, stall and
// trickle, and workers and the gateway itself come and go. Meanwhile the index is compared, whenever that can be done, with what the engines
// hold: a feed that says live must never credit a block that is not there, and one whose history is complete must credit
// exactly what is. In the end all is well again, and every feed must find out.
//
// ATTACHE_CHAOS=10m runs for so long, ATTACHE_CHAOS_SEED=n repeats the schedule of a run.
package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"attache/indexer/events"
	"attache/internal/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestChaos(t *testing.T) {
	length, seed := settings(t)
	t.Logf("%s of chaos; ATTACHE_CHAOS_SEED=%d repeats it", length, seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t, rng)
	defer w.close()
	ctx, failed := context.WithCancelCause(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer failed(nil)
	w.failed = failed
	running.Go(func() { w.watch(ctx) })

	wild, calm := context.WithTimeout(ctx, length)
	var talking sync.WaitGroup
	for _, n := range w.nodes {
		mine := rand.New(rand.NewPCG(seed, uint64(n.number)+1))
		talking.Go(func() { w.talk(wild, n, mine) })
	}
	w.wreak(wild, rng, 80*time.Millisecond)
	calm()
	talking.Wait()
	if ctx.Err() == nil {
		w.settle(ctx)
	}
	for _, n := range w.nodes {
		w.collect(n)
	}
	t.Logf("what happened:\n%s", w.tally)
	if !testing.Short() && !t.Failed() {
		w.happened(length >= 2*time.Minute)
	}
}

// settings are how long to run, and the seed.
func settings(t *testing.T) (length time.Duration, seed uint64) {
	t.Helper()
	length, seed = 30*time.Second, rand.Uint64()
	if testing.Short() {
		length = 3 * time.Second
	}
	var err error
	if text := os.Getenv("ATTACHE_CHAOS"); text != "" {
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("ATTACHE_CHAOS: %v", err)
		}
	}
	if text := os.Getenv("ATTACHE_CHAOS_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("ATTACHE_CHAOS_SEED: %v", err)
		}
	}
	return length, seed
}

// settle ends all faults and waits until every feed has found out what its engine holds.
func (w *world) settle(ctx context.Context) {
	for _, n := range w.nodes {
		n.spoil(sim.EventFault{Mode: sim.FaultNone})
		n.mu.Lock()
		stained := n.stained || n.ring > 0
		n.mu.Unlock()
		if stained {
			n.restart()
		}
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}, Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	rng := rand.New(rand.NewPCG(0, 0))
	const limit, nudge = 45 * time.Second, 1500 * time.Millisecond
	begin := time.Now()
	var wrong []string
	for time.Since(begin) < limit && ctx.Err() == nil {
		for _, n := range w.nodes {
			for rank := range n.slots {
				w.request(ctx, n, client, w.corpus[rng.IntN(len(w.corpus))], 1+rng.IntN(longestAnswer), rank)
			}
		}
		for nudged := time.Now(); time.Since(nudged) < nudge && ctx.Err() == nil; pause(ctx, 50*time.Millisecond) {
			if wrong = w.unsettled(); len(wrong) == 0 {
				w.t.Logf("settled after %s", time.Since(begin).Round(time.Millisecond))
				return
			}
		}
	}
	if ctx.Err() == nil {
		w.t.Errorf("after %s without faults:\n%s", limit, fmt.Sprint(wrong))
	}
}

// unsettled says which ranks are not known as they should be.
func (w *world) unsettled() (wrong []string) {
	for _, n := range w.nodes {
		e, _ := n.running()
		feeds := n.feeds()
		for rank := range n.slots {
			c, s := e.Contents(rank), feeds[rank]
			if c.Blocks[0] == nil && !n.pulled() {
				continue // the engine has fewer ranks at the moment
			}
			compared, fault := w.judge(n, rank)
			switch {
			case fault != "":
				w.fail(n, rank, fault)
			case !compared:
			case !current(s, c, n) || c.Pending > 0:
			case n.replay && s.Mode != events.Exact:
			case n.pulled() && s.Mode == events.Approximate:
			default:
				if u := w.unknown(n, &c); u > 0 {
					w.t.Errorf("%s, rank %d holds %d blocks of no prompt", n.name, rank, u)
				}
				continue
			}
			wrong = append(wrong, fmt.Sprintf("%s, rank %d: %s (%s), %s, complete %v, at batch %d (%v) of %d, pending %d\n%s\n", n.name, rank, s.State, s.Reason, s.Mode,
				s.Complete, s.Sequence, s.Known, c.Sequence, c.Pending, w.journal.of(n.name, 30)))
		}
	}
	return wrong
}

// happened fails the test for what did not happen: then it has tested less than it says.
func (w *world) happened(long bool) {
	needed := []string{"requests", "judged", "judged exact", "feed: gaps", "feed: cleared", "feed: restarts", "feed: replays"}
	if long { // what chance need not bring in half a minute
		needed = append(needed, "seen: silent", "seen: refused", "seen: the index was read from a snapshot", "feed: repeated",
			"feed: closed", "feed: failed replays", "feed: missed", "feed: ignored")
	}
	for _, f := range faults {
		needed = append(needed, "fault: "+f.name)
	}
	for _, name := range needed {
		if w.tally.of(name) == 0 {
			w.t.Errorf("%q never happened", name)
		}
	}
}
