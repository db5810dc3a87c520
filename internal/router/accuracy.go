package router

import (
	"sync"

	"attache/internal/prompt"
	"attache/internal/slot"
)

// Accuracy compares what was predicted to be cached with what engines said they took from their caches, over some hundred
// requests, the last ones counting most. Shares are of tokens, 0 to 1.
type Accuracy struct {
	Requests float64 // that counted, decayed
	// Agreed is the tokens that were both predicted and delivered, of those that were either: 1 when all predictions were right.
	Agreed float64
	// Kept is the share of the predicted tokens that were delivered: below 1 workers are credited with what they have lost.
	Kept float64
	// Foreseen is the share of the delivered tokens that were predicted: below 1 workers hold more than is known.
	Foreseen float64
}

// fidelity gathers an Accuracy. The zero value has seen nothing.
type fidelity struct{ requests, predicted, delivered, both float64 }

// memory is for how many requests an observation counts.
const memory = 300

func (f *fidelity) add(predicted, delivered int) {
	const keep = 1 - 1./memory
	f.requests = f.requests*keep + 1
	f.predicted = f.predicted*keep + float64(predicted)
	f.delivered = f.delivered*keep + float64(delivered)
	f.both = f.both*keep + float64(min(predicted, delivered))
}

func (f *fidelity) accuracy() Accuracy {
	return Accuracy{
		Requests: f.requests, Agreed: share(f.both, f.predicted+f.delivered-f.both), Kept: share(f.both, f.predicted),
		Foreseen: share(f.both, f.delivered),
	}
}

func share(part, whole float64) float64 {
	if whole <= 0 {
		return 1
	}
	return part / whole
}

// fidelities are those of a pool: by slot, and by rung. Safe for concurrent use.
type fidelities struct {
	mu     sync.Mutex // guards all
	bySlot []fidelity
	byRung [prompt.Rungs]fidelity
}

func (f *fidelities) add(s slot.Slot, r prompt.Rung, predicted, delivered int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for int(s) >= len(f.bySlot) {
		f.bySlot = append(f.bySlot, fidelity{})
	}
	f.bySlot[s].add(predicted, delivered)
	f.byRung[r].add(predicted, delivered)
}

func (f *fidelities) of(s slot.Slot) Accuracy {
	f.mu.Lock()
	defer f.mu.Unlock()
	if int(s) >= len(f.bySlot) {
		return (&fidelity{}).accuracy()
	}
	return f.bySlot[s].accuracy()
}

func (f *fidelities) on(r prompt.Rung) Accuracy {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byRung[r].accuracy()
}

// forget begins anew with a slot.
func (f *fidelities) forget(s slot.Slot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if int(s) < len(f.bySlot) {
		f.bySlot[s] = fidelity{}
	}
}

const (
	enough     = 20 // requests after which an accuracy says something
	leastTrust = .2 // so that one who lost everything once is tried again
)

// trust is what a block that a slot is believed to hold is worth, going by how often that was right; 1 until enough is known.
func (a Accuracy) trust() float64 {
	if a.Requests < enough {
		return 1
	}
	return max(a.Kept, leastTrust)
}

// refreshTrust works out by slot what memory of our own decisions is worth.
func (p *pool) refreshTrust() {
	p.fidelities.mu.Lock()
	by := make([]float64, len(p.fidelities.bySlot))
	for s := range by {
		by[s] = p.fidelities.bySlot[s].accuracy().trust()
	}
	p.fidelities.mu.Unlock()
	p.trust.Store(&by)
}

// doubt is the share of what is remembered of a slot that is not to be counted on.
func (p *pool) doubt(s slot.Slot) float64 {
	if by := p.trust.Load(); by != nil && int(s) < len(*by) {
		return 1 - (*by)[s]
	}
	return 0
}
