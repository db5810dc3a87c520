package router

import (
	"time"

	"attache/internal/traceparent"
)

// Timing is when a request came in, where somebody wants to know: then the steps of its decision are timed, too. The zero Timing is
// for all other requests, which pay nothing.
type Timing struct {
	Received time.Time // first byte at attache
	Complete time.Time // last byte of what is needed for a decision
	Parsed   time.Time // body read
	Parent   traceparent.Parent
}

// Phases say when each step of a request was over, counted from Timing.Received, or from the beginning of Route where that is not
// known. 0: the step did not happen, or nobody timed it.
type Phases struct {
	Complete time.Duration // it was here as a whole
	Parsed   time.Duration // its body was understood
	Chained  time.Duration // its prompt was cut into blocks
	Looked   time.Duration // what every candidate holds was known
	Picked   time.Duration // it was booked on a worker, after the wait at the gate
	Decided  time.Duration // Route returned
	Sent     time.Duration // Envoy had the reply

	Prefilling  time.Duration // the engine's events showed the first new block
	Prefilled   time.Duration // they showed all: the prompt is computed
	Transferred time.Duration // the prompt's blocks were where the answer is made; always 0, as long as one worker does both
	FirstToken  time.Duration // the client had the first token, as Envoy's access log says; streams only
	Ended       time.Duration // the request was over
}

// mark sets a phase that ends now, once, and never to 0.
func mark(phase *time.Duration, began, now time.Time) {
	if *phase == 0 {
		*phase = max(now.Sub(began), 1)
	}
}

// clock begins the phases of a request.
func (a *attempt) clock(t *Timing) {
	a.began, a.clocked = a.started, !t.Received.IsZero()
	if !a.clocked {
		return
	}
	a.began = t.Received
	if !t.Complete.IsZero() {
		mark(&a.phases.Complete, a.began, t.Complete)
	}
	if !t.Parsed.IsZero() {
		mark(&a.phases.Parsed, a.began, t.Parsed)
	}
}

// mark sets a phase that ends now, if the request is timed.
func (a *attempt) mark(phase *time.Duration) {
	if a.clocked {
		mark(phase, a.began, a.router.now())
	}
}

// computed notes how far the engine has got with the prompt.
func (rec *record) computed(blocks int, all bool) {
	now := rec.router.now()
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if blocks > rec.captured/max(rec.blockTokens, 1) {
		mark(&rec.phases.Prefilling, rec.began, now)
	}
	if all {
		mark(&rec.phases.Prefilled, rec.began, now)
	}
}

// decided notes that Route is about to return.
func (rec *record) decided(now time.Time) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	mark(&rec.phases.Decided, rec.began, now)
}

// Sent says that the gateway has the reply in which the decision travels.
func (d Done) Sent() {
	if d.rec == nil || !d.rec.clocked {
		return
	}
	d.rec.mu.Lock()
	defer d.rec.mu.Unlock()
	mark(&d.rec.phases.Sent, d.rec.began, d.rec.router.now())
}

// Phases are the request's phases so far.
func (d Done) Phases() Phases {
	if d.rec == nil {
		return Phases{}
	}
	d.rec.mu.Lock()
	defer d.rec.mu.Unlock()
	return d.rec.phases
}

// Observer is told of requests that are over.
type Observer interface {
	// Finished is called once per decision, when Envoy has told what became of it, or when that is not expected any more. It must
	// return at once; what f points to never changes.
	Finished(f *Finished)
}

// Finished is a request that is over, from its first byte on.
type Finished struct {
	Parent traceparent.Parent // of whoever sent it; the zero Parent: it began here
	Began  time.Time          // first byte at attache
	Phases Phases
	Waited time.Duration // at the gate

	ID, RequestID, Path, Model, Pool string
	Policy, Rung, Why                string // that decided; how the prompt was cut, and why not in a better way
	Worker, Served                   string // names: chosen, and who answered; "" nobody, or not known
	PromptTokens                     int
	Available, Captured              int           // cached tokens: best any candidate offered, the chosen one's
	PredictedTTFT                    time.Duration // of the engine: its queue, and this prompt
	Outcome                          *Outcome      // nil: Envoy did not tell
}

// tell shows a request that is over to the keeper and to the observer.
func (r *Router) tell(rec *record) {
	if r.observer == nil && rec.keeping == nil {
		return
	}
	rec.mu.Lock()
	phases, out := rec.phases, rec.out
	rec.mu.Unlock()
	rec.kept(out)
	if r.observer == nil {
		return
	}
	f := &Finished{
		Parent: rec.parent, Began: rec.began, Phases: phases, Waited: rec.waited,
		ID: rec.id(), RequestID: rec.requestID, Path: rec.path, Model: rec.model, Pool: rec.pool.name,
		Policy: rec.policy, Rung: rec.rung.String(), Why: string(rec.why), Worker: rec.named[0].Name,
		PromptTokens: rec.promptTokens, Available: rec.available, Captured: rec.captured, PredictedTTFT: rec.booking.PredictedTTFT, Outcome: out,
	}
	if out != nil {
		if w := r.workers.Set().ByAddr(out.Served); w != nil {
			f.Served = w.Name
		}
	}
	r.observer.Finished(f)
}
