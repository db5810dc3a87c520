package events

import (
	"bytes"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"attache/indexer/events/wire"
	"attache/indexer/events/zmtp"
	"attache/internal/worker"
)

// bound is the socket that engines of a pool dial, where they do: vLLM's connects if its endpoint names a host, and llm-d's
// charts have all engines tell one gateway. A message says whose it is by its topic, kv@<worker>@<model> by llm-d's
// convention, where the worker is its name, its address or its host; else the connection's address tells, if only one worker
// has that host.
type bound struct {
	ledger   *Ledger
	workers  atomic.Pointer[[]*worker.Worker]
	unknown  atomic.Uint64 // messages of nobody
	mu       sync.Mutex    // guards what follows; receive and notice come one at a time anyway
	batch    wire.Batch
	talking  map[*feed]uint64 // to the connection that speaks for it
	wondered map[string]bool  // topics and addresses of nobody that were logged
}

func newBound(l *Ledger) *bound {
	b := &bound{ledger: l, talking: map[*feed]uint64{}, wondered: map[string]bool{}}
	b.workers.Store(&[]*worker.Worker{})
	return b
}

// open listens at the endpoint that is configured.
func (b *bound) open() (*zmtp.Sub, error) {
	c := b.ledger.source
	return zmtp.NewSub(zmtp.SubParams{Endpoint: c.Bind, Bind: true, Topics: []string{c.Topic}, Config: b.ledger.cfg.Socket,
		Receive: b.receive, Notify: b.notice})
}

// receive hands a message to the feed it is for.
func (b *bound) receive(p zmtp.Peer, m zmtp.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.find(p, m)
	if f == nil {
		b.wonder(p, m)
		return
	}
	if b.talking[f] != p.ID {
		b.talking[f] = p.ID
		f.notice(zmtp.Change{State: zmtp.Connected, Peer: p})
	}
	f.receive(m)
}

// notice takes in that a connection ended.
func (b *bound) notice(c zmtp.Change) {
	if c.State != zmtp.Lost {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for f, peer := range b.talking {
		if peer == c.Peer.ID {
			delete(b.talking, f)
			f.notice(c)
		}
	}
}

// forget ends what is known of a feed.
func (b *bound) forget(f *feed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.talking, f)
}

// find is the feed that a message is for; nil when there is none.
func (b *bound) find(p zmtp.Peer, m zmtp.Message) *feed {
	if len(m) != 3 {
		return nil
	}
	w := b.speaker(p, m[0])
	if w == nil {
		return nil
	}
	rank := 0
	if len(w.Slots()) > 1 && b.batch.Decode(m[2]) == nil && b.batch.HasRank {
		rank = int(b.batch.Rank) - w.Events.FirstRank
	}
	if rank < 0 || rank >= len(w.Slots()) {
		return nil
	}
	return b.ledger.feed(w.Slots()[rank])
}

// speaker is the worker that a message is of.
func (b *bound) speaker(p zmtp.Peer, topic []byte) (found *worker.Worker) {
	id := ""
	if parts := bytes.SplitN(topic, []byte("@"), 3); len(parts) == 3 {
		id = string(parts[1])
	}
	host, _, err := net.SplitHostPort(p.Address)
	if err != nil {
		host = ""
	}
	for _, by := range []func(*worker.Worker) bool{
		func(w *worker.Worker) bool { return id != "" && (w.Name == id || w.Endpoint == id || w.Address == id) },
		func(w *worker.Worker) bool { return id != "" && w.Addr.Addr().String() == id },
		func(w *worker.Worker) bool { return id == "" && host != "" && w.Addr.Addr().String() == host },
	} {
		found = nil
		for _, w := range *b.workers.Load() {
			if !by(w) {
				continue
			}
			if found != nil {
				return nil // two of them: nobody knows which
			}
			found = w
		}
		if found != nil {
			return found
		}
	}
	return nil
}

// maxWondered bounds the speakers that are logged.
const maxWondered = 64

// wonder counts a message of nobody, and logs every speaker once.
func (b *bound) wonder(p zmtp.Peer, m zmtp.Message) {
	b.unknown.Add(1)
	topic := ""
	if len(m) > 0 {
		topic = strings.ToValidUTF8(string(m[0][:min(len(m[0]), 100)]), "?")
	}
	host, _, _ := net.SplitHostPort(p.Address)
	if who := topic + " " + host; !b.wondered[who] && len(b.wondered) < maxWondered {
		b.wondered[who] = true
		b.ledger.log.Warn("events of nobody: the topic, or else the address, must tell a worker of the pool by its name or address",
			"topic", topic, "from", p.Address, "workers", len(*b.workers.Load()))
	}
}
