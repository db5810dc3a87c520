package virtual

import (
	"math"
	"slices"
	"time"

	"attache/internal/sim/trace"
)

// Record is what became of one request. Times count from the start of the workload; First and Admitted are 0 without.
type Record struct {
	Request *trace.Request
	// Arrive is when the client sent it, Admitted when an engine began with it, First and End when its first and last token
	// came, or when it was refused.
	Arrive, Admitted, First, End time.Duration
	// Reused are the prompt tokens found in the cache.
	Reused int
	// Worker is who served it last, Attempts how often it was placed.
	Worker, Attempts int
	Status           Status

	admitted bool
}

// TTFT is the time to the first token, E2E that to the last.
func (r *Record) TTFT() time.Duration { return r.First - r.Arrive }

// E2E is the time to the last token.
func (r *Record) E2E() time.Duration { return r.End - r.Arrive }

// TPOT is the mean time between tokens; ok is false for an answer of one token.
func (r *Record) TPOT() (t time.Duration, ok bool) {
	if r.Request.Output < 2 {
		return 0, false
	}
	return (r.End - r.First) / time.Duration(r.Request.Output-1), true
}

// Result is what a simulation found.
type Result struct {
	// Records are in the order of trace.Workload.All, without requests that were not sent.
	Records []Record
	// Span is the time of the last event.
	Span time.Duration
	// Asked and Reused are prompt tokens over all admissions, those found in the cache among them.
	Asked, Reused int
	Preemptions   int
	Passes        int
	// Prefilled are the prompt tokens that each worker computed, Busy the time that it computed anything.
	Prefilled []int
	Busy      []time.Duration
}

func (c *Cluster) result() *Result {
	r := &Result{Span: c.now, Passes: c.passes}
	for i := range c.runs {
		if c.runs[i].ended {
			r.Records = append(r.Records, c.runs[i].Record)
		}
	}
	for i := range c.nodes {
		l := &c.nodes[i].load
		r.Asked += l.asked
		r.Reused += l.reused
		r.Preemptions += l.preemptions
		r.Prefilled = append(r.Prefilled, l.prefilled)
		r.Busy = append(r.Busy, l.busy)
	}
	return r
}

// Latency describes a distribution.
type Latency struct{ Mean, P50, P90, P99 time.Duration }

// Summary is a line of a table. Latencies are those of answered requests.
type Summary struct {
	Completed, Refused int
	Preemptions        int
	Hit                float64 // reused / prompt tokens
	TTFT, TPOT, E2E    Latency
	Imbalance          float64 // most / mean prompt tokens computed by a worker
	Utilisation        float64 // of the workers, over the span
	// Good is the share of answered requests with TTFT and TPOT within the limits that were asked for.
	Good float64
}

// Limits are what a good answer keeps. 0 is no limit.
type Limits struct{ TTFT, TPOT time.Duration }

// Summary summarizes. Latencies, counts of requests and Good are of those that arrived at warmup or later; the others are of
// all.
func (r *Result) Summary(warmup time.Duration, good Limits) Summary {
	s := Summary{Preemptions: r.Preemptions}
	var ttft, tpot, e2e []time.Duration
	within := 0
	for i := range r.Records {
		x := &r.Records[i]
		if x.Arrive < warmup {
			continue
		}
		if x.Status == Refused {
			s.Refused++
			continue
		}
		ttft, e2e = append(ttft, x.TTFT()), append(e2e, x.E2E())
		t, ok := x.TPOT()
		if ok {
			tpot = append(tpot, t)
		}
		if (good.TTFT == 0 || x.TTFT() <= good.TTFT) && (good.TPOT == 0 || t <= good.TPOT) {
			within++
		}
	}
	s.Completed = len(ttft)
	s.TTFT, s.TPOT, s.E2E = latency(ttft), latency(tpot), latency(e2e)
	s.Good = ratio(float64(within), float64(len(ttft)))
	s.Hit = ratio(float64(r.Reused), float64(r.Asked))
	var all, most int
	var busy time.Duration
	for i, n := range r.Prefilled {
		all, most, busy = all+n, max(most, n), busy+r.Busy[i]
	}
	n := float64(len(r.Prefilled))
	s.Imbalance = ratio(float64(most)*n, float64(all))
	s.Utilisation = ratio(float64(busy), float64(r.Span)*n)
	return s
}

// latency sorts.
func latency(all []time.Duration) Latency {
	if len(all) == 0 {
		return Latency{}
	}
	slices.Sort(all)
	sum := 0.0
	for _, t := range all {
		sum += float64(t)
	}
	return Latency{time.Duration(sum / float64(len(all))), percentile(all, .5), percentile(all, .9), percentile(all, .99)}
}

// percentile is the value of a sorted list at the index next to p*(n-1), the higher of two: so do those figures of other
// simulators that these are compared with.
func percentile(sorted []time.Duration, p float64) time.Duration {
	return sorted[int(math.Round(p*float64(len(sorted)-1)))]
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
