package events

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"attache/indexer/events/wire"
	"attache/indexer/events/zmtp"
	"attache/indexer/runs"
	"attache/internal/block"
	"attache/internal/slot"
	"attache/internal/worker"
)

// publisher is an engine as far as its events go: it stores and removes blocks of four prompts, numbers its batches, and keeps
// some of them for replays.
type publisher struct {
	block   int // tokens of the gateway's blocks
	process int
	ring    int // batches kept; 0: all
	batches []published
	tree    map[uint64]bool // engine hashes of blocks that are held
}

// published is a batch, and what the engine holds after it, as chains of ours.
type published struct {
	payload []byte
	holds   []block.Hash
}

const (
	pageTokens = 4
	prompts    = 4
	depth      = 6
)

// tokensOf are the tokens of one block of a prompt; prompts share their first two blocks in pairs.
func tokensOf(prompt, at int) []uint32 {
	if at < 2 {
		prompt /= 2
	}
	return []uint32{7, uint32(at), 8, uint32(prompt)} // pages of prompts begin alike
}

// chainOf is a whole prompt in blocks of the gateway's.
func chainOf(prompt, size int) []block.Hash {
	var ids []uint32
	for at := range depth {
		ids = append(ids, tokensOf(prompt, at)...)
	}
	return block.AppendBlocks(nil, ids, size, block.Plain)
}

// engineHash is the engine's name of a block: another one in every process.
func (p *publisher) engineHash(prompt, at int) uint64 {
	if at < 2 {
		prompt /= 2
	}
	return uint64(p.process)<<32 | uint64(prompt)<<8 | uint64(at+1)
}

// store announces the blocks of a prompt that are not held, up to some depth. Their parents are held.
func (p *publisher) store(prompt, blocks int) wire.DraftEvent {
	e := wire.DraftEvent{Kind: wire.Stored, BlockTokens: pageTokens, Medium: "GPU"}
	for at := range blocks {
		h := p.engineHash(prompt, at)
		if p.tree[h] {
			e.Parent, e.HasParent = h, true
			if len(e.Hashes) > 0 {
				panic("a child without its parent")
			}
			continue
		}
		p.tree[h] = true
		e.Hashes = append(e.Hashes, h)
		e.Tokens = append(e.Tokens, tokensOf(prompt, at)...)
	}
	return e
}

// evict takes the last blocks of a prompt back, those that no other prompt goes on from.
func (p *publisher) evict(prompt, blocks int) wire.DraftEvent {
	e := wire.DraftEvent{Kind: wire.Removed, Medium: "GPU"}
	for at := depth - 1; at >= 0 && blocks > 0; at-- {
		h := p.engineHash(prompt, at)
		if !p.tree[h] || p.goesOn(prompt, at) {
			continue
		}
		delete(p.tree, h)
		e.Hashes = append(e.Hashes, h)
		blocks--
	}
	return e
}

func (p *publisher) goesOn(prompt, at int) bool {
	for other := range prompts {
		if at+1 < depth && p.engineHash(other, at) == p.engineHash(prompt, at) && p.tree[p.engineHash(other, at+1)] {
			return true
		}
	}
	return false
}

func (p *publisher) publish(events ...wire.DraftEvent) {
	var holds []block.Hash
	for prompt := range prompts {
		for i, h := range chainOf(prompt, p.block) {
			whole := true
			for at := i * p.block / pageTokens; at*pageTokens < (i+1)*p.block; at++ {
				whole = whole && p.tree[p.engineHash(prompt, at)]
			}
			if whole && !slices.Contains(holds, h) {
				holds = append(holds, h)
			}
		}
	}
	slices.Sort(holds)
	d := wire.Draft{Time: float64(p.process) + float64(len(p.batches))/1e6, Events: events}
	p.batches = append(p.batches, published{wire.Encoder{Dialect: wire.VLLMMap}.Append(nil, d), holds})
}

func frames(seq int, payload []byte) zmtp.Message {
	return zmtp.Message{nil, binary.BigEndian.AppendUint64(nil, uint64(seq)), payload}
}

// world is a feed without sockets, and the engine it follows.
type world struct {
	*feed

	block   int
	engine  *publisher
	history map[int]*publisher // by process
	clock   time.Time
	deaf    bool // replays fail
}

func newWorld(t fataler, replay bool, size int) *world {
	w := &world{clock: time.Unix(1000, 0), history: map[int]*publisher{}, block: size}
	w.begin(t, replay, nil, 3)
	w.restartEngine()
	return w
}

type fataler interface{ Fatal(args ...any) }

// begin makes the feed, from a snapshot unless that is nil.
func (w *world) begin(t fataler, replay bool, snapshot []byte, s slot.Slot) {
	l, err := New(Params{Config: DefaultConfig(), Pool: "p", BlockTokens: w.block, Now: func() time.Time { return w.clock },
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if snapshot != nil {
		if err := l.Restore(bytes.NewReader(snapshot)); err != nil {
			t.Fatal(err)
		}
	}
	w.feed = newFeed(context.Background(), l, "w", s, Source{Endpoint: "tcp://w:1"})
	if replay {
		w.ask = w.replayed
	}
	w.addr = "w:1"
	l.resume(w.feed)
	l.list(map[key]*feed{{slot: s}: w.feed})
}

// save is a snapshot of what is known.
func (w *world) save(t fataler) []byte {
	var b bytes.Buffer
	if _, err := w.ledger.Freeze().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (w *world) restartEngine() {
	w.engine = &publisher{block: w.block, process: len(w.history) + 1, tree: map[uint64]bool{}}
	w.history[w.engine.process] = w.engine
}

// replayed answers as vLLM does.
func (w *world) replayed(_ context.Context, from uint64, take func(wire.Message)) error {
	if w.deaf {
		return errors.New("no answer")
	}
	first := 0
	if w.engine.ring > 0 {
		first = max(0, len(w.engine.batches)-w.engine.ring)
	}
	for i := max(first, int(min(from, 1<<30))); i < len(w.engine.batches); i++ {
		take(wire.Message{Seq: uint64(i), Payload: w.engine.batches[i].payload})
	}
	return nil
}

func (w *world) connect() {
	w.notice(zmtp.Change{State: zmtp.Connecting})
	w.notice(zmtp.Change{State: zmtp.Connected})
	w.lookNow()
}

func (w *world) lose() { w.notice(zmtp.Change{State: zmtp.Lost, Err: errors.New("reset by peer")}) }

func (w *world) lookNow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look()
}

func (w *world) pass(d time.Duration) {
	w.clock = w.clock.Add(d)
	w.lookNow()
}

// deliver brings a batch of the engine, its last unless i says otherwise.
func (w *world) deliver(i int) {
	if i < 0 {
		i += len(w.engine.batches)
	}
	w.receive(frames(i, w.engine.batches[i].payload))
}

// credits are the blocks that the index says the rank holds with all before them.
func (w *world) credits() []block.Hash {
	var all []block.Hash
	for prompt := range prompts {
		chain := chainOf(prompt, w.block)
		var o runs.Overlap
		w.ledger.Overlap(chain, &o)
		for _, h := range chain[:o.Of(w.slot).Upto(slot.Remote)] {
			if !slices.Contains(all, h) {
				all = append(all, h)
			}
		}
	}
	slices.Sort(all)
	return all
}

// truth is what the engine held after the batch that the feed applied last.
func (w *world) truth(t interface{ Fatalf(string, ...any) }) []block.Hash {
	if !w.seq.has {
		return nil
	}
	for _, p := range w.history {
		if int(w.seq.last) < len(p.batches) && digest(p.batches[w.seq.last].payload) == w.seq.ring[w.seq.last%remembered].digest {
			return p.batches[w.seq.last].holds
		}
	}
	t.Fatalf("batch %d was applied, but no process published it", w.seq.last)
	return nil
}

func (w *world) say(prompt, blocks int) {
	w.engine.publish(w.engine.store(prompt, blocks))
}

func (w *world) expect(t *testing.T, state State, mode Mode, blocks int) {
	t.Helper()
	s := w.Status()
	if s.State != state || s.Mode != mode || len(w.credits()) != blocks {
		t.Errorf("%s (%s), %s, %d blocks; want %s, %s, %d", s.State, s.Reason, s.Mode, len(w.credits()), state, mode, blocks)
	}
}

func TestAFeedFollowsAnEngine(t *testing.T) {
	w := newWorld(t, true, pageTokens)
	w.expect(t, Connecting, Approximate, 0)
	w.say(0, 3) // before we came
	w.connect()
	w.expect(t, Live, Exact, 3)
	w.say(0, 5)
	w.deliver(-1)
	w.expect(t, Live, Exact, 5)
	w.deliver(-1) // a replay and the live stream overlap
	w.deliver(0)
	w.expect(t, Live, Exact, 5)
	if c := w.Status().Counts; c.Repeated != 2 || c.Batches != 2 || c.Restarts != 0 {
		t.Errorf("counts %+v", c)
	}
}

func TestGaps(t *testing.T) {
	t.Run("a replay closes it", func(t *testing.T) {
		w := newWorld(t, true, pageTokens)
		w.connect()
		w.say(0, 2)
		w.deliver(-1)
		w.say(0, 3) // lost
		w.say(1, 4)
		w.deliver(-1)
		w.expect(t, Live, Exact, 5)
		if c := w.Status().Counts; c.Gaps != 1 || c.Closed != 1 || c.Cleared != 0 {
			t.Errorf("counts %+v", c)
		}
	})
	t.Run("the engine keeps too little", func(t *testing.T) {
		w := newWorld(t, true, pageTokens)
		w.engine.ring = 1
		w.connect()
		w.say(0, 2)
		w.deliver(-1)
		w.say(0, 3) // lost, as the next
		w.engine.publish(w.engine.evict(0, 3))
		w.say(2, 2)
		w.deliver(-1)
		w.expect(t, Live, Partial, 2)
	})
	t.Run("there is no replay socket", func(t *testing.T) {
		w := newWorld(t, false, pageTokens)
		w.connect()
		w.say(0, 2)
		w.deliver(-1)
		w.expect(t, Live, Exact, 2) // it began with batch 0
		w.say(0, 3)
		w.say(2, 3)
		w.deliver(-1)
		w.expect(t, Live, Partial, 3)
	})
	t.Run("the replay fails, and is owed", func(t *testing.T) {
		w := newWorld(t, true, pageTokens)
		w.connect()
		w.say(0, 2)
		w.deliver(-1)
		w.deaf = true
		w.say(0, 3)
		w.say(2, 3)
		w.deliver(-1)
		w.expect(t, Live, Partial, 3)
		w.deaf = false
		w.pass(5 * time.Second)
		w.expect(t, Live, Exact, 6)
	})
	t.Run("a batch passes between the replay and the subscription", func(t *testing.T) {
		w := newWorld(t, true, pageTokens)
		w.connect()
		w.say(0, 2) // the subscription was not there yet
		w.expect(t, Live, Exact, 0)
		w.pass(lookAfter)
		w.expect(t, Live, Exact, 2)
	})
	t.Run("the last batch before a silence is lost", func(t *testing.T) {
		w := newWorld(t, true, pageTokens)
		w.connect()
		w.pass(lookAfter)
		w.say(0, 2)
		w.say(2, 2) // neither arrives
		w.pass(5 * time.Second)
		w.expect(t, Live, Exact, 0)
		w.pass(6 * time.Second)
		w.expect(t, Live, Exact, 4)
		if c := w.Status().Counts; c.Missed != 2 {
			t.Errorf("counts %+v", c)
		}
	})
}

// TestStoppingForgetsNothing: a replay that is cut short because we stop is no gap that cannot be closed.
func TestStoppingForgetsNothing(t *testing.T) {
	w := newWorld(t, true, pageTokens)
	w.connect()
	w.say(0, 3)
	w.deliver(-1)
	ctx, stop := context.WithCancel(t.Context())
	w.ctx = ctx
	w.ask = func(context.Context, uint64, func(wire.Message)) error {
		stop()
		return context.Canceled
	}
	w.say(0, 4)
	w.say(0, 5)
	w.deliver(-1)
	if c := w.Status().Counts; c.Cleared != 0 || len(w.credits()) != 3 || !w.place.Known || w.place.Sequence != 0 {
		t.Errorf("%d blocks, up to %+v, counts %+v", len(w.credits()), w.place, c)
	}
}

func TestRestarts(t *testing.T) {
	t.Run("its numbers begin anew", func(t *testing.T) {
		w := newWorld(t, false, pageTokens)
		w.connect()
		w.say(0, 4)
		w.say(1, 4)
		w.deliver(0)
		w.deliver(1)
		w.restartEngine()
		w.say(2, 2)
		w.deliver(0)
		w.expect(t, Live, Exact, 2)
		if s := w.Status(); s.Epoch != 2 || s.Counts.Restarts != 1 {
			t.Errorf("epoch %d, counts %+v", s.Epoch, s.Counts)
		}
	})
	t.Run("unseen, and its numbers have caught up", func(t *testing.T) {
		w := newWorld(t, true, pageTokens)
		w.connect()
		w.say(0, 4)
		w.deliver(-1)
		w.lose()
		w.restartEngine()
		w.say(2, 1)
		w.say(2, 2) // number 1 follows 0
		w.connect()
		w.expect(t, Live, Exact, 2)
	})
	t.Run("unseen, and it has published less", func(t *testing.T) {
		w := newWorld(t, true, pageTokens)
		w.connect()
		w.say(0, 4)
		w.say(1, 4)
		w.deliver(0)
		w.deliver(1)
		w.lose()
		w.restartEngine()
		w.connect()
		w.expect(t, Live, Exact, 0)
	})
	t.Run("the registry saw it, and nothing was said", func(t *testing.T) {
		w := newWorld(t, true, pageTokens)
		w.connect()
		w.say(0, 4)
		w.deliver(-1)
		w.restart.Store(true)
		w.lookNow()
		w.expect(t, Live, Exact, 4) // it was a flap of the health check
		w.restartEngine()
		w.restart.Store(true)
		w.lookNow()
		w.expect(t, Live, Exact, 0)
	})
	t.Run("the registry saw it, and nobody can be asked", func(t *testing.T) {
		w := newWorld(t, false, pageTokens)
		w.connect()
		w.say(0, 4)
		w.deliver(-1)
		w.clock = w.clock.Add(time.Minute)
		w.restart.Store(true)
		w.lookNow()
		w.expect(t, Live, Partial, 0)
	})
}

func TestAConnectionThatBreaksOff(t *testing.T) {
	w := newWorld(t, true, pageTokens)
	w.connect()
	w.say(0, 3)
	w.deliver(-1)
	w.lose()
	w.expect(t, Connecting, Exact, 3) // for a moment
	e := w.ledger.Evidence(w.slot)
	if d := w.ledger.cfg.Discount(e, w.clock.Add(2*time.Second)); d != .5 {
		t.Errorf("after a half-life the discount is %v, want 0.5", d)
	}
	w.pass(1100 * time.Millisecond)
	w.expect(t, Connecting, Approximate, 3)
	w.connect()
	w.expect(t, Live, Approximate, 3) // not trusted at once
	w.pass(1100 * time.Millisecond)
	w.expect(t, Live, Exact, 3)
	w.lose()
	w.pass(2 * time.Second)
	w.connect()
	w.pass(1100 * time.Millisecond)
	w.expect(t, Live, Approximate, 3) // later every time
	w.pass(time.Second)
	w.expect(t, Live, Exact, 3)
}

func TestSilence(t *testing.T) {
	w := newWorld(t, true, pageTokens)
	w.connect()
	w.say(0, 3)
	w.deliver(-1)
	w.expected.Add(8)
	w.lookNow()
	w.pass(3 * time.Second)
	w.expect(t, Live, Exact, 3)
	w.pass(3 * time.Second)
	w.expect(t, Stale, Approximate, 3)
	if s := w.Status(); s.Reason != silentReason {
		t.Errorf("reason %q", s.Reason)
	}
	w.say(2, 4)
	w.deliver(-1)
	w.pass(1100 * time.Millisecond)
	w.expect(t, Live, Exact, 7) // learnt anew
}

// TestEndsThatAreHeardOfLate: that requests are over may be known when their events are long there; it is no silence that no more
// come.
func TestEndsThatAreHeardOfLate(t *testing.T) {
	w := newWorld(t, true, pageTokens)
	w.connect()
	w.ledger.feeds.Store(&[]*feed{nil, nil, nil, w.feed})
	sent := w.clock
	w.clock = w.clock.Add(time.Second)
	w.say(0, 3)
	w.deliver(-1)
	late := w.clock.Add(time.Second)
	for range 20 {
		w.ledger.Expect(3, sent)
	}
	w.lookNow()
	w.pass(6 * time.Second)
	w.expect(t, Live, Exact, 3)
	for range 20 {
		w.ledger.Expect(3, late)
	}
	w.lookNow()
	w.pass(6 * time.Second)
	w.expect(t, Stale, Approximate, 3)
}

func TestSilenceOfWhoCannotBeAsked(t *testing.T) {
	w := newWorld(t, false, pageTokens)
	w.connect()
	w.say(0, 3)
	w.deliver(-1)
	w.expected.Add(8)
	w.lookNow()
	w.pass(6 * time.Second)
	w.expect(t, Stale, Approximate, 3)
	w.say(2, 4)
	w.deliver(-1)
	w.pass(1100 * time.Millisecond)
	w.expect(t, Live, Partial, 4) // who knows what it removed meanwhile
	w.engine.tree = map[uint64]bool{}
	w.engine.publish(wire.DraftEvent{Kind: wire.Cleared}, w.engine.store(0, 2))
	w.deliver(-1)
	w.lookNow()
	w.expect(t, Live, Exact, 2) // it says that it has forgotten everything
}

func TestWhatCannotBeUsed(t *testing.T) {
	for _, c := range []struct {
		name  string
		batch func(*publisher)
		want  string
	}{
		{"another rank", func(p *publisher) {
			p.batches = append(p.batches, published{payload: wire.Encoder{Dialect: wire.VLLMMap}.Append(nil, wire.Draft{Time: 1, Rank: 2})})
		}, "data-parallel rank 2, expected is 0"},
		{"blocks that do not fit", func(p *publisher) {
			e := wire.DraftEvent{Kind: wire.Stored, Hashes: []uint64{1}, Tokens: []uint32{1, 2, 3, 4, 5, 6}, BlockTokens: 6}
			p.publish(e)
		}, "blocks of 6 tokens, but blocks of the pool have 4 tokens"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, true, pageTokens)
			w.connect()
			w.say(0, 3)
			w.deliver(-1)
			c.batch(w.engine)
			w.deliver(-1)
			w.expect(t, Stale, Approximate, 0)
			if s := w.Status(); !strings.Contains(s.Reason, c.want) {
				t.Errorf("reason %q, want it to say %q", s.Reason, c.want)
			}
			w.say(1, 3)
			w.deliver(-1)
			w.expect(t, Stale, Approximate, 0)
			w.restartEngine() // with other settings
			w.lose()
			w.say(1, 3)
			w.connect()
			w.pass(2 * time.Second)
			w.expect(t, Live, Exact, 3)
		})
	}
}

// TestAnEmptiedCacheAndWhatCannotBeRead: a removal may be among what was not read, behind the clearing.
func TestAnEmptiedCacheAndWhatCannotBeRead(t *testing.T) {
	w := newWorld(t, true, pageTokens)
	w.connect()
	w.say(0, 3)
	w.deliver(-1)
	// [0.0, [["AllBlocksCleared"], ["BlockRemoved", true]], 0]
	w.receive(frames(1, []byte("\x93\xcb\x00\x00\x00\x00\x00\x00\x00\x00\x92\x91\xb0AllBlocksCleared\x92\xacBlockRemoved\xc3\x00")))
	w.expect(t, Live, Partial, 0)
}

func TestTopicsNameTheModel(t *testing.T) {
	serving := worker.NewWorker(worker.Spec{Name: "w"}, 3, worker.Ready).WithStats(worker.Stats{Model: "org/llama"})
	for _, c := range []struct {
		topic, configured string
		w                 *worker.Worker
		refused           bool
	}{
		{"", "", serving, false},
		{"kv@w@org/llama", "", serving, false},
		{"kv@w@org/qwen", "", serving, true},
		{"kv@w@org/qwen", "kv@w", serving, false}, // the user's own choice
		{"kv@w@org/qwen", "", nil, false},         // what it serves is not known
		{"kv@w@", "", serving, false},
		{"events of mine", "", serving, false},
	} {
		w := newWorld(t, true, pageTokens)
		w.names.Store(c.w)
		w.source.Topic = c.configured
		w.connect()
		w.say(0, 3)
		m := frames(0, w.engine.batches[0].payload)
		m[0] = []byte(c.topic)
		w.receive(m)
		w.receive(m)
		if s := w.Status(); (s.State == Stale) != c.refused || c.refused && !strings.Contains(s.Reason, `serves "org/llama"`) {
			t.Errorf("topic %q: %s (%s)", c.topic, s.State, s.Reason)
		}
	}
}

func TestUnreadableBatches(t *testing.T) {
	w := newWorld(t, true, pageTokens)
	w.connect()
	w.say(0, 3)
	w.deliver(-1)
	w.receive(frames(1, []byte("no batch")))
	w.expect(t, Live, Partial, 0)
	w.receive(zmtp.Message{[]byte("one frame")})
	if s := w.Status(); s.Counts.Unreadable != 2 || s.Counts.Cleared != 2 {
		t.Errorf("counts %+v", s.Counts)
	}
}

// TestAHistoryLearntAnewIsNotLive: while a replay brings the past back, blocks are credited that are long gone.
func TestAHistoryLearntAnewIsNotLive(t *testing.T) {
	for name, happens := range map[string]func(*world){
		"a replay was owed": func(w *world) {
			w.deaf = true
			w.say(0, 3) // lost
			w.say(1, 3)
			w.deliver(-1)
			w.deaf = false
			w.pass(5 * time.Second)
		},
		"a restart, seen by its numbers": func(w *world) {
			w.restartEngine()
			w.say(0, 1)
			w.say(0, 2)
			w.deliver(-1)
		},
		"a restart, seen when a silent engine is asked": func(w *world) {
			w.restartEngine()
			w.say(0, 1)
			w.say(0, 2)
			w.pass(20 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, true, pageTokens)
			w.connect()
			w.say(0, 1)
			w.deliver(-1)
			w.say(0, 2)
			w.deliver(-1)
			asked := 0
			w.ask = func(ctx context.Context, from uint64, take func(wire.Message)) error {
				return w.replayed(ctx, from, func(m wire.Message) {
					if take(m); from == 0 && !w.deaf {
						asked++
						if s := w.status.Load(); s.State == Live {
							t.Errorf("live (%s) with %d blocks", s.Reason, len(w.credits()))
						}
					}
				})
			}
			happens(w)
			if s := w.Status(); asked == 0 || s.State != Live || !s.Complete {
				t.Errorf("asked %d times; %s (%s)", asked, s.State, s.Reason)
			}
		})
	}
}

// TestPagesThatBeginAlike: two pages of four tokens whose first block of two is the same.
func TestPagesThatBeginAlike(t *testing.T) {
	w := newWorld(t, true, 2)
	w.connect()
	store := func(h uint64, ids ...uint32) wire.DraftEvent {
		return wire.DraftEvent{Kind: wire.Stored, BlockTokens: 4, Medium: "GPU", Hashes: []uint64{h}, Tokens: ids}
	}
	gone := wire.DraftEvent{Kind: wire.Removed, Medium: "GPU", Hashes: []uint64{1}}
	for _, e := range []wire.DraftEvent{store(1, 1, 2, 3, 4), store(2, 1, 2, 5, 6), gone} {
		w.engine.publish(e)
		w.deliver(-1)
	}
	for _, c := range []struct {
		ids  []uint32
		want int
	}{{[]uint32{1, 2, 5, 6}, 2}, {[]uint32{1, 2, 3, 4}, 1}} {
		var o runs.Overlap
		w.ledger.Overlap(block.AppendBlocks(nil, c.ids, 2, block.Plain), &o)
		if got := o.Of(w.slot).Upto(slot.Remote); got != c.want {
			t.Errorf("%d blocks of %v are credited, want %d (%s)", got, c.ids, c.want, w.Status().Mode)
		}
	}
}

func TestBlocksLeftOutAreNotExact(t *testing.T) {
	w := newWorld(t, true, pageTokens)
	w.connect()
	w.say(0, 2)
	w.deliver(-1)
	e := w.engine.store(2, 2)
	e.BlockTokens = 2 * pageTokens // nobody knows which tokens belong to which block
	w.engine.publish(e)
	w.deliver(-1)
	w.expect(t, Live, Partial, 2)
	w.say(0, 3)
	w.deliver(-1)
	w.expect(t, Live, Partial, 3)
}

func TestDrift(t *testing.T) {
	w := newWorld(t, true, pageTokens)
	w.connect()
	w.capacity.Store(4)
	again := w.engine.store(0, 3)
	w.engine.publish(again)
	w.deliver(-1)
	w.engine.publish(again) // reported once more on somebody's request: no copy, and removed only once
	w.deliver(-1)
	w.lookNow()
	if c := w.Status().Counts; c.Drifts != 1 {
		t.Errorf("counts %+v", c)
	}
	w.expect(t, Live, Exact, 3)
	w.engine.publish(w.engine.evict(0, 1))
	w.deliver(-1)
	w.expect(t, Live, Exact, 2)
}

// TestJoinedBlocksAreNoDrift: prompts that part in the middle of a block share pages, so that there are more blocks than the
// engine has room for. Only more of them than it has pages would be wrong.
func TestJoinedBlocksAreNoDrift(t *testing.T) {
	const size = 3 * pageTokens
	w := newWorld(t, true, size)
	w.capacity.Store(3) // 9 pages, and one that is left over
	w.connect()
	w.say(0, 6)
	w.deliver(-1)
	w.say(1, 6) // shares two pages
	w.deliver(-1)
	w.lookNow()
	if c := w.Status().Counts; c.Drifts != 0 || c.Cleared != 0 {
		t.Errorf("counts %+v", c)
	}
	w.expect(t, Live, Exact, 4)
}

// TestTheIndexIsTheEngine draws what can happen to a stream, and holds the feed's guarantee after every step: when the history
// is complete the index is what the engine held after the last batch applied, and otherwise never more than that.
func TestTheIndexIsTheEngine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, rapid.Bool().Draw(t, "replay socket"), rapid.SampledFrom([]int{2, 4, 4, 8, 12}).Draw(t, "block"))
		ring := rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "ring")
		w.engine.ring = ring
		var wire []zmtp.Message // published and not arrived
		connected := false
		var saved []byte
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			prompt, blocks := rapid.IntRange(0, prompts-1).Draw(t, "prompt"), rapid.IntRange(1, depth).Draw(t, "blocks")
			step := rapid.SampledFrom([]string{"store", "store", "store", "evict", "both", "arrive", "arrive", "arrive", "arrive", "drop",
				"repeat", "swap", "restart", "lose", "connect", "connect", "deaf", "time", "doubt", "save", "begin", "go on"}).Draw(t, "step")
			published := len(w.engine.batches)
			switch step {
			case "store":
				w.engine.publish(w.engine.store(prompt, blocks))
			case "evict":
				w.engine.publish(w.engine.evict(prompt, blocks))
			case "both":
				w.engine.publish(w.engine.evict(prompt, blocks), w.engine.store(prompt/2, blocks))
			case "arrive":
				if connected && len(wire) > 0 {
					w.receive(wire[0])
					wire = wire[1:]
				}
			case "drop":
				if len(wire) > 0 {
					wire = wire[1:]
				}
			case "repeat":
				if len(wire) > 0 {
					wire = append(wire, wire[0])
				}
			case "swap":
				if len(wire) > 1 {
					wire[0], wire[1] = wire[1], wire[0]
				}
			case "restart": // cuts the connection
				w.restartEngine()
				w.engine.ring, wire, connected = ring, nil, false
				w.lose()
			case "lose":
				wire, connected = nil, false
				w.lose()
			case "connect":
				if !connected {
					connected = true
					w.connect()
				}
			case "deaf":
				w.deaf = !w.deaf
			case "time":
				w.pass(rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Second}).Draw(t, "pause"))
			case "doubt":
				w.restart.Store(true)
				w.lookNow()
			case "save":
				saved = w.save(t)
			case "begin": // we were killed, and begin with the last snapshot
				w.begin(t, w.ask != nil, saved, 2)
				wire, connected = nil, false
			case "go on": // we end, and go on where we were
				before, known := w.credits(), w.place.Known
				w.begin(t, w.ask != nil, w.save(t), 1)
				wire, connected = nil, false
				if after := w.credits(); known && !slices.Equal(before, after) || known != w.place.Known || !known && len(after) > 0 {
					t.Fatalf("the index credited %x, restored (%v) it credits %x", before, known, after)
				}
			}
			if len(w.engine.batches) > published && connected {
				last := len(w.engine.batches) - 1
				wire = append(wire, frames(last, w.engine.batches[last].payload))
			}
			truth, credits := w.truth(t), w.credits()
			switch {
			case w.complete && !slices.Equal(credits, truth):
				t.Fatalf("after %s: complete, but the index credits %x where the engine holds %x", step, credits, truth)
			case len(extra(credits, truth)) > 0:
				t.Fatalf("after %s: the index credits %x, which the engine does not hold", step, extra(credits, truth))
			}
		}
		// In the end all is well again: what was lost is found out.
		w.deaf = false
		w.restart.Store(false)
		if !connected {
			w.connect()
		}
		w.pass(3 * time.Minute)
		if w.ask != nil && ring == 0 {
			want := []block.Hash(nil)
			if n := len(w.engine.batches); n > 0 {
				want = w.engine.batches[n-1].holds
			}
			if got := w.credits(); !slices.Equal(got, want) || w.Status().State != Live {
				t.Fatalf("in the end %s: the index credits %x, the engine holds %x", w.Status().State, got, want)
			}
		}
	})
}

func extra(credits, truth []block.Hash) (more []block.Hash) {
	held := map[block.Hash]bool{}
	for _, h := range truth {
		held[h] = true
	}
	for _, h := range credits {
		if !held[h] {
			more = append(more, h)
		}
	}
	return more
}
