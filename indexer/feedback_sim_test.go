package indexer

import (
	"container/list"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// engine is the cache of a simulated engine: LRU over single blocks, of which a request's last one goes first.
type engine struct {
	room   int
	blocks map[uint64]*list.Element
	order  *list.List // freshest first
}

func newEngine(room int) *engine {
	return &engine{room: room, blocks: map[uint64]*list.Element{}, order: list.New()}
}

// serve returns how many leading blocks were there, and keeps all.
func (e *engine) serve(chain []uint64) (hits int) {
	for hits < len(chain) && e.blocks[chain[hits]] != nil {
		hits++
	}
	for i := len(chain) - 1; i >= 0; i-- {
		if at := e.blocks[chain[i]]; at != nil {
			e.order.MoveToFront(at)
		} else {
			e.blocks[chain[i]] = e.order.PushFront(chain[i])
		}
	}
	for e.order.Len() > e.room {
		delete(e.blocks, e.order.Remove(e.order.Back()).(uint64))
	}
	return hits
}

// talks is a mix of conversations: which goes on next is drawn from a zipf distribution. They begin with one of eight
// system prompts; every turn adds to them, and what has become long begins anew.
type talks struct {
	draw   *rand.Rand
	zipf   *rand.Zipf
	chains [][]uint64
	roots  [][]uint64
	answer int // blocks that the engine adds to every prompt
}

func newTalks(seed uint64, answer int) *talks {
	draw := rand.New(rand.NewPCG(seed, 3))
	w := &talks{draw: draw, zipf: rand.NewZipf(draw, 1.05, 20, 399), chains: make([][]uint64, 400), answer: answer}
	for i := range 8 {
		w.roots = append(w.roots, chainOf(seed<<32+uint64(i), 20))
	}
	return w
}

// next returns the prompt of the next request, and the prompt with its answer, which is where the next turn goes on.
func (w *talks) next() (prompt, answered []uint64) {
	i := w.zipf.Uint64()
	chain := w.chains[i]
	if len(chain) == 0 || len(chain) > 120 {
		chain = append([]uint64(nil), w.roots[w.draw.IntN(len(w.roots))]...)
	}
	grow := func(n int) {
		for range n {
			chain = append(chain, w.draw.Uint64())
		}
	}
	grow(4 + w.draw.IntN(12))
	turn := len(chain)
	grow(w.answer)
	w.chains[i] = chain
	return chain[:turn:turn], chain
}

// world is one gateway in front of one engine, in some circumstances.
type world struct {
	assumed  int     // default capacity of the gateway, where the engine has room for 4000 blocks
	figure   int     // what the engine tells of its room; 0 nothing
	answer   int     // blocks of answers, which the gateway does not see
	shared   bool    // another gateway sends as many requests as ours
	late     int     // requests between a decision and its report
	odd      float64 // share of reports that say that nothing was cached
	corrects bool
}

// run simulates some thousand requests. It returns the mean error of predictions as a share of the prompts, and the
// capacity that is believed in, on average over the second half.
func (w world) run(tb testing.TB, seed uint64) (wrong, capacity float64) {
	tb.Helper()
	const requests, counted = 4000, 3000
	x, c := newIndex(tb, Config{DefaultCapacity: w.assumed, MaxBlocks: 1 << 20})
	x.SetCapacity(0, w.figure)
	e, ours, theirs, draw := newEngine(4000), newTalks(seed, w.answer), newTalks(seed+1000, w.answer), rand.New(rand.NewPCG(seed, 9))
	type report struct {
		mark      Mark
		delivered int
	}
	var pending []report
	for i := range requests {
		c.Time = c.Add(time.Duration(500+draw.IntN(3000)) * time.Millisecond)
		if w.shared {
			_, answered := theirs.next()
			e.serve(answered)
		}
		chain, answered := ours.next()
		predicted := 0
		if held := x.Overlap(chain, nil); len(held) > 0 {
			predicted = int(held[0])
		}
		mark := x.Remember(0, chain)
		if mark.Blocks() != predicted {
			tb.Fatalf("request %d: mark of %d blocks, overlap %d", i, mark.Blocks(), predicted)
		}
		delivered := e.serve(chain)
		e.serve(answered)
		if i >= requests-counted {
			wrong += math.Abs(float64(predicted-delivered)) / float64(len(chain)) / counted
		}
		if draw.Float64() < w.odd {
			delivered = 0
		}
		pending = append(pending, report{mark, delivered})
		if w.corrects && len(pending) > w.late {
			x.Correct(pending[0].mark, pending[0].delivered)
			pending = pending[1:]
		}
		if i >= requests/2 {
			blocks, _ := x.Capacity(0)
			capacity += float64(blocks) / (requests / 2)
		}
	}
	if broken := check(x.table, nil); broken != "" {
		tb.Error(broken)
	}
	return wrong, capacity
}

// TestFeedback holds predictions with correction to half the error of those without, and the capacity learnt to what
// there is: 4000 blocks, or about half of that where another gateway uses the engine, too.
func TestFeedback(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates 92000 requests")
	}
	for name, test := range map[string]struct {
		world

		low, high float64 // bounds of the capacity
	}{
		"too high":              {world{assumed: 16000}, 3600, 4400},
		"too high, late":        {world{assumed: 16000, late: 20}, 3600, 4800},
		"too high, odd reports": {world{assumed: 16000, odd: 0.02}, 2600, 4400},
		"too high, answers":     {world{assumed: 16000, answer: 8}, 3000, 4400},
		"too low":               {world{assumed: 1000}, 3600, 4400},
		"too low, late":         {world{assumed: 1000, late: 20}, 3600, 4400},
		"too low, answers":      {world{assumed: 1000, answer: 8}, 3000, 4400},
		"shared, figure known":  {world{assumed: 500, figure: 4000, shared: true}, 1600, 2400},
		"shared, too high":      {world{assumed: 16000, shared: true}, 1600, 2400},
		"shared, too low":       {world{assumed: 500, shared: true}, 1600, 2400},
	} {
		t.Run(name, func(t *testing.T) {
			before, _ := test.run(t, 1)
			test.corrects = true
			after, capacity := test.run(t, 1)
			t.Logf("error %.4f instead of %.4f, capacity %.0f", after, before, capacity)
			if after > before/2 {
				t.Errorf("with correction predictions are wrong by %.4f of a prompt, without by %.4f", after, before)
			}
			if capacity < test.low || capacity > test.high {
				t.Errorf("capacity %.0f, want %.0f to %.0f", capacity, test.low, test.high)
			}
		})
	}
	t.Run("right", func(t *testing.T) { // nothing to learn: at most odd reports, answers must not be taken for room
		for _, w := range []world{{assumed: 4000}, {assumed: 4000, odd: 0.02}, {assumed: 4000, answer: 8}} {
			w.corrects = true
			wrong, capacity := w.run(t, 1)
			t.Logf("%+v: error %.4f, capacity %.0f", w, wrong, capacity)
			if wrong > 0.05 || capacity < 2800 || capacity > 4400 {
				t.Errorf("%+v: error %.4f, capacity %.0f, want at most 0.05 and about 4000", w, wrong, capacity)
			}
		}
	})
}
