package router

import (
	"slices"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"attache/internal/block"
	"attache/internal/openai"
	"attache/internal/worker"
)

// Keeper keeps prompts in the caches of engines when their requests are over, for clients that ask for it.
type Keeper interface {
	// Keep takes in a prompt whose request is on its way to a worker, in place of what it has under the same key. It must return at
	// once, and so must ended, which is called once, when the request is over: with where the prompt is now, or with nil when nobody
	// is known to hold it. The keeper may hold on to p, which does not change.
	Keep(p *Prompt) (ended func(*Place))
	// Forget drops what is kept under a key: nobody will come back to it.
	Forget(key uint64)
}

// Prompt is one that its client says it will come back to.
type Prompt struct {
	// Key is the session, else the prompt itself, within its pool: what comes later under the same key stands for both.
	Key  uint64
	Kind openai.Kind
	Path string // without its query
	Body []byte // as the worker got it
	// Until is how long it is worth keeping; the zero time: only until the next turn's is computed.
	Until time.Time
	// Size is the memory that all of it takes, in bytes.
	Size int
}

// Place is where a prompt is held.
type Place struct {
	Worker *worker.Worker
	// Rank is the data-parallel rank of the worker, as Decision.Rank.
	Rank string
	// Held notes that the worker holds the whole prompt now. It may be called by anybody at any time.
	Held func()
	// Next are messages that the next turn's prompt has after this one's, with commas between them, where it is to be computed
	// ahead; else empty.
	Next []byte
}

// Keeps says what a Keeper is given.
type Keeps struct {
	Prompts bool // prompts that clients will come back to, for as long as they say
	Next    bool // prompts of which they want the next turn's computed ahead
}

// keeping is what a record has of a prompt that is kept.
type keeping struct {
	kind  openai.Kind
	until time.Time
	ahead bool // the next turn's prompt is wanted
	chain []block.Hash
	ended func(*Place)
	next  []byte
}

// keep notes whether the prompt is to be kept when its request is over.
func (a *attempt) keep() {
	if a.router.keeper == nil {
		return
	}
	hints, chain := &a.req.Hints, a.chain.Hashes
	switch {
	case hints.SessionFinal:
		if a.session != 0 {
			a.router.keeper.Forget(keyOf(a.pool, a.session))
		}
	case len(chain) > 0 && generates(a.req.Kind):
		k := keeping{kind: a.req.Kind}
		if keeps := &a.router.keeps; hints.CacheTTL > 0 && keeps.Prompts {
			k.until = a.started.Add(a.waited + hints.CacheTTL)
		}
		k.ahead = a.router.keeps.Next && hints.SpeculativePrefill && a.req.Kind == openai.Chat && a.req.Scan.Template.ContinueFinal != openai.Yes
		if k.ahead || !k.until.IsZero() {
			a.rec.keeping = &k
		}
	}
}

// Answered hands over what the next turn has after the messages of this request, where the decision asks for it (Decision.Ahead). It
// must come before End.
func (d Done) Answered(next []byte) {
	if d.rec == nil || d.rec.keeping == nil {
		return
	}
	d.rec.mu.Lock()
	defer d.rec.mu.Unlock()
	if k := d.rec.keeping; k.ahead && k.ended != nil {
		k.next = next
	}
}

// generates reports whether requests of this kind fill the cache of prompts.
func generates(k openai.Kind) bool {
	return k == openai.Chat || k == openai.Completions || k == openai.Responses || k == openai.Messages
}

func keyOf(p *pool, key uint64) uint64 { return xxh3.HashStringSeed(p.name, key) }

// Keep hands over the body that the worker gets, which is copied, where the decision asks for it (Decision.Keep).
func (d Done) Keep(body []byte) {
	rec := d.rec
	if rec == nil || rec.keeping == nil {
		return
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	k := rec.keeping
	if k.ended != nil || !rec.ended.IsZero() {
		return
	}
	k.chain = slices.Clone(rec.chain)
	key := rec.session
	if key == 0 {
		key = k.chain[len(k.chain)-1]
	}
	path, _, _ := strings.Cut(rec.path, "?")
	k.ended = rec.router.keeper.Keep(&Prompt{
		Key: keyOf(rec.pool, key), Kind: k.kind, Path: path, Body: slices.Clone(body), Until: k.until,
		Size: len(body) + 8*len(k.chain) + promptSize,
	})
}

// promptSize is what a prompt takes beside its body and its chain, in bytes, about.
const promptSize = 1 << 10

// kept tells the keeper where the prompt is, once its request is over.
func (rec *record) kept(o *Outcome) {
	if rec.keeping == nil {
		return
	}
	rec.mu.Lock()
	k := *rec.keeping
	rec.keeping.ended, rec.keeping.chain, rec.keeping.next = nil, nil, nil
	rec.mu.Unlock()
	if k.ended != nil {
		at := rec.place(o, k.chain)
		if at != nil {
			at.Next = k.next
		}
		k.ended(at)
	}
}

// place is where the prompt is; nil: nobody knows. o is nil when Envoy did not tell: then it is believed to be where it was sent.
func (rec *record) place(o *Outcome, chain []block.Hash) *Place {
	at, pool := rec.carrier(), rec.pool
	if o != nil {
		if o.Status != 200 || o.Broken {
			return nil
		}
		if at = rec.router.workers.Set().ByAddr(o.Served); at == nil {
			return nil
		}
	}
	s, rank := at.Slot, ""
	if at.Addr == rec.named[0].Addr {
		s, rank = rec.slot, rankOf(rec.named[0], rec.slot)
	}
	return &Place{Worker: at, Rank: rank, Held: func() { pool.index.Remember(s, chain) }}
}
