package sim

import (
	"encoding/json"
	"maps"
	"net/http"

	"attache/internal/block"
	"attache/internal/slot"
)

// Contents is the truth about the cache of a rank, for tests of whoever listens to its events.
type Contents struct {
	// Epoch counts the starts of the engine, from 1.
	Epoch uint64
	// Sequence is the number of the next batch, or of TensorRT-LLM's next event: a listener that has applied all before it, and
	// missed none, believes what Blocks says.
	Sequence uint64
	// Digest names the batch before that by its bytes (XXH3), also when a fault lost it. 0: there is none, or events are pulled.
	Digest uint64
	// Pending is how many changes have happened, or do in the step under way, that are not published yet. With 0 Blocks is also
	// what the cache holds.
	Pending int
	// Blocks are those that are full, by tier and then by our name (SequenceHashes), with the number of copies that are told of.
	Blocks [slot.Disk + 1]map[block.Hash]int
}

// Contents is what a rank holds, in one moment with the number of what it has published. Without events, or without such a
// rank, it is empty. What a fault kept from being published counts as published: it is the truth.
func (e *Engine) Contents(rank int) Contents {
	l := e.current.Load()
	c := Contents{Epoch: l.epoch}
	if rank < 0 || rank >= len(l.ranks) {
		return c
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.ranks[rank]
	c.Sequence, c.Pending = r.sequenceLocked(), r.pendingLocked()
	if r.publisher != nil {
		c.Digest = r.publisher.digest()
	}
	for tier, blocks := range r.told {
		c.Blocks[tier] = maps.Clone(blocks)
	}
	return c
}

// Endpoints are where a rank publishes and replays, to connect to; empty: nowhere.
func (e *Engine) Endpoints(rank int) (events, replay string) {
	if at := e.current.Load().at(); rank >= 0 && rank < len(at) {
		return at[rank].events, at[rank].replay
	}
	return "", ""
}

// pendingLocked is how many changes are not told yet.
func (r *rank) pendingLocked() int {
	n := len(r.pending)
	if l := r.core.cache.changes; l != nil {
		n += len(l.list)
	}
	return n
}

// state is the answer to GET /sim/state.
type state struct {
	Epoch       uint64       `json:"epoch"`
	Dialect     string       `json:"dialect"`
	HashSeed    uint64       `json:"hash_seed"`
	Ranks       []rankState  `json:"ranks"`
	EventFaults []EventFault `json:"event_faults"`
}

type rankState struct {
	Rank     int            `json:"rank"`
	Sequence uint64         `json:"sequence"`
	Pending  int            `json:"pending"`
	Events   string         `json:"events,omitempty"`
	Replay   string         `json:"replay,omitempty"`
	Running  int            `json:"running"`
	Waiting  int            `json:"waiting"`
	Pages    int            `json:"pages"`
	Held     int            `json:"held"`
	Blocks   map[string]int `json:"blocks"`
}

// state tells what the engine holds.
func (e *Engine) state(w http.ResponseWriter, _ *http.Request) {
	l := e.current.Load()
	at := l.at()
	s := state{Epoch: l.epoch, Dialect: l.cfg.dialect(), HashSeed: l.cfg.HashSeed, EventFaults: e.eventFaults.list()}
	l.mu.Lock()
	for i, r := range l.ranks {
		figures, blocks := r.core.Stats(), r.core.cache.blocks()
		one := rankState{
			Rank: i, Sequence: r.sequenceLocked(), Pending: r.pendingLocked(), Events: at[i].events, Replay: at[i].replay,
			Running: figures.Running, Waiting: figures.Waiting, Pages: figures.Pages, Held: figures.Held, Blocks: make(map[string]int),
		}
		for tier, n := range blocks {
			one.Blocks[slot.Tier(tier).String()] = n
		}
		s.Ranks = append(s.Ranks, one)
	}
	l.mu.Unlock()
	reply(w, s)
}

// eventFault shows what is wrong with the events, or makes something wrong.
func (e *Engine) eventFault(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		var f EventFault
		raw, err := readBody(w, r)
		if err == nil {
			err = json.Unmarshal(raw, &f)
		}
		if err == nil {
			err = f.Validate()
		}
		if err != nil {
			refuse(w, badRequest("", "%v", err))
			return
		}
		e.SetEventFault(f)
	}
	reply(w, e.eventFaults.list())
}
