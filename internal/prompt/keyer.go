package prompt

import (
	"sync"

	"attache/internal/openai"
)

// Keyer makes chains. It is safe for concurrent use.
type Keyer struct {
	cfg     Config
	writers sync.Pool // of *writer
}

// New checks the configuration.
func New(cfg Config) (*Keyer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Keyer{cfg: cfg}, nil
}

// Chain makes the chain of the request's prompt into dst, whose memory is used again. req must come from a Scan of body;
// seed is the namespace, see block.Seed. A request without a prompt gets an empty chain of rung None.
func (k *Keyer) Chain(dst *Chain, body []byte, req *openai.Request, seed uint64) {
	*dst = Chain{Hashes: dst.Hashes[:0], BlockTokens: k.cfg.BlockTokens}
	if len(req.Parts) == 0 {
		return
	}
	w, ok := k.writers.Get().(*writer)
	if !ok {
		w = new(writer)
	}
	dst.Rung = Approximate
	switch req.Parts[0].Kind {
	case openai.TokenIDs:
		w.out.Reset(k.cfg.BlockTokens*idBytes, seed, dst.Hashes)
		w.ids(req.Parts[0].Span.In(body))
		dst.Tokens = w.out.Bytes() / idBytes
	case openai.Prompt:
		w.out.Reset(k.cfg.BlockTokens*k.cfg.BytesPerToken, seed, dst.Hashes)
		w.payload(body, req.Parts[0])
		dst.Tokens = k.tokens(w.out.Bytes())
	default:
		w.out.Reset(k.cfg.BlockTokens*k.cfg.BytesPerToken, seed, dst.Hashes)
		w.conversation(body, req)
		dst.Tokens = k.tokens(w.out.Bytes())
	}
	dst.Hashes = w.out.Sum()
	k.writers.Put(w)
	if kind := req.Parts[0].Kind; kind == openai.Prompt || kind == openai.TokenIDs {
		for _, p := range req.Parts[1:] {
			dst.Tokens += k.more(body, p)
		}
	}
}

// tokens estimates the length of a text.
func (k *Keyer) tokens(bytes int) int { return (bytes + k.cfg.BytesPerToken - 1) / k.cfg.BytesPerToken }

// more is the length of a further prompt of a batch. Engines work on the prompts of a batch as on requests of their own,
// so there is no chain that covers them all: they count as load only.
func (k *Keyer) more(body []byte, p openai.Part) int {
	if p.Kind == openai.TokenIDs {
		return countIDs(p.Span.In(body))
	}
	return k.tokens(p.Span.Len())
}
