package sim

import (
	"sync"

	"attache/indexer/events/wire"
)

// pull keeps the events of one rank as TensorRT-LLM does: until somebody asks, who then is the only one to get them. When
// there are too many the oldest are lost; the gap in the numbers shows it. Safe for concurrent use.
type pull struct {
	most   int
	faults *eventFaults

	mu   sync.Mutex // guards the fields below
	next uint64     // event_id
	list []wire.DraftTensorRT
}

// add gives events their numbers and keeps them.
func (p *pull) add(events []wire.DraftTensorRT) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lose := p.faults.take(EventLose) || p.faults.take(EventDrop)
	for _, e := range events {
		e.ID = p.next
		p.next++
		if !lose {
			p.list = append(p.list, e)
		}
	}
	if over := len(p.list) - p.most; over > 0 {
		p.list = append([]wire.DraftTensorRT(nil), p.list[over:]...)
	}
}

// drain hands out what is there.
func (p *pull) drain() []wire.DraftTensorRT {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.list
	p.list = nil
	return list
}

// sequence is the number of the next event.
func (p *pull) sequence() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}
