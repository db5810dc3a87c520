package runs

import "attache/internal/slot"

// Slots change from process to process. An index that was loaded is parked: readers see nothing of it, and its slots mean
// nothing, until Unpark says slot by slot which one of now was which one of then. What is parked takes memory, may be evicted,
// and is not in snapshots.

// Park hides all that is held. Nothing may be parked already. The writer's.
func (x *Index) Park() {
	for _, w := range x.workers {
		if w == nil {
			continue
		}
		for t := range tiers {
			x.dropOrphans(w, t)
		}
	}
	for _, h := range x.owners {
		if h != nil {
			h.parked = true
		}
	}
	x.parked, x.workers = x.workers, nil
	x.publishView()
}

// Unpark makes a slot what was parked as another one, and shows it to readers. It reports false, and changes nothing, when
// nothing is parked as that, or the slot holds something already. The writer's.
func (x *Index) Unpark(was, now slot.Slot) bool {
	if int(was) >= len(x.parked) || x.parked[was] == nil || !x.valid(Holder{Slot: now}) {
		return false
	}
	if w := x.known(now); w != nil {
		if w.tiers != [tiers]*holder{} || len(w.orphans.all) > 0 {
			return false
		}
		x.bytes -= workerBytes
		x.workers[now] = nil
	}
	w := x.parked[was]
	x.parked[was] = nil
	x.worker(now) // there is room for it
	x.bytes -= workerBytes
	x.workers[now] = w
	w.slot = now
	for _, h := range w.tiers {
		if h != nil {
			h.Slot, h.parked = now, false
		}
	}
	x.publishView()
	return true
}

// DropParked forgets what is still parked; Tidy gives the memory back. The writer's.
func (x *Index) DropParked() {
	for _, w := range x.parked {
		if w == nil {
			continue
		}
		for _, h := range w.tiers {
			if h != nil {
				x.retire(h)
			}
		}
		x.bytes -= workerBytes
	}
	x.bytes -= 8 * cap(x.parked)
	x.parked = nil
}

// workerOf is the worker that a holder is of, parked or not.
func (x *Index) workerOf(h *holder) *worker {
	if h.parked {
		return x.parked[h.Slot]
	}
	return x.workers[h.Slot]
}
