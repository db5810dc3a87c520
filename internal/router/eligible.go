package router

import (
	"fmt"
	"slices"
	"strings"

	"attache/internal/hints"
	"attache/internal/openai"
	"attache/internal/prompt"
	"attache/internal/slot"
	"attache/internal/worker"
)

// Exclusion is why a worker may not serve a request.
type Exclusion uint8

// The exclusions. Of several that apply the first one is told.
const (
	Admitted              Exclusion = iota // it may serve
	ExcludedSubset                         // outside the gateway's subset
	ExcludedWorker                         // the request names another worker
	ExcludedRank                           // it does not have the rank that the request names
	ExcludedTaint                          // it lacks a taint that the request requires
	ExcludedModel                          // it says what it serves, and the request's model is not among it
	ExcludedRole                           // it computes prompts for others only
	ExcludedContextLength                  // prompt and answer are longer than it takes
	ExcludedUnhealthy                      // its health check fails
	ExcludedDraining                       // told to take nothing new
	ExcludedStarting                       // its health was never answered
	ExcludedSuspect                        // requests failed on it just now
	ExcludedSyncing                        // not every Envoy knows its address
	exclusions                             // how many there are
)

var exclusionInfo = [exclusions]struct{ name, words string }{
	Admitted:              {"", ""},
	ExcludedUnhealthy:     {"unhealthy", "unhealthy"},
	ExcludedDraining:      {"draining", "draining"},
	ExcludedStarting:      {"starting", "starting"},
	ExcludedSuspect:       {"suspect", "suspect"},
	ExcludedSyncing:       {"syncing", "syncing"},
	ExcludedSubset:        {"subset", "outside the gateway's subset"},
	ExcludedWorker:        {"worker", "not the worker that the request names"},
	ExcludedRank:          {"rank", "without the rank that the request names"},
	ExcludedTaint:         {"taint", "without a taint that the request requires"},
	ExcludedModel:         {"model", "not serving the model"},
	ExcludedRole:          {"role", "for prefill only"},
	ExcludedContextLength: {"context_length", "too small for prompt and answer"},
}

// String is the reason's name in metrics and in the API; "" for Admitted.
func (e Exclusion) String() string { return exclusionInfo[e].name }

// Words is the reason as what is said of a worker: "unhealthy", "outside the gateway's subset".
func (e Exclusion) Words() string { return exclusionInfo[e].words }

// excluded counts workers by why they may not serve a request; element Admitted is not used.
type excluded [exclusions]int32

// total is how many workers are left out.
func (x *excluded) total() (n int) {
	for _, of := range x {
		n += int(of)
	}
	return n
}

// String is the counts in words, in the order of the alphabet: "1 draining, 2 unhealthy".
func (x *excluded) String() string {
	var parts []string
	for why, n := range x {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, Exclusion(why).Words()))
		}
	}
	if len(parts) == 0 {
		return "no workers known"
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// screen is what a request demands of a worker.
type screen struct {
	subset *Subset
	hints  *hints.Hints
	model  string // by the name that workers are sent; "" any
	// differ says that some worker of the pool serves the model for sure, so that one that names others does not.
	differ bool
	// prompt and answer are the tokens of the prompt, exactly, and how many the answer may have at least; 0: not known, and then
	// no worker is too small.
	prompt, answer int
}

// judge says why a worker may not serve, or Admitted. What the request demands comes before the worker's health: who would not do
// anyway needs no look at that.
func (s *screen) judge(w *worker.Worker) Exclusion {
	if why := s.demand(w); why != Admitted {
		return why
	}
	switch w.State {
	case worker.Ready:
		return Admitted
	case worker.Unhealthy:
		return ExcludedUnhealthy
	case worker.Draining:
		return ExcludedDraining
	case worker.Suspect:
		return ExcludedSuspect
	case worker.Syncing:
		return ExcludedSyncing
	default:
		return ExcludedStarting
	}
}

// demand is judge of a worker in whatever health.
func (s *screen) demand(w *worker.Worker) Exclusion {
	switch h := s.hints; {
	case !s.subset.Allows(w.Addr):
		return ExcludedSubset
	case h.Worker != "" && h.Worker != w.Name && h.Worker != w.Endpoint:
		return ExcludedWorker
	case h.Ranked && rankSlot(w, h.Rank) == slot.None:
		return ExcludedRank
	case h.Required[0] != "" && !tainted(w, h):
		return ExcludedTaint
	case s.differ && !serves(w, s.model):
		return ExcludedModel
	case w.Traits.Prefill:
		return ExcludedRole
	case s.prompt > 0 && s.short(w):
		return ExcludedContextLength
	}
	return Admitted
}

// rankSlot is the slot of a worker's rank, as its events number ranks; slot.None when it has no such rank.
func rankSlot(w *worker.Worker, rank int) slot.Slot {
	slots := w.Slots()
	if i := rank - w.Events.FirstRank; i >= 0 && i < len(slots) {
		return slots[i]
	}
	return slot.None
}

// tainted reports whether a worker has all taints that are required.
func tainted(w *worker.Worker, h *hints.Hints) bool {
	for _, taint := range h.Required {
		if taint != "" && !labelled(w, taint) {
			return false
		}
	}
	return true
}

// labelled reports whether a worker has a taint: "key=value", or "key" with any value.
func labelled(w *worker.Worker, taint string) bool {
	key, value, valued := strings.Cut(taint, "=")
	is, has := w.Labels[key]
	return has && (!valued || is == value)
}

// preferenceOf is the sum of the weights of the preferred taints that a worker has.
func preferenceOf(w *worker.Worker, h *hints.Hints) (sum float64) {
	for _, t := range h.Preferred {
		if t.Name == "" {
			break
		}
		if labelled(w, t.Name) {
			sum += t.Weight
		}
	}
	return sum
}

// serves reports whether a worker serves a model, for all that it told.
func serves(w *worker.Worker, model string) bool {
	told := w.Served()
	return !told.Told() || told.Has(model) || w.Serves(model)
}

// short reports whether a worker is known to take fewer tokens than prompt and answer have.
func (s *screen) short(w *worker.Worker) bool {
	told := w.Served()
	return told != nil && told.MaxTokens > 0 && s.prompt+s.answer > told.MaxTokens
}

// screened lists the pool's workers that may serve the request, and counts the others. The error, when nobody may, is a
// *NoWorkerError or a *TooLongError.
func (a *attempt) screened() error {
	all := a.set.Pool(a.pool.name)
	s := &a.screen
	s.differ = s.model != "" && slices.ContainsFunc(all, func(w *worker.Worker) bool { return w.Served().Has(s.model) })
	a.eligible, a.out = a.eligible[:0], excluded{}
	for _, w := range all {
		if why := s.judge(w); why != Admitted {
			a.out[why]++
		} else {
			a.eligible = append(a.eligible, w)
		}
	}
	if len(a.eligible) > 0 {
		return nil
	}
	if long := s.tooLong(a.pool.name, all); long != nil && a.out[ExcludedContextLength] > 0 {
		return long
	}
	return &NoWorkerError{Pool: a.pool.name, Why: a.out.String()}
}

// tooLong is the error of a request that nobody could serve even in good health, because of its length; nil: somebody could.
func (s *screen) tooLong(pool string, all []*worker.Worker) error {
	long := TooLongError{Pool: pool, PromptTokens: s.prompt, AnswerTokens: s.answer}
	for _, w := range all {
		switch s.demand(w) {
		case Admitted:
			return nil
		case ExcludedContextLength:
			long.Limit = max(long.Limit, w.Served().MaxTokens)
		default:
		}
	}
	return &long
}

// measure takes in how long the request is, if that is known exactly: engines count one prompt of the request, and all of it.
func (a *attempt) measure() {
	c, scan := &a.chain, a.req.Scan
	if c.Rung < prompt.Engine || c.Count == 0 || c.Own < len(c.Hashes) || scan == nil || scan.Template.Truncated {
		return
	}
	a.screen.prompt = c.Tokens
	if scan.Kind != openai.Embeddings {
		a.screen.answer = max(1, scan.MaxTokens)
	}
}
