package vllm

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

// asked is a request that was answered and whose decision is still to be looked up.
type asked struct {
	id   string
	ttft time.Duration
}

// table is what the scenarios measured; its rows are printed at the end.
type table struct {
	rows []*row

	mu        sync.Mutex // guards what follows
	open      []asked
	unsettled int
}

// row is one scenario. Everything but unsettled is of settled requests: sent while both servers were up, and held what they
// held for a while.
type row struct {
	scenario                    string
	requests, unsettled         int
	prompt, captured, delivered int
	largest                     int // difference between captured and delivered, tokens of one request
	beyond                      int // requests that differ by more than a block
	cold, warm                  []time.Duration
}

// ask sends a request through Envoy and notes it for the table; an answer that is not whole fails the test. Safe for
// concurrent use.
func (r *rig) ask(c chat) reply {
	a, err := r.send(r.url, c)
	if err != nil {
		r.t.Errorf("request %s: %v", c.id, err)
		return a
	}
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	if c.unsettled {
		r.table.unsettled++
	} else {
		r.table.open = append(r.table.open, asked{c.id, a.ttft})
	}
	return a
}

// each sends n requests, some at a time.
func (r *rig) each(n int, request func(i int) chat) {
	const parallel = 3
	var next atomic.Int32
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				r.ask(request(i))
			}
		})
	}
	wg.Wait()
}

// settle looks up what was decided on the requests asked since the last time, adds them to the row of the scenario and
// holds them to the criterion: of no request did attache believe more than a block more, or less, than the engine
// delivered. Where strict is not set, what is beyond that is only counted. Decisions are returned by request.
func (r *rig) settle(scenario string, strict bool) map[string]decision {
	r.t.Helper()
	r.table.mu.Lock()
	open, unsettled := r.table.open, r.table.unsettled
	r.table.open, r.table.unsettled = nil, 0
	r.table.mu.Unlock()
	row := r.row(scenario)
	row.unsettled += unsettled
	ids := make([]string, len(open))
	for i, a := range open {
		ids[i] = a.id
	}
	decisions := r.decisions(ids)
	for _, a := range open {
		d := decisions[a.id]
		if d.Rung != "exact" || d.Delivered == nil || d.Outcome != "ok" || d.Served != d.Chosen {
			r.t.Errorf("%s: outcome %q, rung %q (%s), chosen %s, served by %s, delivered is known: %v", a.id, d.Outcome, d.Rung, d.RungReason,
				d.Chosen, d.Served, d.Delivered != nil)
			continue
		}
		if off := row.add(&d, a.ttft); off > blockTokens {
			text := fmt.Sprintf("%s: %d of %d tokens captured on %s, %d delivered", a.id, d.captured(), d.Prompt, d.Chosen, *d.Delivered)
			if strict {
				r.t.Error(text)
			} else {
				r.t.Log(text)
			}
		}
	}
	return decisions
}

func (r *rig) row(scenario string) *row {
	for _, row := range r.table.rows {
		if row.scenario == scenario {
			return row
		}
	}
	row := &row{scenario: scenario}
	r.table.rows = append(r.table.rows, row)
	return row
}

// add counts a settled request and returns how many tokens captured and delivered differ by.
func (w *row) add(d *decision, ttft time.Duration) int {
	off := max(d.captured()-*d.Delivered, *d.Delivered-d.captured())
	w.requests++
	w.prompt += d.Prompt
	w.captured += d.captured()
	w.delivered += *d.Delivered
	w.largest = max(w.largest, off)
	if off > blockTokens {
		w.beyond++
	}
	switch {
	case ttft == 0: // not a stream
	case *d.Delivered < d.Prompt/2:
		w.cold = append(w.cold, ttft)
	default:
		w.warm = append(w.warm, ttft)
	}
	return off
}

// p50 is the median, 0 of none. It sorts its argument.
func p50(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[len(times)/2]
}

func (t *table) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "scenario\trequests\tunsettled\tprompt tokens\tcaptured\tdelivered\tlargest difference\tbeyond a block\tTTFT p50 cold\twarm\t")
	ms := func(times []time.Duration) string {
		if len(times) == 0 {
			return "-"
		}
		return p50(times).Round(time.Millisecond).String()
	}
	for _, r := range t.rows {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t\n", r.scenario, r.requests, r.unsettled, r.prompt, r.captured, r.delivered,
			r.largest, r.beyond, ms(r.cold), ms(r.warm))
	}
	w.Flush()
	return b.String()
}
