package virtual

import (
	"math"
	"time"
)

// mocker is the profile "dynamo-mocker": it behaves as the simulated vLLM worker that the offline replay of ai-dynamo 1.4.2
// has, as far as that shows from outside. What matters, in the order of a pass:
//
//   - Running requests come first, then waiting ones, as long as budget and sequences last and nobody was preempted in this
//     pass. Blocks are taken chunk by chunk, but admission needs room for all known tokens; the head of the queue blocks
//     those behind it. What is larger than the memory is refused.
//   - Who finds no block preempts the newest that runs, if need be itself. It keeps its tokens and goes to the front.
//   - A block can be found from when its pass is formed. If a whole prompt is cached, its last block is computed again, so
//     that there are two copies.
//   - Output blocks are cached, too.
//   - A pass takes the time of its new prompt tokens and, if anybody gets a token, of one decode step with the share of the
//     memory that is in use once the pass has its blocks. Then those that are through release theirs.
type mocker struct {
	limits

	pool    *pool
	tell    *teller
	load    *load
	device  float64 // blocks that the decode step counts with
	waiting queue
	running []*run
	refused []*run
	emitted []*run
	spare   [][]int32 // memory of run.blocks

	stuck   *run // the head of the queue that did not fit
	version uint64
}

// work is what a pass computes.
type work struct {
	budget    int
	prompts   int // requests with prompt tokens in this pass
	ends      int // sum of how far their prompts will be computed
	begins    int // and of how far they were
	ready     int // requests that get a token
	preempted bool
}

func (m *mocker) memory() *pool                    { return m.pool }
func (m *mocker) requests() (running, waiting int) { return len(m.running), m.waiting.len() }

func (m *mocker) submit(x *run) {
	x.known = x.Request.Prompt + x.gen
	m.waiting.push(x)
}

func (m *mocker) inFlight(to []*run) []*run {
	to = append(append(append(to, m.refused...), m.running...), m.waiting.all()...)
	for _, x := range m.emitted {
		if x.gen == x.Request.Output { // left the running ones already
			to = append(to, x)
		}
	}
	return to
}

func (m *mocker) end(time.Duration) (refused, emitted []*run) {
	refused, emitted = m.refused, m.emitted
	m.refused, m.emitted = m.refused[:0], m.emitted[:0]
	return refused, emitted
}

func (m *mocker) pass(now time.Duration) time.Duration {
	m.pool.now = now
	for {
		w := work{budget: m.maxTokens}
		m.proceed(&w)
		if !w.preempted {
			m.admit(now, &w)
		}
		if w.budget == m.maxTokens {
			if w.preempted && m.waiting.len() > 0 {
				continue // the only one that ran grew too large; those behind it may run
			}
			m.tell.pass(now, m.pool)
			return 0
		}
		took := m.took(&w)
		m.emit()
		m.tell.pass(now, m.pool)
		return took
	}
}

// proceed computes what the running requests lack.
func (m *mocker) proceed(w *work) {
	for i := 0; i < len(m.running) && w.budget > 0; {
		x := m.running[i]
		if x.computed < x.quiet && x.computed+1 == x.known {
			x.computed++
			w.budget--
			w.ready++
			i++
			continue
		}
		n := min(x.known-x.computed, w.budget)
		if !m.grow(x, x.computed+n, w) {
			continue // it was the last of the list, and left it
		}
		m.compute(x, n, w)
		i++
	}
}

// admit lets waiting requests in.
func (m *mocker) admit(now time.Duration, w *work) {
	p := m.pool
	for len(m.running) < m.maxSeqs && m.waiting.len() > 0 && w.budget > 0 {
		x := m.waiting.first()
		need := ceilDiv(x.known, m.blockTokens)
		if need > p.capacity {
			m.waiting.pop()
			m.refused = append(m.refused, x)
			continue
		}
		if m.stuck == x && m.version == p.version {
			return
		}
		found := min(m.match(x), (x.known-1)/m.blockTokens)
		shared := 0 // of these, held by others
		for i := range found {
			if p.c[p.at[x.id(i, len(x.Request.IDs))]].refs > 0 {
				shared++
			}
		}
		if need-shared > p.capacity-p.held() {
			m.stuck, m.version = x, p.version
			return
		}
		m.waiting.pop()
		m.running = append(m.running, x)
		x.blocks = m.memoryFor(need)
		for i := range found {
			id := x.id(i, len(x.Request.IDs))
			c := p.at[id]
			if c > 0 {
				p.hold(c)
			} else { // only in the shared cache
				c = p.take()
				p.name(c, id)
			}
			x.blocks = append(x.blocks, c)
		}
		x.computed = found * m.blockTokens
		if !x.admitted {
			x.admitted = true
			x.Admitted, x.Reused = now, min(x.computed, x.Request.Prompt)
			m.load.asked += x.Request.Prompt
			m.load.reused += x.Reused
		}
		n := min(x.known-x.computed, w.budget)
		if !m.grow(x, x.computed+n, w) {
			return
		}
		m.compute(x, n, w)
	}
}

// match counts the leading blocks of prompt and answer that can be found.
func (m *mocker) match(x *run) int {
	switch {
	case m.private:
		return 0
	case m.shared != nil:
		return m.shared.match(x.Request.IDs)
	}
	n := m.pool.match(x.Request.IDs)
	if n == len(x.Request.IDs) {
		for n < len(x.Request.IDs)+x.sealed && m.pool.at[x.own+int32(n-len(x.Request.IDs))] > 0 {
			n++
		}
	}
	return n
}

// grow gives a request the blocks for a number of tokens; false if it was preempted itself.
func (m *mocker) grow(x *run, tokens int, w *work) bool {
	for want := ceilDiv(tokens, m.blockTokens); len(x.blocks) < want; {
		c := m.pool.take()
		if c == 0 {
			if m.preempt(w) == x {
				return false
			}
			continue
		}
		x.blocks = append(x.blocks, c)
	}
	return true
}

// preempt takes the newest that runs off. It has no part in this pass yet: running requests get theirs from the oldest on,
// and nobody is admitted behind one that grows.
func (m *mocker) preempt(w *work) *run {
	x := m.running[len(m.running)-1]
	m.running = m.running[:len(m.running)-1]
	m.forget(x)
	x.computed = 0
	m.waiting.unshift(x)
	m.load.preemptions++
	w.preempted = true
	return x
}

// compute does n tokens of a request and names the blocks that they fill.
func (m *mocker) compute(x *run, n int, w *work) {
	r := x.Request
	from, to := x.computed, x.computed+n
	x.computed = to
	w.budget -= n
	if from < r.Prompt {
		w.prompts++
		w.begins += from
		w.ends += min(to, r.Prompt)
	}
	if to == x.known {
		w.ready++
	}
	x.quiet = len(x.blocks)*m.blockTokens - 1
	first, last := from/m.blockTokens, to/m.blockTokens
	if first == last || m.private {
		return
	}
	for b := first; b < last; b++ {
		m.pool.name(x.blocks[b], x.id(b, len(r.IDs)))
	}
	prompt := min(last, len(r.IDs))
	if first < prompt {
		m.tell.stored(m.pool.now, m.pool, r, first, prompt)
		m.shared.touch(r.IDs[:prompt])
	}
	if last > len(r.IDs) {
		m.tell.output += last - max(first, len(r.IDs))
		x.sealed = max(x.sealed, last-len(r.IDs))
	}
}

// took is how long a pass takes. Its prompt tokens are counted by means in whole numbers, as the original does.
func (m *mocker) took(w *work) time.Duration {
	t := 0.0
	if w.prompts > 0 {
		tokens := w.prompts * (w.ends/w.prompts - w.begins/w.prompts)
		m.load.prefilled += tokens
		t = mockedPrefill(float64(tokens))
	}
	if w.ready > 0 {
		t += mockedDecode(min(1, float64(m.pool.held())/m.device))
	}
	return max(time.Millisecond, time.Duration(math.Round(t*float64(time.Millisecond))))
}

// mockedPrefill is the time in ms for x new prompt tokens, mockedDecode that of a decode step with a share u of the memory in
// use: the polynomials of ai-dynamo 1.4.2.
func mockedPrefill(x float64) float64 {
	if x <= 0 {
		return 0
	}
	return 4.209989e-07*x*x + 1.518344e-02*x + 16.50142
}

func mockedDecode(u float64) float64 { return max(1, -25.74*u*u+54.01*u+5.74) }

// emit gives a token to all that are computed.
func (m *mocker) emit() {
	going := m.running[:0]
	for i, x := range m.running {
		if x.computed < x.known {
			going = append(going, x)
			continue
		}
		x.known++
		if x.gen++; x.gen == 1 || x.gen == x.Request.Output {
			m.emitted = append(m.emitted, x)
		}
		if x.gen < x.Request.Output {
			if len(going) != i {
				m.running[len(going)] = x
			}
			going = m.running[:len(going)+1]
			continue
		}
		m.forget(x)
	}
	m.running = going
}

// forget releases a request's blocks.
func (m *mocker) forget(x *run) {
	m.shared.touch(x.Request.IDs[:min(len(x.Request.IDs), x.computed/m.blockTokens)])
	m.pool.releaseAll(x.blocks)
	m.spare = append(m.spare, x.blocks[:0])
	x.blocks = nil
}

// memoryFor is an empty list, of one that is through if there is one.
func (m *mocker) memoryFor(n int) []int32 {
	if k := len(m.spare); k > 0 {
		s := m.spare[k-1]
		m.spare = m.spare[:k-1]
		return s
	}
	return make([]int32, 0, n+16)
}
