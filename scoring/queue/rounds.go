package queue

import "math"

// rounds is deficit round robin among the classes (Shreedhar and Varghese, 1995): in each round a class earns its
// quantum, and it is served while what it has saved covers the cost of its next request. So classes share tokens in
// proportion to their quanta, whatever the sizes of their requests.
//
// A class that is asked for its next request spends what it has first, and earns once per visit if that is not enough.
// Rounds in which nobody could be served are counted, not walked through.
type rounds struct {
	quantum []int64
	deficit []int64
	turn    int  // the class being visited
	earned  bool // it has its quantum of this visit

	saved struct { // what undo goes back to
		deficit []int64
		turn    int
		earned  bool
	}
}

func newRounds(quantum []int64) *rounds {
	r := &rounds{quantum: quantum, deficit: make([]int64, len(quantum))}
	r.saved.deficit = make([]int64, len(quantum))
	return r
}

// next returns the class whose turn it is. costs has the cost of each class's next request, 0 for a class that takes no
// part: it keeps its deficit and earns nothing. At least one class must take part.
func (r *rounds) next(costs []int64) int {
	copy(r.saved.deficit, r.deficit)
	r.saved.turn, r.saved.earned = r.turn, r.earned
	for {
		for range costs {
			i := r.turn
			if costs[i] > 0 {
				if r.deficit[i] < costs[i] && !r.earned {
					r.deficit[i] += r.quantum[i]
					r.earned = true
				}
				if r.deficit[i] >= costs[i] {
					return i
				}
			}
			r.turn, r.earned = (i+1)%len(costs), false
		}
		r.skip(costs)
	}
}

// skip goes forward to the round in which the first class can pay.
func (r *rounds) skip(costs []int64) {
	idle := int64(math.MaxInt64)
	for i, cost := range costs {
		if cost > 0 {
			missing := cost - r.deficit[i]
			idle = min(idle, (missing+r.quantum[i]-1)/r.quantum[i]-1)
		}
	}
	for i, cost := range costs {
		if cost > 0 {
			r.deficit[i] += idle * r.quantum[i]
		}
	}
}

// spend pays for a request of class i.
func (r *rounds) spend(i int, cost int64) { r.deficit[i] -= cost }

// undo takes the last next back: what was its class's turn could not be served, so nothing was earned for it.
func (r *rounds) undo() {
	copy(r.deficit, r.saved.deficit)
	r.turn, r.earned = r.saved.turn, r.saved.earned
}

// empty takes the deficit of a class that has nothing left to send: it may not save for later.
func (r *rounds) empty(i int) { r.deficit[i] = 0 }
