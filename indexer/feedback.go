package indexer

import (
	"attache/internal/block"
	"attache/internal/slot"
)

// What engines' reports teach. A decision predicts that the slot holds the first blocks of a prompt; afterwards the engine
// says how many came from its cache.
//
// Too few. The engine lost a block last touched at second t. Its cache is an LRU one, so what was touched before t is gone,
// too, and it has room for fewer blocks than are fresher than t: an upper bound of its capacity.
//
// Too many. The engine still holds a block that was given up here because the slot was taken to be full. It has room for as
// many blocks as would stand before that one had none been given up since: a lower bound. Only blocks that are known to
// have been given up that way count (see ghosts): engines also hold what we never knew, as answers, or what another
// gateway sent.
//
// A report can be wrong: the request went around the cache, the answer was read in part, somebody else filled the cache for
// a moment. So each moves the estimate only a part of the way to its bound, and gives up only that part of what it says is
// gone; the part grows with every further report in a row that says the same. "In a row" ends with a report of the other
// kind, and with one that found a block in the cache that had not been touched for as long as the one last found lost.
//
//	                1st    2nd    3rd on    left of the way after one, two, three
//	too few         0.1    0.5    0.8       0.9    0.45    0.09
//	too many        0.2    0.4    0.6       0.8    0.48    0.19
//
// So one odd report takes at most a tenth of a slot's memory, even if it claims that nothing at all was cached, and three in
// a row correct a capacity that is four times what their bound says to 1 + 3 × 0.09 = 1.27 times that; one of a quarter to
// 1 - 0.75 × 0.19 = 0.86 of it. The first step down is small because odd reports say just that, and the next request that
// finds an older block clears it up; the first step up may be larger because a wrong one needs somebody else to have sent
// the very same prompt. On the whole growing is slower because it costs more to be wrong: requests sent after blocks that
// are gone load a worker for nothing, while a block forgotten early is missed only when no other worker has it.
const (
	over  = iota // predicted more than there was
	under        // predicted less
	directions
)

var gains = [directions][3]float64{over: {0.1, 0.5, 0.8}, under: {0.2, 0.4, 0.6}}

const (
	// settling is for how many seconds after a block was sent to a slot its absence means nothing: the request that brings
	// it may still be queued or computed. An engine that really turns its whole cache over in less has no use for a memory.
	settling = 5
	// growth bounds what reports make of the default capacity while the engine tells no figure of its own: the default is
	// meant for one or two large accelerators, and a model small enough or quantised, or a cache tier in host memory, have
	// about ten times that. Beyond, a fault in what is reported is likelier than such an engine.
	growth = 16
	// shrinkage bounds what reports leave of the figure or the default: an engine that uses its cache at all keeps a few
	// prompts, and a slot must remember something to notice that more is kept again.
	shrinkage = 32
)

// noise is by how many blocks a report may differ from a prediction without meaning anything: blocks here are not the
// engine's, whose last block is never cached whole and which may match in units of many blocks.
func noise(blocks int) int { return 2 + blocks/16 }

// Mark is what a slot was believed to hold of a prompt just before the prompt was sent there, as Remember returns it and
// Correct needs it. The zero Mark stands for nothing. It is a value of fixed size that refers to nothing.
type Mark struct {
	slot   slot.Slot
	birth  uint32 // of the slot's owner; 0: no mark
	at     uint32 // second of the decision
	gone   uint32 // blocks that the owner had given up by then
	held   int32  // blocks it held then
	blocks int32  // leading ones of this prompt
	beyond int32  // blocks given up since the first one missing was, for capacity; -1: it was not
	known  int32  // entries of ages
	ages   [4]age // when the leading blocks had been touched last, stretch by stretch
}

// age says that the blocks from this one on, up to the next stretch, were last touched at this second.
type age struct {
	from int32
	at   uint32
}

// Blocks is how many leading blocks of the prompt the slot was believed to hold: what Correct compares with.
func (m *Mark) Blocks() int { return int(m.blocks) }

// note takes in that the blocks from this one on were touched at this second. More stretches than fit become one as old as
// its oldest: a loss then says less than it could.
func (m *Mark) note(from int, at uint32) {
	if int(m.known) == len(m.ages) {
		m.ages[m.known-1].at = at
		return
	}
	m.ages[m.known] = age{int32(from), at}
	m.known++
}

// touched is when a leading block was last touched before the decision, or an earlier second.
func (m *Mark) touched(i int) uint32 {
	n := int(m.known)
	for n > 1 && int(m.ages[n-1].from) > i {
		n--
	}
	return m.ages[n-1].at
}

// experience is what an owner was taught.
type experience struct {
	birth   uint32 // tells owners with one number apart: counts up from 1
	figure  int    // capacity that the engine tells; 0 unknown
	learnt  bool
	run     int    // reports in a row that said over; negative: under
	lostAge uint32 // how long the block last found lost had not been touched
	lost    uint32 // second of its last touch
	lostAt  uint32 // second at which that was found
	gone    uint32 // blocks given up, for whatever reason
	ghosts  ghosts
}

// gain is the part of the way that one more report in this direction moves the estimate; it counts the report.
func (e *experience) gain(direction int) float64 {
	sign := 1
	if direction == under {
		sign = -1
	}
	e.run = sign * (max(sign*e.run, 0) + 1)
	return gains[direction][min(sign*e.run, len(gains[direction]))-1]
}

// begin fills in what does not depend on the prompt.
func (m *Mark) begin(s slot.Slot, o *owner, e *experience, now uint32) {
	*m = Mark{slot: s, birth: e.birth, at: now, gone: e.gone, held: int32(o.held), beyond: -1}
}

// predict notes how much of chain was held, of which only the first part, at most as long as the slot's capacity, would be.
func (m *Mark) predict(e *experience, chain []block.Hash, cut, held int, oldest uint32) {
	for _, a := range m.ages[:m.known] {
		if a.at < oldest {
			m.blocks = a.from
			return
		}
	}
	m.blocks = int32(held)
	switch {
	case held == len(chain):
	case held == cut:
		m.beyond = 0
	default:
		m.beyond = e.ghosts.since(chain[held], e.gone)
	}
}

// loss is a block that an engine was found to have lost.
type loss struct {
	owner  uint32
	birth  uint32
	before uint32 // blocks touched before this second are gone, too
	behind int    // how many they are, as far as counted
	next   int32  // where counting goes on, at the block with this hash; 0 not begun
	hash   block.Hash
	gone   uint32 // blocks given up when counting began
}

// judge takes in a report, and says whether a block was lost, which is more work.
func (t *table) judge(m *Mark, delivered int) (l loss, lost bool) {
	id := t.owner(m.slot)
	e := &t.taught[id]
	if id == 0 || m.birth == 0 || e.birth != m.birth {
		return loss{}, false
	}
	predicted := int(m.blocks)
	slack := noise(predicted)
	switch {
	case delivered < predicted-slack:
		at := m.touched(min(delivered+slack, predicted-1))
		// A loss is news unless a former report, of after this decision, explains it: then both found the same.
		news := at > e.lost || m.at > e.lostAt
		if m.at-at < settling || !news {
			return loss{}, false
		}
		return loss{owner: id, birth: m.birth, before: at}, true
	case m.beyond >= 0 && delivered > predicted+slack:
		t.grow(id, max(int(m.held+m.beyond), delivered))
	case predicted > 0 && e.run > 0 && m.at-m.touched(predicted-1) >= e.lostAge:
		e.run = 0
	}
	return loss{}, false
}

// grow moves a capacity towards a lower bound of it.
func (t *table) grow(id uint32, lower int) {
	o, e := &t.owners[id], &t.taught[id]
	if lower = min(lower, t.most(e)); lower <= o.capacity {
		return
	}
	o.capacity += max(int(e.gain(under)*float64(lower-o.capacity)), 1)
	e.learnt = true
	e.ghosts.fit(o.capacity)
	t.corrected[under]++
}

// most is the capacity that reports can raise an owner's to.
func (t *table) most(e *experience) int {
	if e.figure > 0 {
		return e.figure
	}
	return max(min(growth*t.defaultCapacity, t.bound), t.defaultCapacity)
}

// told is the owner's capacity as the engine or the configuration says.
func (t *table) told(e *experience) int {
	if e.figure > 0 {
		return e.figure
	}
	return t.defaultCapacity
}

// count goes on counting the blocks behind a loss, budget of them; more says that there are more. Others may change the
// list between two calls: when the block at which it stopped is no longer there, what was counted has to do.
func (t *table) count(l *loss, budget int) (more bool) {
	o, e := &t.owners[l.owner], &t.taught[l.owner]
	if e.birth != l.birth {
		return false
	}
	if l.next == 0 {
		l.next, l.gone = o.tail, e.gone
	} else if t.links(l.next).owner != l.owner || t.at(l.next).hash != l.hash {
		return false
	}
	for range budget {
		if l.next == 0 || t.at(l.next).at >= l.before {
			return false
		}
		l.behind++
		l.next = t.links(l.next).newer
	}
	if l.next == 0 {
		return false
	}
	l.hash = t.at(l.next).hash
	return true
}

// shrink moves the capacity towards the upper bound that a counted loss is, and returns how many blocks have to go.
func (t *table) shrink(m *Mark, l *loss) (surplus int) {
	o, e := &t.owners[l.owner], &t.taught[l.owner]
	if e.birth != l.birth {
		return 0
	}
	upper := int(m.held) // when nothing is left behind the block: it stood before the end
	if l.behind > 0 {
		upper = max(upper-l.behind-int(l.gone-m.gone), 0)
	}
	gain := e.gain(over)
	e.lost, e.lostAge, e.lostAt = l.before, m.at-l.before, t.now
	if least := max(t.told(e)/shrinkage, 1); upper < o.capacity {
		o.capacity = min(max(o.capacity-int(gain*float64(o.capacity-upper)), least), o.capacity)
		e.learnt = true
		e.ghosts.fit(o.capacity)
	}
	t.corrected[over]++
	return max(int(gain*float64(l.behind)), o.held-o.capacity)
}

// giveUp evicts surplus blocks, as far as they are behind the loss, at most budget; it returns how many are left to do.
// What was touched later stays, and the capacity with it.
func (t *table) giveUp(l *loss, surplus, budget int) (left int) {
	o := &t.owners[l.owner]
	if t.taught[l.owner].birth != l.birth {
		return 0
	}
	for ; surplus > 0 && o.tail != 0 && t.at(o.tail).at < l.before; surplus-- {
		if budget--; budget < 0 {
			return surplus
		}
		t.evict(l.owner, byFeedback)
	}
	o.capacity = max(o.capacity, o.held)
	return 0
}
