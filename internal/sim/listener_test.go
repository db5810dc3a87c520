package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"attache/indexer/events/wire"
	"attache/indexer/events/zmtp"
	"attache/internal/block"
	"attache/internal/slot"
)

// listener is what a gateway would be: it knows the events of one rank, and nothing else.
type listener struct {
	mu     sync.Mutex // guards the fields below
	seqs   []uint64   // of live messages, as they came
	ranks  []int32
	kinds  []wire.Kind
	sizes  []uint32 // of blocks that were stored
	topics []string
	chains map[uint64][]block.Hash // of the engine's hashes: ours, up to the block
	blocks [slot.Disk + 1]map[uint64]int
	counts bool // copies are told of
	size   int
	bad    []string
	// sessions are those of the stored events; reported counts the blocks of reporter's.
	sessions []string
	reported int
	// history is what it believed after each batch, if that is wanted.
	history map[uint64][slot.Disk + 1]map[block.Hash]int
}

// reporter is the session of a request that wants a report and stores nothing.
const reporter = "reporter"

func newListener(cfg *Config) *listener {
	l := &listener{chains: map[uint64][]block.Hash{}, counts: cfg.rules().copies, size: cfg.BlockTokens}
	l.clear()
	return l
}

func (l *listener) clear() {
	for tier := range l.blocks {
		l.blocks[tier] = map[uint64]int{}
	}
}

// listen subscribes to a rank, and returns once the engine knows it.
func listen(t *testing.T, e *Engine, rank int) *listener {
	t.Helper()
	l := newListener(&e.cfg)
	at, _ := e.Endpoints(rank)
	cfg := zmtp.DefaultConfig()
	cfg.MinPause, cfg.MaxPause = time.Millisecond, 10*time.Millisecond
	sub, err := zmtp.NewSub(zmtp.SubParams{Endpoint: at, Config: cfg, Receive: func(_ zmtp.Peer, m zmtp.Message) { l.receive(m) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- sub.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		for _, bad := range l.bad {
			t.Error(bad)
		}
	})
	subscribed(t, e, rank)
	return l
}

func subscribed(t *testing.T, e *Engine, rank int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); e.current.Load().ranks[rank].publisher.pub.Subscribers() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody subscribes")
		}
	}
}

func (l *listener) receive(frames zmtp.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, err := wire.ParseLive(frames)
	if err != nil {
		l.bad = append(l.bad, err.Error())
		return
	}
	l.seqs, l.topics = append(l.seqs, m.Seq), append(l.topics, string(m.Topic))
	l.apply(m.Payload)
	if l.history != nil {
		l.history[m.Seq] = l.believes()
	}
}

// apply applies a batch.
func (l *listener) apply(payload []byte) {
	var b wire.Batch
	if err := b.Decode(payload); err != nil {
		l.bad = append(l.bad, err.Error())
		return
	}
	l.ranks = append(l.ranks, b.Rank)
	l.applyBatch(&b, payload)
}

func (l *listener) applyBatch(b *wire.Batch, payload []byte) {
	if n := b.Counts.Missed() + b.Counts.ExtraFields + b.Counts.OpaqueKeys + b.Counts.UnknownTags; n > 0 {
		l.bad = append(l.bad, fmt.Sprintf("not understood: %+v", b.Counts))
	}
	for i := range b.Events {
		e := &b.Events[i]
		l.kinds = append(l.kinds, e.Kind)
		tier := slot.Tier(e.Tier - wire.Device)
		switch {
		case e.Kind == wire.Cleared:
			l.clear()
		case e.Kind == wire.Created:
		case e.Kind == wire.Removed && e.Tier == wire.TierUnsaid:
			for tier := range l.blocks {
				l.drop(slot.Tier(tier), e.Hashes)
			}
		case e.Kind == wire.Removed:
			l.drop(tier, e.Hashes)
		case e.Placeholder():
			for _, h := range e.Hashes {
				l.blocks[tier][h]++
			}
		default:
			l.store(tier, e, payload)
		}
	}
}

func (l *listener) drop(tier slot.Tier, hashes []uint64) {
	for _, h := range hashes {
		if l.blocks[tier][h]--; l.blocks[tier][h] <= 0 {
			delete(l.blocks[tier], h)
		}
	}
}

func (l *listener) store(tier slot.Tier, e *wire.Event, payload []byte) {
	l.sizes = append(l.sizes, e.BlockTokens)
	if int(e.BlockTokens) != l.size {
		return // not full; or a lie
	}
	if !e.Even() || len(e.Keys) > 0 {
		l.bad = append(l.bad, fmt.Sprintf("%d hashes, %d tokens, keys %v", len(e.Hashes), len(e.Tokens), e.Keys))
		return
	}
	chain := slices.Clone(l.chains[e.Parent])
	if !e.HasParent {
		chain = nil
	}
	l.sessions = append(l.sessions, string(e.Session.In(payload)))
	if l.sessions[len(l.sessions)-1] == reporter {
		l.reported += len(e.Hashes)
		return // told of again: nothing to count
	}
	lora, salt := string(e.LoRA.In(payload)), string(e.Salt.In(payload))
	for i, h := range e.Hashes {
		chain = appendSequence(chain, e.Tokens[i*l.size:(i+1)*l.size], l.size, lora, salt)
		l.chains[h] = slices.Clone(chain)
		if l.blocks[tier][h]++; !l.counts {
			l.blocks[tier][h] = 1
		}
	}
}

// believes are the blocks by our names.
func (l *listener) believes() (blocks [slot.Disk + 1]map[block.Hash]int) {
	for tier, all := range l.blocks {
		blocks[tier] = map[block.Hash]int{}
		for h, n := range all {
			if chain := l.chains[h]; len(chain) > 0 {
				blocks[tier][chain[len(chain)-1]] = n
			}
		}
	}
	return blocks
}

// differs compares with the truth; empty: it is the same.
func (l *listener) differs(truth Contents) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for tier, got := range l.believes() {
		if !maps.Equal(got, truth.Blocks[tier]) {
			return fmt.Sprintf("%s: it knows of %d blocks, there are %d", slot.Tier(tier), len(got), len(truth.Blocks[tier]))
		}
	}
	return ""
}

// heard waits until all that was published has come, as far as the last message tells.
func (l *listener) heard(r *rig, rank int) Contents {
	r.t.Helper()
	var truth Contents
	r.eventually("all batches come", func() bool {
		truth = r.Contents(rank)
		l.mu.Lock()
		defer l.mu.Unlock()
		return truth.Sequence > 0 && len(l.seqs) > 0 && slices.Max(l.seqs) == truth.Sequence-1
	})
	return truth
}

// replay asks for all batches from start on. frames is how many the messages had.
func replay(t *testing.T, e *Engine, start uint64) (messages []wire.Message, frames int) {
	t.Helper()
	messages, frames, err := tryReplay(t.Context(), e, start, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return messages, frames
}

func tryReplay(ctx context.Context, e *Engine, start uint64, patience time.Duration) (messages []wire.Message, frames int, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, at := e.Endpoints(0)
	d, err := zmtp.DialDealer(ctx, at, zmtp.DefaultConfig())
	if err != nil {
		return nil, 0, err
	}
	defer d.Close()
	if err := d.Send(wire.ReplayRequest(start)...); err != nil {
		return nil, 0, err
	}
	for {
		got, err := d.Receive()
		if err != nil {
			return nil, 0, err
		}
		m, end, err := wire.ParseReplay(got)
		if err != nil || end {
			return messages, frames, err
		}
		frames = len(got)
		m.Payload = slices.Clone(m.Payload)
		messages = append(messages, m)
	}
}
