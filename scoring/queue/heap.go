package queue

// heap is a binary heap that knows where each element stands, so that any of them can be removed or moved in O(log n)
// without a search and without an allocation. The first element is the one that stands before all others.
type heap[E node[E]] []E

// node is an element of a heap: its order, and the field that keeps its place. The place is 1 for the first element; 0,
// the zero value, is outside the heap.
type node[E any] interface {
	before(other E) bool
	place() *int
}

func (h *heap[E]) push(e E) {
	*h = append(*h, e)
	h.up(len(*h)-1, e)
}

// remove takes e out; it does nothing when e is not in.
func (h *heap[E]) remove(e E) {
	i := *e.place() - 1
	if i < 0 {
		return
	}
	*e.place() = 0
	var none E
	n := len(*h) - 1
	last := (*h)[n]
	(*h)[n] = none
	*h = (*h)[:n]
	if i < n {
		h.settle(i, last)
	}
}

// fix restores the order after e alone has changed; it does nothing when e is not in.
func (h heap[E]) fix(e E) {
	if i := *e.place() - 1; i >= 0 {
		h.settle(i, e)
	}
}

// rebuild restores the order after any elements have changed, in O(n).
func (h heap[E]) rebuild() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i, h[i])
	}
}

// settle puts e at i, or wherever it has to be from there.
func (h heap[E]) settle(i int, e E) {
	if i > 0 && e.before(h[(i-1)/2]) {
		h.up(i, e)
	} else {
		h.down(i, e)
	}
}

func (h heap[E]) up(i int, e E) {
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(h[parent]) {
			break
		}
		h.set(i, h[parent])
		i = parent
	}
	h.set(i, e)
}

func (h heap[E]) down(i int, e E) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(e) {
			break
		}
		h.set(i, h[child])
		i = child
	}
	h.set(i, e)
}

func (h heap[E]) set(i int, e E) {
	h[i] = e
	*e.place() = i + 1
}
