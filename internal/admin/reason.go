package admin

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Reason says in one sentence why a decision fell as it did:
//
//	gpu-b: holds 3,072 of 4,100 prompt tokens, first token predicted in 210 ms; cost 390 ms, next best gpu-a 1.48 s
//
// It reads only the decision, so that a decision that was stored explains itself later in the same words.
func Reason(d Decision) string {
	if d.Chosen == "" {
		if d.Outcome == "" || d.Outcome == "ok" {
			return "no worker was chosen"
		}
		return "not routed: " + strings.ReplaceAll(d.Outcome, "_", " ")
	}
	var b strings.Builder
	chosen := d.candidate(d.Chosen)
	fmt.Fprintf(&b, "%s: %s", d.Chosen, holding(d, chosen))
	if ttft, ok := d.PredictedTTFTS.Get(); ok {
		fmt.Fprintf(&b, ", first token predicted in %s", amount(ttft, "s"))
	}
	if chosen != nil {
		b.WriteString(comparison(d, chosen))
	}
	if d.Served != "" && d.Served != d.Chosen {
		fmt.Fprintf(&b, "; answered by %s", d.Served)
		if d.Attempts > 1 {
			fmt.Fprintf(&b, " on attempt %d", d.Attempts)
		}
	}
	return b.String()
}

func (d *Decision) candidate(name string) *Candidate {
	for i := range d.Candidates {
		if d.Candidates[i].Worker == name {
			return &d.Candidates[i]
		}
	}
	return nil
}

// holding says what the chosen worker has of the prompt.
func holding(d Decision, c *Candidate) string {
	switch {
	case d.Rung == "none" || d.PromptTokens == 0:
		return "chosen by load alone, the prompt was not understood"
	case c == nil:
		return fmt.Sprintf("chosen for %s prompt tokens", grouped(d.PromptTokens))
	case c.CachedTokens == 0:
		return fmt.Sprintf("holds none of %s prompt tokens", grouped(d.PromptTokens))
	case c.CachedTokens >= d.PromptTokens:
		return fmt.Sprintf("holds all %s prompt tokens", grouped(d.PromptTokens))
	default:
		return fmt.Sprintf("holds %s of %s prompt tokens", grouped(c.CachedTokens), grouped(d.PromptTokens))
	}
}

// comparison sets the chosen candidate against the cheapest other one, and against one that holds more, if there is one.
func comparison(d Decision, chosen *Candidate) string {
	cost, ok := chosen.Total.Get()
	if !ok {
		return ""
	}
	var next, richer *Candidate
	passed := false
	for i := range d.Candidates {
		c := &d.Candidates[i]
		if c == chosen || !c.Eligible {
			continue
		}
		if c.Passed { // by a rule, so that costs say nothing
			passed = true
			continue
		}
		if next == nil || c.total() < next.total() {
			next = c
		}
		if c.CachedTokens > chosen.CachedTokens && (richer == nil || c.CachedTokens > richer.CachedTokens) {
			richer = c
		}
	}
	switch {
	case next == nil && (passed || d.CandidatesTotal > len(d.Candidates)):
		return "; cost " + amount(cost, chosen.Unit)
	case next == nil:
		return "; the only eligible worker"
	}
	if _, known := next.Total.Get(); !known {
		return "; cost " + amount(cost, chosen.Unit)
	}
	var b strings.Builder
	own, other := amount(cost, chosen.Unit), amount(next.total(), next.Unit)
	switch {
	case own == other:
		fmt.Fprintf(&b, "; cost %s, level with %s", own, next.Worker)
	case next.total() < cost:
		fmt.Fprintf(&b, "; cost %s, drawn although %s costs %s", own, next.Worker, other)
	default:
		fmt.Fprintf(&b, "; cost %s, next best %s %s", own, next.Worker, other)
	}
	if richer != nil && richer.total() > cost {
		fmt.Fprintf(&b, "; %s holds %s but costs %s%s", richer.Worker, grouped(richer.CachedTokens),
			amount(richer.total(), richer.Unit), mostly(richer, chosen))
	}
	return b.String()
}

func (c *Candidate) total() float64 {
	v, _ := c.Total.Get()
	return v
}

// mostly names the term that makes c dearer than the chosen candidate.
func mostly(c, chosen *Candidate) string {
	worst, excess := "", 0.0
	for _, t := range c.Terms {
		v, _ := t.Value.Get()
		for _, own := range chosen.Terms {
			if own.Name == t.Name {
				w, _ := own.Value.Get()
				v -= w
			}
		}
		if v > excess {
			worst, excess = t.Name, v
		}
	}
	if worst == "" {
		return ""
	}
	return ", mostly " + strings.ReplaceAll(worst, "_", " ")
}

// amount writes a cost with its unit: 4.1 ms, 210 ms, 1.48 s, 12.5 blocks.
func amount(v float64, unit string) string {
	decimals, small := 2, 10.0
	if unit == "s" && math.Abs(v) < 0.9995 {
		v, unit, decimals, small = v*1000, "ms", 1, 9.95
	}
	if math.Abs(v) >= small {
		decimals--
	}
	return strings.TrimSpace(strconv.FormatFloat(v, 'f', decimals, 64) + " " + unit)
}

// grouped writes 4100 as 4,100.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
