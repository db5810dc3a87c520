package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"attache/indexer/events"
	"attache/internal/hints"
	"attache/internal/slot"
	"attache/internal/worker"
	"attache/scoring"
	"attache/scoring/queue"
)

// Explanation is what would become of a request at one moment, and why. Everything in it is a copy, and nothing of the prompt.
type Explanation struct {
	At                  time.Time
	Model, Sent         string // as the client named it; as the worker is sent it, "" the same
	Pool, Policy        string // Policy decides
	PromptTokens        int    // exactly on the rungs engine and exact, else by length
	BlockTokens         int
	Rung, Reason        string // how the prompt was cut, and what kept it from a better way
	Available, Captured int    // tokens: the most that any candidate holds, what the chosen one holds
	// Refusal is why nobody would be asked: *NoWorkerError, *TooLongError or *ShedError; nil: Candidates[0] would be.
	Refusal error
	// Wait is whether it would have to wait before.
	Wait Waiting
	// Candidates are all who may serve, the chosen one first, the others in the order of their cost.
	Candidates []Contender
	// Excluded are the pool's other workers.
	Excluded []LeftOut
	// Others are what the alternatives that were asked for would choose.
	Others []OtherChoice
	Hints  []string        // that were said and believed
	Wrong  []hints.Problem // hints that were not taken
}

// Contender is one rank of a worker that may serve.
type Contender struct {
	Worker, Address string
	Rank            string // "" when the worker has only one
	CachedTokens    int
	Tiers           [slot.Remote + 1]int // blocks that its engine says it holds, by tier; all 0 where engines tell nothing
	Doubt           float64              // share of the cached tokens, 0 to 1, that is not counted on
	Mode            events.Mode          // how it is known what it holds
	Load            scoring.Load
	Bound           bool    // the request's session was answered here before
	Preference      float64 // of the request, by taints
	TTFT            time.Duration
	Terms           scoring.Terms
}

// Name is the worker's, with the rank if it has several.
func (c *Contender) Name() string {
	if c.Rank == "" {
		return c.Worker
	}
	return c.Worker + " rank " + c.Rank
}

// LeftOut is a worker that may not serve.
type LeftOut struct {
	Worker, Address string
	Reason          Exclusion
	Detail          string // what is the matter, in words; "" the reason says all
}

// Alternative is another way to decide.
type Alternative struct {
	Policy  string        // "" the one that decides
	Weights hints.Weights // of policy dynamo
}

// OtherChoice is what an alternative would choose.
type OtherChoice struct {
	Contender

	Policy string
	Same   bool // as the one that decides, or level with it
}

// Waiting says what the gate would do with a request.
type Waiting struct {
	Waits    bool
	Class    string // of the queue, that it belongs to
	Ahead    int    // requests of its class that wait for the same workers: it comes behind them, unless it is more urgent
	InQueue  int    // all that wait in the pool
	Capacity int    // requests that may wait; 0 there is no queue
}

// AllPolicies are all policies as alternatives.
func AllPolicies() []Alternative {
	var all []Alternative
	for _, name := range scoring.Policies() {
		all = append(all, Alternative{Policy: name})
	}
	return all
}

// Explain says what Route would do with the request now, without doing it: nothing is booked, remembered or counted. Only
// tokens are made, for which an engine may be asked, as for the request itself. Errors are *UnknownModelError or the context's; that
// nobody would serve is told by Explanation.Refusal. A tie may fall otherwise when the request comes.
func (r *Router) Explain(ctx context.Context, req *Request, alternatives []Alternative) (*Explanation, error) {
	a := attempt{scratch: new(scratch), dry: true}
	err := r.examine(ctx, req, &a)
	if a.pool == nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	x := &Explanation{
		At: a.started, Model: a.names.asked, Sent: a.names.sent, Pool: a.pool.name, Policy: a.pool.scorer.Deciding(req.Hints.Policy),
		Hints: req.Hints.Said().Names(), Wrong: slices.Clone(req.Hints.Problems.All()), Refusal: err,
		PromptTokens: a.chain.Tokens, BlockTokens: a.chain.BlockTokens, Rung: a.chain.Rung.String(), Reason: string(a.chain.Why),
	}
	for _, w := range a.set.Pool(a.pool.name) {
		if why := a.screen.judge(w); why != Admitted {
			x.Excluded = append(x.Excluded, LeftOut{Worker: w.Name, Address: w.Endpoint, Reason: why, Detail: a.screen.detail(w, why)})
		}
	}
	// Who only has to get well comes first.
	slices.SortStableFunc(x.Excluded, func(a, b LeftOut) int { return int(b.Reason) - int(a.Reason) })
	if len(a.eligible) == 0 {
		return x, nil
	}
	x.Candidates = a.contenders(&a.demand, len(a.candidates))
	x.Captured = x.Candidates[0].CachedTokens
	for i := range x.Candidates {
		x.Available = max(x.Available, x.Candidates[i].CachedTokens)
	}
	x.Wait, x.Refusal = a.foresee(x.Candidates[0].Terms.Saturated)
	for _, other := range alternatives {
		demand := a.demand
		demand.Policy, demand.Dynamo = cmp.Or(other.Policy, demand.Policy), overrideOf(&other.Weights)
		all := a.contenders(&demand, len(a.candidates))
		would := all[0]
		// What ties with the best is as good as it.
		i := slices.IndexFunc(all, func(c Contender) bool { return c.Name() == x.Candidates[0].Name() })
		same := i == 0 || all[i].Terms.Passed == would.Terms.Passed && all[i].Terms.Total == would.Terms.Total && all[i].Terms.Tie == would.Terms.Tie
		if same {
			would = all[i]
		}
		x.Others = append(x.Others, OtherChoice{Policy: a.pool.scorer.Deciding(demand.Policy), Contender: would, Same: same})
	}
	return x, nil
}

// contenders scores the candidates and lists the best of them, at most so many.
func (a *attempt) contenders(d *scoring.Demand, most int) []Contender {
	ranked := a.pool.scorer.Explain(d, a.candidates, nil)
	list := make([]Contender, 0, most)
	for _, r := range ranked[:most] {
		i := slices.IndexFunc(a.candidates, func(c scoring.Candidate) bool { return c.Slot == r.Slot })
		c, w := &a.candidates[i], a.set.BySlot(r.Slot)
		k := Contender{
			Worker: w.Name, Address: w.Endpoint, Rank: rankOf(w, r.Slot), CachedTokens: r.CachedTokens, Doubt: c.Doubt, Mode: a.pool.modeOf(r.Slot),
			Load: a.pool.scorer.Load(r.Slot), Bound: c.Bound, Preference: c.Preference, TTFT: a.pool.scorer.Foresee(d, c), Terms: r.Terms,
		}
		for tier, blocks := range c.Tiers {
			k.Tiers[tier] = int(blocks)
		}
		list = append(list, k)
	}
	return list
}

// foresee says what the gate would do with the request, whose best candidate has room or has none.
func (a *attempt) foresee(saturated bool) (w Waiting, refusal error) {
	g, cfg := a.pool.gate, a.settings
	if a.demand.Limits == nil {
		return Waiting{}, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	entry := g.entryOf(a)
	w = Waiting{Class: g.queue.Name(entry.Class), Ahead: g.queue.Backlog(entry.Class, entry.Lane), InQueue: g.queue.Len(), Capacity: cfg.Queue.Limits.Requests}
	if !saturated && w.Ahead == 0 {
		return w, nil
	}
	if !cfg.Queue.Enabled() {
		return w, &ShedError{Pool: a.pool.name, Reason: queue.RejectedSaturated, RetryAfter: cfg.RetryAfter, Limit: cfg.MaxInFlight}
	}
	if no := g.queue.Refuses(entry); no != nil && !cfg.Queue.Evict {
		return w, &ShedError{Pool: a.pool.name, Reason: no.Reason, RetryAfter: no.RetryAfter, Detail: no.String()}
	}
	w.Waits = true
	return w, nil
}

// overrideOf are the weights that a request gives policy dynamo; nil: none.
func overrideOf(w *hints.Weights) *scoring.DynamoOverride {
	if *w == (hints.Weights{}) {
		return nil
	}
	number := func(n hints.Number) *float64 {
		if !n.Said {
			return nil
		}
		return &n.Value
	}
	return &scoring.DynamoOverride{
		OverlapScoreCredit: number(w.OverlapScoreCredit), PrefillLoadScale: number(w.PrefillLoadScale), Temperature: number(w.RouterTemperature),
	}
}

// detail says what exactly keeps a worker out.
func (s *screen) detail(w *worker.Worker, why Exclusion) string {
	switch why {
	case ExcludedWorker:
		return fmt.Sprintf("the request names %q", s.hints.Worker)
	case ExcludedRank:
		first := w.Events.FirstRank
		return fmt.Sprintf("the request names rank %d, it has %d to %d", s.hints.Rank, first, first+len(w.Slots())-1)
	case ExcludedTaint:
		i := slices.IndexFunc(s.hints.Required[:], func(taint string) bool { return taint != "" && !labelled(w, taint) })
		return "it has no label " + s.hints.Required[i]
	case ExcludedModel:
		served := w.Served()
		return "it serves " + few(slices.Concat(served.Names, served.Adapters), 4)
	case ExcludedContextLength:
		return fmt.Sprintf("it takes %s tokens, prompt and answer need %s", grouped(w.Served().MaxTokens), grouped(s.prompt+s.answer))
	case ExcludedSubset, ExcludedRole, Admitted:
		return ""
	default:
		return w.Cause
	}
}

// few lists the first names, and how many more there are.
func few(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Sentence says in one sentence who would be chosen, and why.
func (x *Explanation) Sentence() string {
	var shed *ShedError
	switch {
	case x.Refusal != nil && errors.As(x.Refusal, &shed):
		return "nobody now: " + x.Refusal.Error()
	case x.Refusal != nil:
		return "nobody: " + x.Refusal.Error()
	}
	c := &x.Candidates[0]
	text := c.Name() + " " + x.holding(c) + x.lead(c)
	if x.Wait.Waits {
		text += "; all are saturated, so that the request waits first, behind " + grouped(x.Wait.Ahead)
	}
	return text
}

// holding says what the chosen candidate has of the prompt.
func (x *Explanation) holding(c *Contender) string {
	switch {
	case x.PromptTokens == 0:
		return "is chosen by load alone, as the prompt is not known,"
	case c.CachedTokens == 0 && x.Available > 0:
		return fmt.Sprintf("holds none of %s tokens", grouped(x.PromptTokens))
	case c.CachedTokens == 0:
		return fmt.Sprintf("holds none of %s tokens, as nobody does,", grouped(x.PromptTokens))
	default:
		return fmt.Sprintf("holds %s of %s tokens", grouped(c.CachedTokens), grouped(x.PromptTokens))
	}
}

// leastLead is the difference in seconds below which two costs are level for a reader.
const leastLead = 0.0005

// lead sets the chosen candidate against the next one.
func (x *Explanation) lead(c *Contender) string {
	switch {
	case len(x.Candidates) == 1 && c.Bound:
		return " and answered the session before"
	case len(x.Candidates) == 1:
		return " and is the only one that may serve"
	}
	next := &x.Candidates[1]
	ahead := next.Terms.Total - c.Terms.Total
	switch sooner := (next.TTFT - c.TTFT).Seconds(); {
	case c.Bound && ahead < 0:
		return fmt.Sprintf(" and answered the session before; %s would cost less", next.Name())
	case c.Terms.Saturated != next.Terms.Saturated:
		return " and has room, which the next does not have"
	case !c.Terms.Passed && next.Terms.Passed:
		return fmt.Sprintf(" and is whom policy %s takes by its rule, whatever others cost", x.Policy)
	case ahead < 0:
		return fmt.Sprintf(" and was drawn by chance; %s costs less", next.Name())
	case c.Terms.Unit == scoring.Turns:
		return " and had its last turn the longest ago"
	case c.Terms.Unit == scoring.Order:
		return fmt.Sprintf(" and comes before %s in the order of the key's hashes", next.Name())
	case c.Terms.Unit == scoring.None:
		return " and was drawn by chance"
	case ahead == 0 && c.Terms.Tie == next.Terms.Tie:
		return fmt.Sprintf(" and costs the same as %s: chance decides", next.Name())
	case c.Terms.Unit == scoring.Seconds && sooner >= leastLead:
		return fmt.Sprintf(" and is expected to answer %s sooner than the next, %s", moment(sooner), next.Name())
	case c.Terms.Unit == scoring.Seconds && ahead < leastLead:
		return fmt.Sprintf(" and is ahead of %s by a hair", next.Name())
	case c.Terms.Unit == scoring.Seconds:
		return fmt.Sprintf(" and costs %s less than the next, %s", moment(ahead), next.Name())
	default:
		return fmt.Sprintf(" and costs %.3g %s less than the next, %s", ahead, c.Terms.Unit, next.Name())
	}
}

// moment writes seconds with two digits after the point, short times in milliseconds.
func moment(s float64) string {
	if s < 0.0995 {
		return fmt.Sprintf("%.1f ms", s*1000)
	}
	return fmt.Sprintf("%.2f s", s)
}

// grouped writes 4100 as 4,100.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
