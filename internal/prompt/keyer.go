package prompt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/block"
	"attache/internal/openai"
)

// engineBlockTokens is the block size of vLLM where nothing else is configured.
const engineBlockTokens = 16

// Keyer makes the chains of one pool. It is safe for concurrent use.
type Keyer struct {
	cfg   Config
	model ModelConfig
	log   *slog.Logger
	exact atomic.Pointer[exact] // nil: there is no model, or it is still loading
	asker *asker
	check Check
	turns atomic.Uint64 // requests while counts were not trusted

	probes  map[string]probe // by address; only Probe touches it
	doubted atomic.Bool      // engines make other tokens, as their probes say

	writers sync.Pool // of *writer
	scratch sync.Pool // of *scratch

	mu    sync.Mutex
	noted map[Reason]bool // what was logged; guarded by mu
}

// exact is a loaded model and what was seen of its prompts.
type exact struct {
	model *Model
	texts texts
}

// scratch is memory that is used again.
type scratch struct {
	textScratch

	rendered Rendered
	all      []uint32
}

// keepText is the size in bytes above which the memory of a rendered text is not kept for the next one.
const keepText = 8 << 20

// Params are what a Keyer needs.
type Params struct {
	Config  Config
	Model   ModelConfig
	Log     *slog.Logger
	Metrics prometheus.Registerer // with the pool's label
}

// New checks that the model's folder is there; Load reads it. The configuration must have been validated.
func New(p Params) (*Keyer, error) {
	k := &Keyer{cfg: p.Config, model: p.Model, log: p.Log, asker: newAsker(), probes: map[string]probe{}, noted: map[Reason]bool{}}
	k.check.Bound = cmp.Or(p.Model.MismatchLimit, mismatchLimit)
	switch {
	case p.Model.BlockTokens > 0:
		k.cfg.BlockTokens = p.Model.BlockTokens
	case p.Model.ModelDir != "":
		k.cfg.BlockTokens = engineBlockTokens
	}
	k.scratch.New = func() any { return new(scratch) }
	if p.Model.ModelDir == "" {
		return k, nil
	}
	if info, err := os.Stat(p.Model.ModelDir); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s: must be a folder, with tokenizer.json in it", p.Model.ModelDir)
	}
	if p.Metrics != nil {
		p.Metrics.MustRegister(newCollector(k))
	}
	return k, nil
}

// BlockTokens is the size of this pool's blocks in tokens.
func (k *Keyer) BlockTokens() int { return k.cfg.BlockTokens }

// Load reads the model's folder, if there is one. Until it is done prompts are cut by length. It takes a fraction of a
// second of CPU and is meant to be run beside everything else.
func (k *Keyer) Load(context.Context) error {
	if k.model.ModelDir == "" {
		return nil
	}
	m, err := OpenModel(k.model)
	if err != nil {
		return err
	}
	k.use(m)
	for _, note := range m.tokenizer.Notes() {
		k.log.Warn("the vocabulary asks for something unusual", "dir", k.model.ModelDir, "note", note)
	}
	k.log.Info("prompts are cut into the tokens of a model", "dir", k.model.ModelDir, "vocabulary", m.tokenizer.Vocabulary(),
		"chat_template", m.plain.template != nil, "block_tokens", k.cfg.BlockTokens)
	return nil
}

// use makes m the model of the chains to come.
func (k *Keyer) use(m *Model) {
	k.exact.Store(&exact{
		model: m,
		texts: texts{tokenizer: m.tokenizer, blockTokens: k.cfg.BlockTokens, memo: newMemo(k.cfg.MemoBytes)},
	})
}

// Query is a request whose chain is wanted.
type Query struct {
	Body []byte
	Scan *openai.Request // of Body; nil when it is absent or not understood
	Seed uint64          // the namespace, see block.Seed
	// Dialect is that of the engines.
	Dialect Dialect
	// Model is the name by which the engines know the model, and Engine the address, host:port, of one that may be asked for
	// tokens. Empty: none may.
	Model, Engine string
}

// Chain makes the chain of the request's prompt into dst, whose memory is used again. A request without a prompt gets an
// empty chain of rung None. It waits only for an engine, only if the configuration asks for that.
func (k *Keyer) Chain(ctx context.Context, dst *Chain, q *Query) {
	*dst = Chain{Hashes: dst.Hashes[:0], BlockTokens: k.cfg.BlockTokens, Why: NoPrompt}
	if q.Scan == nil || len(q.Scan.Parts) == 0 {
		return
	}
	first := q.Scan.Parts[0]
	if first.Kind == openai.TokenIDs {
		k.ids(dst, q)
	} else if unknown := k.known(dst, q); unknown != nil {
		dst.Why = unknown.Why
		if !k.ask(ctx, dst, q) {
			k.approximate(dst, q)
		}
		k.note(dst.Why, unknown)
	}
	if (first.Kind == openai.Prompt || first.Kind == openai.TokenIDs) && len(q.Scan.Parts) > 1 {
		// Engines work on the prompts of a batch as on requests of their own, so no chain covers them all: the further ones
		// count as load only.
		for _, p := range q.Scan.Parts[1:] {
			dst.Tokens += k.more(q.Body, p)
		}
		dst.Count, dst.Ours = 0, false
	}
}

// ids makes the chain of a prompt that came as token ids.
func (k *Keyer) ids(dst *Chain, q *Query) {
	w := k.writer()
	defer k.writers.Put(w)
	w.out.Reset(k.cfg.BlockTokens*idBytes, q.Seed, dst.Hashes)
	w.ids(q.Scan.Parts[0].Span.In(q.Body))
	dst.Tokens = w.out.Bytes() / idBytes
	dst.Hashes = w.out.Sum()
	dst.Rung, dst.Why, dst.Own, dst.Count = Exact, "", len(dst.Hashes), dst.Tokens
}

// shadowed is how many requests of a pool whose counts are not trusted lie between two that are counted all the same, to
// find out when they can be trusted again.
const shadowed = 4

// known makes the chain of a prompt whose tokens can be told here.
func (k *Keyer) known(dst *Chain, q *Query) *UnknownError {
	e := k.exact.Load()
	switch {
	case k.model.ModelDir == "":
		return errNoModel
	case e == nil:
		return errLoading
	}
	s := k.scratch.Get().(*scratch) //nolint:forcetypeassert // New fills the pool
	defer k.keep(s)
	if !k.trusted() {
		if k.turns.Add(1)%shadowed == 0 {
			var shadow Chain
			if k.render(e, &shadow, q, s) == nil {
				dst.Count, dst.Ours = shadow.Count, shadow.Ours
			}
		}
		return errMismatch
	}
	return k.render(e, dst, q, s)
}

// State is the best way to a chain that requests have at present, and why there is no better one.
func (k *Keyer) State() (Rung, Reason) {
	best, why := Exact, Reason("")
	switch {
	case k.model.ModelDir == "":
		best, why = Approximate, NoModel
	case k.exact.Load() == nil:
		best, why = Approximate, Loading
	case !k.trusted():
		best, why = Approximate, Mismatch
	}
	if best == Approximate && k.model.Tokenize {
		best = Engine
	}
	return best, why
}

// trusted tells whether our tokens are the engines', as far as they let us know.
func (k *Keyer) trusted() bool { return k.check.Trusted() && !k.doubted.Load() }

func (k *Keyer) keep(s *scratch) {
	if cap(s.rendered.Text) > keepText {
		s.rendered.Text = nil
	}
	k.scratch.Put(s)
}

// render makes the exact chain.
func (k *Keyer) render(e *exact, dst *Chain, q *Query, s *scratch) *UnknownError {
	s.rendered.reset()
	if err := e.model.Render(&s.rendered, q.Body, q.Scan, q.Dialect); err != nil {
		return asUnknown(err)
	}
	dst.Rung, dst.Why = Exact, ""
	if s.rendered.Media > 0 {
		return k.withMedia(e, dst, q, s)
	}
	var before, after []uint32
	if s.rendered.Around {
		before, after = e.model.before, e.model.after
	}
	if !e.texts.chain(dst, s.rendered.Text, before, after, q.Seed, &s.textScratch) {
		return errGaveUp
	}
	dst.Own, dst.Count, dst.Ours = len(dst.Hashes), dst.Tokens, true
	return nil
}

// What keeps prompts from being exact that no request brings with it.
var (
	errNoModel  = &UnknownError{Why: NoModel}
	errLoading  = &UnknownError{Why: Loading}
	errMismatch = &UnknownError{Why: Mismatch}
	errGaveUp   = &UnknownError{Why: TokenizerFailed, Err: errors.New("the vocabulary's pattern takes too long on this text")}
)

// ask makes the chain of the tokens that an engine tells; it reports whether it did.
func (k *Keyer) ask(ctx context.Context, dst *Chain, q *Query) bool {
	if !k.model.Tokenize || q.Engine == "" || !askable(dst.Why) {
		return false
	}
	ids, err := k.asker.tokens(ctx, q)
	if err != nil {
		dst.Why = AskFailed
		k.note(AskFailed, &UnknownError{Why: AskFailed, Err: err})
		return false
	}
	dst.Hashes = block.AppendBlocks(dst.Hashes[:0], ids, k.cfg.BlockTokens, q.Seed)
	dst.Rung, dst.Tokens, dst.Own = Engine, len(ids), len(dst.Hashes)
	if !dst.Ours {
		dst.Count = len(ids)
	}
	return true
}

// approximate makes a chain of the prompt's text.
func (k *Keyer) approximate(dst *Chain, q *Query) {
	w := k.writer()
	defer k.writers.Put(w)
	dst.Rung = Approximate
	w.out.Reset(k.cfg.BlockTokens*k.cfg.BytesPerToken, q.Seed, dst.Hashes[:0])
	if first := q.Scan.Parts[0]; first.Kind == openai.Prompt {
		w.payload(q.Body, first)
	} else {
		w.conversation(q.Body, q.Scan)
	}
	dst.Tokens = k.tokens(w.out.Bytes())
	dst.Hashes = w.out.Sum()
}

func (k *Keyer) writer() *writer {
	if w, ok := k.writers.Get().(*writer); ok {
		return w
	}
	return new(writer)
}

// tokens estimates the length of a text.
func (k *Keyer) tokens(bytes int) int { return (bytes + k.cfg.BytesPerToken - 1) / k.cfg.BytesPerToken }

// more is the length of a further prompt of a batch.
func (k *Keyer) more(body []byte, p openai.Part) int {
	if p.Kind == openai.TokenIDs {
		return countIDs(p.Span.In(body))
	}
	return k.tokens(p.Span.Len())
}

// quiet are reasons that are no news: they follow from the configuration, or pass by themselves.
var quiet = []Reason{NoPrompt, NoModel, Loading, Mismatch}

// note logs a reason, the first time.
func (k *Keyer) note(why Reason, u *UnknownError) {
	if slices.Contains(quiet, why) {
		return
	}
	k.mu.Lock()
	first := !k.noted[why]
	k.noted[why] = true
	k.mu.Unlock()
	if !first {
		return
	}
	detail := "none"
	if u.Err != nil && why != Refused { // a template's refusal may quote the prompt
		detail = u.Err.Error()
	}
	k.log.Warn("the tokens of a prompt are not known exactly; this is logged once per reason and counted in "+
		"attache_router_chains_total", "reason", string(why), "detail", detail)
}

// Compare takes in what an engine counted for a prompt whose chain claimed a Count. request names it in the log.
func (k *Keyer) Compare(count, engine int, request string) {
	if count == 0 || engine == 0 {
		return
	}
	if !k.check.Observe(count, engine) {
		return
	}
	if k.check.Trusted() {
		k.log.Info("token counts agree with the engines' again: prompts are cut into the model's tokens", "dir", k.model.ModelDir)
		return
	}
	k.log.Error("token counts differ from those of the engines: prompts are cut by length until they agree again. "+
		"Is the model folder that of the model, revision and chat template which the engines serve?",
		"dir", k.model.ModelDir, "example_request", request, "counted_here", count, "counted_by_engine", engine,
		"mismatch_limit", k.check.Bound)
}
