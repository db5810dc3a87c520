package prompt

import (
	"context"
	"errors"
	"slices"
)

// Explained is a chain together with what it was made of, for people who debug a template.
type Explained struct {
	Chain

	// Prompt is the text that the template made and IDs its tokens; empty where they are not known.
	Prompt []byte
	IDs    []uint32
	// Err says more about Why; nil for nothing.
	Err error
}

// Explain makes the chain of a request, and shows how. Load must have been called.
func (k *Keyer) Explain(ctx context.Context, q *Query) Explained {
	var x Explained
	k.Chain(ctx, &x.Chain, q)
	e := k.exact.Load()
	if e == nil || q.Scan == nil {
		return x
	}
	var r Rendered
	if err := e.model.Render(&r, q.Body, q.Scan, q.Dialect); err != nil {
		if u := new(UnknownError); errors.As(err, &u) {
			err = u.Err
		}
		x.Err = err
		return x
	}
	x.Prompt, x.IDs = r.Text, e.model.Tokens(nil, &r)
	return x
}

// ExplainText is Explain for a text that is taken as it is, without a template and with nothing put around it.
func (k *Keyer) ExplainText(text []byte, seed uint64) Explained {
	var x Explained
	e := k.exact.Load()
	if e == nil {
		return x
	}
	var s textScratch
	e.texts.chain(&x.Chain, text, nil, nil, seed, &s)
	x.Rung, x.Own, x.Count = Exact, len(x.Hashes), x.Tokens
	x.Prompt, x.IDs = slices.Clone(text), e.model.tokenizer.Append(nil, text)
	return x
}

// Piece is the text of one token.
func (k *Keyer) Piece(id uint32) []byte {
	if e := k.exact.Load(); e != nil {
		return e.model.tokenizer.AppendText(nil, []uint32{id})
	}
	return nil
}
