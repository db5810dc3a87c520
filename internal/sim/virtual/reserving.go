package virtual

import (
	"time"

	"attache/internal/sim"
)

// maxPrompts is how many unfinished prompts a reserving engine has at most: enough work for the token budget.
const maxPrompts = 8

// reserving is the engine of the hardware profiles. It has memory for prompt and answer when it admits a request, so it never
// preempts; it reads each block once, so there are no two copies; a block can be found when its chunk is computed; and an
// answer's memory is free at its end. In a pass each running answer takes one token of the budget, then prompts in order of
// admission as much as is left. How long it takes is said at sim.Model, with all passes as long as
//
//	t = over + max(weights, b*tokens) + q*sum(chunk*(before + chunk/2)) + c*kv
type reserving struct {
	limits

	pool     *pool
	tell     *teller
	load     *load
	model    sim.Model
	waiting  queue
	prompts  []*run // admitted, prompt not finished
	decoding []*run
	kv       int // tokens of context of decoding
	refused  []*run
	emitted  []*run
	spare    [][]int32

	stuck   *run
	version uint64
}

func (e *reserving) requests() (running, waiting int) {
	return len(e.prompts) + len(e.decoding), e.waiting.len()
}

func (e *reserving) memory() *pool { return e.pool }
func (e *reserving) submit(x *run) { e.waiting.push(x) }

func (e *reserving) inFlight(to []*run) []*run {
	return append(append(append(append(to, e.refused...), e.decoding...), e.prompts...), e.waiting.all()...)
}

func (e *reserving) pass(now time.Duration) time.Duration {
	e.pool.now = now
	e.admit(now)
	defer e.tell.pass(now, e.pool)
	if len(e.prompts)+len(e.decoding) == 0 {
		return 0
	}
	tokens, pairs := len(e.decoding), 0.0
	for _, x := range e.prompts {
		x.chunk = max(0, min(x.Request.Prompt-x.computed, e.maxTokens-tokens))
		tokens += x.chunk
		pairs += float64(x.chunk) * (float64(x.computed) + float64(x.chunk)/2)
		e.load.prefilled += x.chunk
	}
	m := &e.model
	t := m.Over + max(m.Weights, m.PerToken*float64(tokens)) + m.PerPair*pairs + m.PerKVToken*float64(e.kv)
	return time.Duration(t * float64(time.Second))
}

// admit lets waiting requests in.
func (e *reserving) admit(now time.Duration) {
	p := e.pool
	for e.waiting.len() > 0 && len(e.prompts) < maxPrompts && len(e.prompts)+len(e.decoding) < e.maxSeqs {
		x := e.waiting.first()
		r, ids := x.Request, e.named(x)
		rest := ceilDiv(r.Prompt-len(ids)*e.blockTokens+r.Output, e.blockTokens) + 1
		if len(ids)+rest > p.capacity {
			e.waiting.pop()
			e.refused = append(e.refused, x)
			continue
		}
		if e.stuck == x && e.version == p.version {
			return
		}
		need := rest
		for _, id := range ids {
			if c := p.at[id]; c == 0 || c > 0 && p.c[c].refs == 0 {
				need++
			}
		}
		if p.held()+need > p.capacity {
			e.stuck, e.version = x, p.version
			return
		}
		e.waiting.pop()
		e.prompts = append(e.prompts, x)
		found := p.match(ids)
		e.hold(x, rest)
		if e.shared != nil {
			found = e.shared.match(ids)
			for _, id := range ids[:found] {
				p.computed(id)
			}
		}
		x.sealed = found
		x.computed = min(found*e.blockTokens, r.Prompt-1) // one token at least is computed
		x.admitted = true
		x.Admitted, x.Reused = now, x.computed
		e.load.asked += r.Prompt
		e.load.reused += x.Reused
	}
}

// named are the blocks of a prompt that others may find.
func (e *reserving) named(x *run) []int32 {
	if e.private {
		return nil
	}
	return x.Request.IDs
}

// hold gives a request all its memory; there is enough.
func (e *reserving) hold(x *run, rest int) {
	p := e.pool
	if k := len(e.spare); k > 0 {
		x.blocks, e.spare = e.spare[k-1], e.spare[:k-1]
	}
	for _, id := range e.named(x) {
		c := p.at[id]
		switch {
		case c == 0:
			c = p.take()
			p.announce(c, id)
		case c < 0:
			c = -c
			p.hold(c)
		default:
			p.hold(c)
		}
		x.blocks = append(x.blocks, c)
	}
	p.reserve(rest)
	x.reserved = rest
}

func (e *reserving) end(now time.Duration) (refused, emitted []*run) {
	e.pool.now = now
	going := e.decoding[:0]
	for _, x := range e.decoding {
		e.kv++
		if x.gen++; x.gen < x.Request.Output {
			going = append(going, x)
			continue
		}
		e.kv -= x.Request.Prompt + x.gen
		e.emitted = append(e.emitted, x)
		e.forget(x)
	}
	e.decoding = going
	prompts := e.prompts[:0]
	for _, x := range e.prompts {
		if e.compute(now, x); x.computed < x.Request.Prompt || x.chunk == 0 {
			prompts = append(prompts, x)
			continue
		}
		x.gen = 1
		e.emitted = append(e.emitted, x)
		if x.gen == x.Request.Output {
			e.forget(x)
		} else {
			e.kv += x.Request.Prompt + 1
			e.decoding = append(e.decoding, x)
		}
	}
	clear(e.prompts[len(prompts):])
	e.prompts = prompts
	refused, emitted = e.refused, e.emitted
	e.refused, e.emitted = e.refused[:0], e.emitted[:0]
	return refused, emitted
}

// compute ends a chunk.
func (e *reserving) compute(now time.Duration, x *run) {
	x.computed += x.chunk
	from, ids := x.sealed, e.named(x)
	for x.sealed < len(ids) && (x.sealed+1)*e.blockTokens <= x.computed {
		e.pool.computed(ids[x.sealed])
		x.sealed++
	}
	if from < x.sealed {
		e.tell.stored(now, e.pool, x.Request, from, x.sealed)
		e.shared.touch(ids[:x.sealed])
	}
}

// forget gives a request's memory back.
func (e *reserving) forget(x *run) {
	e.shared.touch(x.Request.IDs[:x.sealed])
	e.pool.releaseAll(x.blocks)
	e.pool.unreserve(x.reserved)
	e.spare = append(e.spare, x.blocks[:0])
	x.blocks = nil
}
