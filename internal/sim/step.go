package sim

import (
	"fmt"
	"slices"
	"time"

	"attache/internal/block"
)

// Request is what a Core is asked to do. The text stays outside: a Core knows lengths and the names of blocks, and the tokens
// only if somebody wants to know what is in its cache.
type Request struct {
	// ID tells requests apart; the caller chooses it.
	ID uint64
	// Prompt and Output are lengths in tokens, both at least 1. The output has exactly that length.
	Prompt, Output int
	// Chain names the full blocks of prompt and output together.
	Chain []block.Hash
	// Tokens are those of prompt and output together, LoRA and Salt what separates their KV from that of equal tokens. They
	// are needed, and read, only when changes are recorded (Config.Events).
	Tokens     []uint32
	LoRA, Salt string
	// Session is told with the blocks that the request stores.
	Session string
	// Report wishes that the blocks found in the cache are told of again, from the first (vLLM: kv_cache_report_mode).
	Report bool
	// Bypass leaves what is in the cache unused (vLLM: prompt_logprobs).
	Bypass bool
}

// Event says that a request got a token.
type Event struct {
	ID uint64
	// Token counts the tokens that the request has now, from 1.
	Token int
	// Last is set with the last one; the request is gone from the Core then.
	Last bool
	// Cached is how many prompt tokens came from the prefix cache, Waited how long the request was queued.
	Cached int
	Waited time.Duration
}

// Stats are figures of a Core. Those that count never fall.
type Stats struct {
	Running, Waiting int // requests
	Held, Pages      int // blocks of KV memory that requests hold, of how many
	Queried, Hit     int // counted at admission: prompt tokens looked up in the cache, and found
	Prompted         int // prompt tokens of requests that got a first token
	Generated        int // tokens of answers
	Evicted          int // blocks
	Idle             int // blocks that nobody holds but that can be found
	Onboarded        int // prompt tokens that came from a lower tier, of those found
	Steps            int
}

// add adds the figures of another Core.
func (s *Stats) add(o Stats) {
	s.Running += o.Running
	s.Waiting += o.Waiting
	s.Held += o.Held
	s.Pages += o.Pages
	s.Queried += o.Queried
	s.Hit += o.Hit
	s.Prompted += o.Prompted
	s.Generated += o.Generated
	s.Evicted += o.Evicted
	s.Idle += o.Idle
	s.Onboarded += o.Onboarded
	s.Steps += o.Steps
}

// Core is an engine without a clock, goroutines or I/O. See Step for how it works. Not safe for concurrent use.
type Core struct {
	model   Model
	speed   float64
	minStep time.Duration

	blockTokens, maxTokens, maxSeqs int

	cache   *cache
	waiting []*sequence // in order of arrival
	running []*sequence // in order of admission
	byID    map[uint64]*sequence
	events  []Event
	stats   Stats

	hashSeed uint64
	prefill  bool // the last step computed prompt tokens
}

// sequence is a request inside a Core.
type sequence struct {
	Request

	arrived   time.Duration
	waited    time.Duration
	pages     []int32 // for all of prompt and output, those with cached contents first
	cached    int     // prompt tokens found in the cache
	computed  int     // tokens whose KV is there
	named     int     // pages whose block is computed
	generated int     // tokens of the answer; above 0 the prompt is done
	chunk     int     // tokens in the step that is being formed
	names     *named  // nil when nobody wants to know what is in the cache
}

// NewCore makes an engine of a configuration that is valid; only the fields that are about the engine itself count.
func NewCore(cfg Config) *Core {
	p, _ := profileOf(cfg.Profile)
	c := &Core{
		model: p.model, speed: cfg.Speed, minStep: cfg.MinStep,
		blockTokens: cfg.BlockTokens, maxTokens: cfg.MaxTokens, maxSeqs: cfg.MaxSeqs,
		cache: newCache(cfg.blocks()), byID: make(map[uint64]*sequence), hashSeed: cfg.HashSeed,
	}
	c.cache.lower = newTiers(&cfg)
	if cfg.records() {
		c.cache.changes = &changes{rules: cfg.rules()}
	}
	return c
}

// Submit puts a request at the end of the queue. The error says why it could never run.
func (c *Core) Submit(now time.Duration, r Request) error {
	switch {
	case r.Prompt < 1 || r.Output < 1:
		return fmt.Errorf("request %d: prompt of %d and output of %d tokens: both must be at least 1", r.ID, r.Prompt, r.Output)
	case c.pagesOf(r) > len(c.cache.pages):
		return fmt.Errorf("request %d: prompt of %d and output of %d tokens need %d blocks of KV memory, there are %d",
			r.ID, r.Prompt, r.Output, c.pagesOf(r), len(c.cache.pages))
	case c.byID[r.ID] != nil:
		return fmt.Errorf("request %d: its id is in use", r.ID)
	case c.cache.changes != nil && len(r.Tokens) != r.Prompt+r.Output:
		return fmt.Errorf("request %d: %d token ids of a prompt of %d and an output of %d: all must be given", r.ID, len(r.Tokens), r.Prompt, r.Output)
	}
	s := &sequence{Request: r, arrived: now}
	if c.cache.changes != nil {
		s.names = newNamed(&r, c.blockTokens, c.hashSeed)
	}
	c.byID[r.ID] = s
	c.waiting = append(c.waiting, s)
	return nil
}

// pagesOf is how much KV memory a request needs in the end. The last token of an answer is never fed back, so it has none.
func (c *Core) pagesOf(r Request) int {
	return (r.Prompt + r.Output - 1 + c.blockTokens - 1) / c.blockTokens
}

// Step forms a batch at the instant now and computes it: took is how long that takes, events is what it brings at its end,
// in order of admission, valid until the next call. The next step begins then. Without work took is 0.
//
// Running answers come first and take one token of the budget each; then prompts in order of admission, each as much as
// the budget has left (chunked prefill); then new requests from the head of the queue, as long as budget, sequences and
// KV memory last. A request is admitted with memory for its prompt and its answer, so none is ever preempted; the head of
// the queue blocks those behind it. What the cache holds of its prompt is decided then, full blocks only, and never all of
// it: the first token of the answer comes out of computing the last of the prompt. Blocks, of the answer as well, can be
// found by others from the step on that computes them, which computes in order: of two equal prompts that are admitted to
// one step the second reuses what the first computes, as in vLLM.
func (c *Core) Step(now time.Duration) (took time.Duration, events []Event) {
	b := c.form(now)
	if b.tokens == 0 {
		return 0, nil
	}
	c.prefill = b.pairs > 0
	c.stats.Steps++
	c.events = c.events[:0]
	going := c.running[:0]
	for _, s := range c.running {
		if c.compute(s); s.generated < s.Output {
			going = append(going, s)
		} else {
			c.drop(s)
		}
	}
	clear(c.running[len(going):])
	c.running = going
	took = c.model.step(b) + time.Duration(b.onboard*float64(time.Second))
	return max(c.minStep, time.Duration(float64(took)/c.speed)), c.events
}

// form chooses the chunks of a step.
func (c *Core) form(now time.Duration) batch {
	var b batch
	for _, s := range c.running {
		if s.chunk = 0; s.generated > 0 {
			s.chunk = 1
			b.tokens++
			b.kv += s.Prompt + s.generated
			c.nameNext(s)
		}
	}
	for _, s := range c.running {
		if s.generated == 0 {
			c.fill(s, &b)
		}
	}
	for b.tokens < c.maxTokens && len(c.running) < c.maxSeqs && len(c.waiting) > 0 && c.admit(c.waiting[0], now, &b) {
		s := c.waiting[0]
		c.waiting = slices.Delete(c.waiting, 0, 1)
		c.running = append(c.running, s)
		c.fill(s, &b)
	}
	return b
}

// fill gives a prompt what is left of the budget.
func (c *Core) fill(s *sequence, b *batch) {
	s.chunk = min(s.Prompt-s.computed, c.maxTokens-b.tokens)
	b.tokens += s.chunk
	b.pairs += float64(s.chunk) * (float64(s.computed) + float64(s.chunk)/2)
	c.nameNext(s)
}

// nameNext names the blocks that a sequence's chunk fills.
func (c *Core) nameNext(s *sequence) {
	c.cache.changes.of(s.Session)
	for s.named < len(s.Chain) && (s.named+1)*c.blockTokens <= s.computed+s.chunk {
		c.cache.name(s.pages[s.named], s.Chain[s.named], s.names.block(s.named))
		s.named++
	}
	c.cache.changes.of("")
}

// admit gives a request its memory, if there is enough.
func (c *Core) admit(s *sequence, now time.Duration, b *batch) bool {
	found := s.Chain[:min(len(s.Chain), (s.Prompt-1)/c.blockTokens)]
	if s.Bypass {
		found = nil
	}
	found = found[:c.cache.match(found)]
	below := 0
	for _, h := range found {
		if _, ok := c.cache.byName[h]; !ok {
			below++
		}
	}
	fresh := c.pagesOf(s.Request) - len(found) + below
	if c.cache.room()-c.cache.idleOf(found) < fresh {
		return false
	}
	s.pages = c.cache.hold(found, make([]int32, 0, len(found)+fresh))
	if below == 0 {
		s.pages = c.cache.take(fresh, s.pages)
	} else {
		c.onboard(s, found, fresh, b)
	}
	if s.Report {
		c.report(s, len(found))
	}
	s.named = len(found)
	s.cached = len(found) * c.blockTokens
	s.computed = s.cached
	s.waited = max(0, now-s.arrived) // a step that is late is formed as of when it was due
	c.stats.Queried += s.Prompt
	c.stats.Hit += s.cached
	c.stats.Onboarded += below * c.blockTokens
	return true
}

// onboard brings the blocks that were found in lower tiers only back to the device, into some of the fresh pages. The step
// waits for them.
func (c *Core) onboard(s *sequence, found []block.Hash, fresh int, b *batch) {
	for i := len(found) - 1; i >= 0; i-- { // the deepest goes first, again
		if s.pages[i] == none {
			t := c.cache.below(found[i])
			t.use(found[i]) // or making room would evict it
			b.onboard += t.perToken() * float64(c.blockTokens)
		}
	}
	taken := c.cache.take(fresh, nil)
	c.cache.changes.of(s.Session)
	defer c.cache.changes.of("")
	for i, id := range s.pages {
		if id == none {
			s.pages[i] = taken[0]
			c.cache.name(taken[0], found[i], s.names.block(i))
			taken = taken[1:]
		}
	}
	s.pages = append(s.pages, taken...)
}

// report tells again of the first n blocks of a sequence.
func (c *Core) report(s *sequence, n int) {
	if s.names == nil {
		return
	}
	blocks := make([]*Block, n)
	for i := range blocks {
		blocks[i] = s.names.block(i)
	}
	c.cache.changes.of(s.Session)
	c.cache.changes.again(blocks)
	c.cache.changes.of("")
}

// compute does a sequence's part of a step.
func (c *Core) compute(s *sequence) {
	if s.chunk == 0 {
		return
	}
	s.computed += s.chunk
	if s.computed < s.Prompt {
		return
	}
	if s.generated == 0 {
		c.stats.Prompted += s.Prompt
	}
	s.generated++
	c.stats.Generated++
	c.events = append(c.events, Event{ID: s.ID, Token: s.generated, Last: s.generated == s.Output, Cached: s.cached, Waited: s.waited})
}

// drop forgets a sequence; its full blocks stay in the cache.
func (c *Core) drop(s *sequence) {
	if l := c.cache.changes; l != nil && l.partial && s.named == s.computed/c.blockTokens && s.computed%c.blockTokens > 0 {
		rest := s.names.rest(s.named, s.computed%c.blockTokens)
		c.cache.name(s.pages[s.named], rest.Sequence, rest)
	}
	c.cache.release(s.pages)
	delete(c.byID, s.ID)
}

// Abort takes a request out at once, wherever it is, and reports whether it was there. Events that the last Step returned
// for it are void.
func (c *Core) Abort(id uint64) bool {
	s := c.byID[id]
	if s == nil {
		return false
	}
	same := func(t *sequence) bool { return t == s }
	c.waiting = slices.DeleteFunc(c.waiting, same)
	c.running = slices.DeleteFunc(c.running, same)
	c.drop(s)
	return true
}

// Reset empties the prefix cache, all tiers of it. Requests that run go on; what they compute from now on can be found.
func (c *Core) Reset() { c.cache.reset() }

// Changes are what happened to the cache since the last call, in order, if changes are recorded (Config.Events). They
// belong to the caller.
func (c *Core) Changes() []Change {
	if c.cache.changes == nil {
		return nil
	}
	list := c.cache.changes.list
	c.cache.changes.list = nil
	return list
}

// Stats are the figures at this moment.
func (c *Core) Stats() Stats {
	s := c.stats
	s.Running, s.Waiting = len(c.running), len(c.waiting)
	s.Held, s.Pages, s.Evicted, s.Idle = c.cache.held(), len(c.cache.pages), c.cache.evicted, c.cache.idle
	return s
}
