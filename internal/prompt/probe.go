package prompt

import (
	"context"
	"fmt"
	"slices"
	"time"

	"attache/internal/openai"
)

// probeBody is a chat whose tokens engines are asked for, to compare them with ours: with a bit of all that tokenizers and
// templates treat in ways of their own.
const probeBody = `{"messages":[{"role":"user","content":"Grüße, 你好! It's 1234567 tokens\n\n  def f(x):\n\treturn x  # ok?"},` +
	`{"role":"assistant","content":"I'm fine; it's 3.14."},{"role":"user","content":" And then? "}]}`

// probeAgain is how long after a probe whose tokens differed an engine is asked again.
const probeAgain = 30 * time.Second

// Probed is an engine that may be asked.
type Probed struct {
	Address string // host:port
	Epoch   uint64 // changes when the engine is seen to have restarted
	Dialect Dialect
}

// probe is what an engine answered.
type probe struct {
	epoch   uint64
	at      time.Time
	differs bool
}

// Probe asks at most one of the engines for the tokens of a fixed chat, one that was not asked since it started, and
// compares them with ours. While more than half of the engines make other tokens, chains are not exact, see Mismatch. It
// finds at once, with the first token that differs, what counts of tokens tell only later. engines are all of the pool that
// are ready. It is meant to be called every few seconds, by one goroutine.
func (k *Keyer) Probe(ctx context.Context, engines []Probed, now time.Time) {
	e := k.exact.Load()
	if e == nil {
		return
	}
	for address := range k.probes {
		if !slices.ContainsFunc(engines, func(e Probed) bool { return e.Address == address }) {
			delete(k.probes, address)
		}
	}
	for _, engine := range engines {
		last, asked := k.probes[engine.Address]
		if asked && last.epoch == engine.Epoch && (!last.differs || now.Sub(last.at) < probeAgain) {
			continue
		}
		ours, theirs, err := k.probe(ctx, e, engine)
		k.probes[engine.Address] = probe{epoch: engine.Epoch, at: now, differs: err == nil && difference(ours, theirs) >= 0}
		switch at := difference(ours, theirs); {
		case err != nil:
			k.log.Debug("an engine does not tell its tokens", "engine", engine.Address, "error", err)
		case at >= 0 && !last.differs:
			k.log.Error("an engine makes other tokens than the model folder says", "engine", engine.Address, "dir", k.model.ModelDir,
				"first_difference_at_token", at, "here", k.around(e, ours, at), "engine_has", k.around(e, theirs, at))
		case at < 0:
			k.log.Info("an engine makes the same tokens as the model folder says", "engine", engine.Address, "tokens", len(ours))
		}
		break
	}
	differing := 0
	for _, p := range k.probes {
		if p.differs {
			differing++
		}
	}
	k.doubted.Store(2*differing > len(k.probes))
}

// probe makes the tokens of the fixed chat here and there. An error means that there is nothing to compare.
func (k *Keyer) probe(ctx context.Context, e *exact, engine Probed) (ours, theirs []uint32, err error) {
	var req openai.Request
	if err := openai.Scan(&req, openai.Chat, []byte(probeBody)); err != nil {
		return nil, nil, err
	}
	q := Query{Body: []byte(probeBody), Scan: &req, Dialect: engine.Dialect, Engine: engine.Address}
	var r Rendered
	if err := e.model.Render(&r, q.Body, q.Scan, q.Dialect); err != nil {
		return nil, nil, err
	}
	question, err := questionOf(&q)
	if err != nil {
		return nil, nil, err
	}
	if theirs, err = k.asker.post(ctx, engine.Address, question); err != nil {
		return nil, nil, err
	}
	return e.model.Tokens(nil, &r), theirs, nil
}

// difference is the place of the first token in which a and b differ, or -1.
func difference(a, b []uint32) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

// around shows the tokens from a place on, as ids and as text.
func (k *Keyer) around(e *exact, ids []uint32, at int) string {
	few := ids[min(at, len(ids)):min(at+5, len(ids))]
	return fmt.Sprintf("%d %q", few, e.model.tokenizer.AppendText(nil, few))
}
