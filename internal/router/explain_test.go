package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/hints"
	"attache/internal/slot"
	"attache/internal/worker"
	"attache/scoring"
)

// state is all that requests leave behind, as text.
func (w *world) state(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	families, err := prometheus.Gatherer(w.reg).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		fmt.Fprintln(&b, f.String())
	}
	for _, p := range w.pools {
		fmt.Fprintf(&b, "%+v %+v %d sessions, %d flights, %d wait\n", p.index.Stats(), p.ledger.Stats(), p.sessions.count(), p.flights.count(), p.gate.depth())
		for n := range slot.Slot(8) {
			fmt.Fprintf(&b, "%d: %+v %d\n", n, p.scorer.Load(n), p.index.Held(n))
		}
	}
	fmt.Fprintf(&b, "%d decisions, %d recent\n", w.ids.Load(), len(w.recent.last(1000)))
	return b.String()
}

func (w *world) explain(t *testing.T, req *Request) *Explanation {
	t.Helper()
	x, err := w.Explain(t.Context(), req, AllPolicies())
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestExplainChangesNothing: neither loads nor memories nor figures, whatever is asked.
func TestExplainChangesNothing(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.Affinity.Mode, c.MaxInFlight, c.Queue.Limits.Requests = affinitySoft, 4, 2
	}, nil, append(workers("default", 1, worker.Ready, worker.Ready, worker.Unhealthy), made(5, labels("max_in_flight=1"), nil))...)
	bound := chatOf(t, "m", long("a conversation", 9_000))
	bound.Hints.Session = "s"
	for range 3 {
		if _, err := w.Route(t.Context(), bound); err != nil {
			t.Fatal(err)
		}
	}
	final := chatOf(t, "m", long("a conversation", 9_000))
	final.Hints.Session, final.Hints.SessionFinal, final.Hints.CacheTTL = "s", true, time.Hour
	pinned := chatOf(t, "m", "x")
	pinned.Hints.Worker = "nobody"
	for i := range 2 {
		before := w.state(t)
		for _, req := range []*Request{bound, final, pinned, chatOf(t, "m", long("new", 30_000)), {Kind: bound.Kind}, idsOf(t, "m", 50, 3)} {
			w.explain(t, req)
		}
		if diff := cmp.Diff(before, w.state(t)); diff != "" {
			t.Fatalf("explaining left a trace (-before +after):\n%s", diff)
		}
		if i == 0 {
			w.clock = w.clock.Add(time.Hour) // the session's time is over, and it stays counted until somebody needs it
			if n := w.pools[0].sessions.count(); n != 1 {
				t.Fatalf("%d sessions", n)
			}
		}
	}
}

// TestExplainForetells: what it says is what Route does next.
func TestExplainForetells(t *testing.T) {
	w := newWorld(t, nil, nil, workers("default", 1, worker.Ready, worker.Ready, worker.Ready)...)
	text := long("a conversation", 20_000)
	w.route(t, "m", text).Done.End()
	for turn := range 5 {
		w.clock = w.clock.Add(time.Second)
		text += long(fmt.Sprint("turn ", turn), 3000)
		x := w.explain(t, chatOf(t, "m", text))
		d := w.route(t, "m", text)
		rec := d.Done.rec
		if first(d) != x.Candidates[0].Address || x.Captured != d.PredictedCached || x.Available != rec.available || x.PromptTokens != rec.promptTokens ||
			x.Candidates[0].TTFT != rec.booking.PredictedTTFT || x.Candidates[0].Terms != rec.ranked[0].Terms {
			t.Errorf("turn %d: foretold %+v; it went to %s with %d tokens, %v, %v", turn, x.Candidates[0], first(d), d.PredictedCached,
				rec.booking.PredictedTTFT, rec.ranked[0].Terms)
		}
		if len(x.Candidates) != 3 || len(x.Others) != len(scoring.Policies()) || !x.Others[0].Same {
			t.Errorf("turn %d: %d candidates, others %+v", turn, len(x.Candidates), x.Others)
		}
		d.Done.End()
	}
}

func TestExplainQueue(t *testing.T) {
	for _, places := range []int{0, 1} {
		w := newWorld(t, func(c *Config) { c.MaxInFlight, c.Queue.Limits.Requests = 1, places }, nil, workers("default", 1, worker.Ready)...)
		w.route(t, "m", "x")
		x := w.explain(t, chatOf(t, "m", "y"))
		var shed *ShedError
		if places == 0 && (!errors.As(x.Refusal, &shed) || !strings.HasPrefix(x.Sentence(), "nobody now: every worker")) {
			t.Errorf("without a queue: %v, %s", x.Refusal, x.Sentence())
		}
		if places == 0 {
			continue
		}
		if x.Refusal != nil || x.Wait != (Waiting{Waits: true, Class: "default", Capacity: 1}) {
			t.Errorf("with a queue: %v, %+v", x.Refusal, x.Wait)
		}
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error)
		entered := make(chan struct{})
		req := chatOf(t, "m", "z")
		req.Waiting = func(time.Duration) { close(entered) }
		go func() {
			_, err := w.Route(ctx, req)
			left <- err
		}()
		<-entered
		if x := w.explain(t, chatOf(t, "m", "y")); !errors.As(x.Refusal, &shed) || x.Wait.Ahead != 1 || x.Wait.InQueue != 1 {
			t.Errorf("with a full queue: %v, %+v", x.Refusal, x.Wait)
		}
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

func TestExplainExclusions(t *testing.T) {
	ws := []*worker.Worker{
		made(1, labels("zone=a"), &worker.Served{Names: []string{"m"}, MaxTokens: 100}), made(2, labels("zone=a"), &worker.Served{Names: []string{"b", "c", "d", "e", "f", "g"}}),
		made(3, nil, nil), made(4, labels("zone=a", "role=prefill"), nil), made(5, labels("zone=a"), nil), made(6, labels("zone=a"), nil),
	}
	ws[5].State, ws[5].Cause = worker.Unhealthy, "connection refused"
	w := newWorld(t, nil, nil, ws...)
	req := idsOf(t, "m", 90, 20)
	req.Hints.Required[0] = "zone=a"
	var got []string
	x := w.explain(t, req)
	for _, e := range x.Excluded {
		got = append(got, fmt.Sprintf("%s %s: %s", e.Worker, e.Reason, e.Detail))
	}
	want := []string{
		"w6 unhealthy: connection refused", "w1 context_length: it takes 100 tokens, prompt and answer need 110", "w4 role: ",
		"w2 model: it serves b, c, d, e and 2 more", "w3 taint: it has no label zone=a",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(x.Candidates) != 1 || x.Sentence() != "w5 holds none of 90 tokens, as nobody does, and is the only one that may serve" {
		t.Errorf("%s", x.Sentence())
	}
	req.Hints.Worker, req.Hints.Ranked, req.Hints.Rank = "w3", true, 7
	req.Hints.Required[0] = ""
	if x := w.explain(t, req); x.Refusal == nil || x.Excluded[0].Worker != "w3" || x.Excluded[0].Detail != "the request names rank 7, it has 0 to 0" ||
		x.Excluded[1].Detail != `the request names "w3"` {
		t.Errorf("%+v", x.Excluded)
	}
	var unknown *UnknownModelError
	two := newWorld(t, nil, []PoolConfig{{Name: "default", Models: []string{"m"}}}, ws...)
	if _, err := two.Explain(t.Context(), chatOf(t, "other", "x"), nil); !errors.As(err, &unknown) {
		t.Error(err)
	}
}

func TestSentences(t *testing.T) {
	ranked := func(name string, held int, total float64, ttft time.Duration) Contender {
		return Contender{Worker: name, CachedTokens: held, TTFT: ttft, Terms: scoring.Terms{Total: total, Unit: scoring.Seconds}}
	}
	in := func(change func(*Contender), c Contender) Contender { change(&c); return c }
	unit := func(u scoring.Unit) func(*Contender) { return func(c *Contender) { c.Terms.Unit = u } }
	for _, c := range []struct {
		x    Explanation
		want string
	}{
		{Explanation{PromptTokens: 13_000, Available: 12_288, Candidates: []Contender{ranked("a", 12_288, .2, 150*time.Millisecond), ranked("b", 0, .61, 560*time.Millisecond)}},
			"a holds 12,288 of 13,000 tokens and is expected to answer 0.41 s sooner than the next, b"},
		{Explanation{PromptTokens: 100, Available: 64, Candidates: []Contender{ranked("a", 0, .2, 300*time.Millisecond), ranked("b", 64, .25, 200*time.Millisecond)}},
			"a holds none of 100 tokens and costs 50.0 ms less than the next, b"},
		{Explanation{PromptTokens: 100, Candidates: []Contender{ranked("a", 0, .2, 0), ranked("b", 0, .2, 0)}},
			"a holds none of 100 tokens, as nobody does, and costs the same as b: chance decides"},
		{Explanation{PromptTokens: 100, Candidates: []Contender{ranked("a", 0, .3, 0), ranked("b", 0, .2, 0)}},
			"a holds none of 100 tokens, as nobody does, and was drawn by chance; b costs less"},
		{Explanation{PromptTokens: 100, Available: 64, Candidates: []Contender{in(func(c *Contender) { c.Bound = true }, ranked("a", 64, .3, 0)), ranked("b", 0, .2, 0)}},
			"a holds 64 of 100 tokens and answered the session before; b would cost less"},
		{Explanation{Candidates: []Contender{in(unit(scoring.Blocks), ranked("a", 0, 3, 0)), in(unit(scoring.Blocks), ranked("b", 0, 7.5, 0))}},
			"a is chosen by load alone, as the prompt is not known, and costs 4.5 blocks less than the next, b"},
		{Explanation{Policy: "session", Candidates: []Contender{ranked("a", 0, 3, 0), in(func(c *Contender) { c.Terms.Passed = true }, ranked("b", 0, 1, 0))}},
			"a is chosen by load alone, as the prompt is not known, and is whom policy session takes by its rule, whatever others cost"},
		{Explanation{Candidates: []Contender{in(unit(scoring.Turns), ranked("a", 0, 3, 0)), in(unit(scoring.Turns), ranked("b", 0, 4, 0))}},
			"a is chosen by load alone, as the prompt is not known, and had its last turn the longest ago"},
		{Explanation{Candidates: []Contender{in(unit(scoring.Order), ranked("a", 0, .3, 0)), in(unit(scoring.Order), ranked("b", 0, .7, 0))}},
			"a is chosen by load alone, as the prompt is not known, and comes before b in the order of the key's hashes"},
		{Explanation{PromptTokens: 9, Candidates: []Contender{ranked("a", 0, .3, 0)}, Wait: Waiting{Waits: true, Ahead: 1200}},
			"a holds none of 9 tokens, as nobody does, and is the only one that may serve; all are saturated, so that the request waits first, behind 1,200"},
		{Explanation{Refusal: &NoWorkerError{Pool: "p", Why: "1 draining"}}, `nobody: no worker of pool "p" can take the request: 1 draining`},
	} {
		if got := c.x.Sentence(); got != c.want {
			t.Errorf("%s\nwant\n%s", got, c.want)
		}
	}
}

// TestWeightsReachTheScoring: as far as they were said.
func TestWeightsReachTheScoring(t *testing.T) {
	if o := overrideOf(&hints.Weights{}); o != nil {
		t.Errorf("%+v", o)
	}
	o := overrideOf(&hints.Weights{PrefillLoadScale: hints.Number{Value: 16, Said: true}})
	if o == nil || o.OverlapScoreCredit != nil || o.Temperature != nil || *o.PrefillLoadScale != 16 {
		t.Errorf("%+v", o)
	}
}

func TestDecisionsTellWhatCounted(t *testing.T) {
	w := newWorld(t, nil, nil, workers("default", 1, worker.Ready, worker.Draining, worker.Unhealthy)...)
	req := chatOf(t, "m", "hello")
	req.Hints.Session, req.Hints.Policy = "s", "dynamo"
	if _, err := w.Route(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	d := w.Decisions(1)[0]
	if d.Policy != "dynamo" || d.Excluded != 2 || strings.Join(d.Hints, " ") != "session policy" || !d.Compared || d.Regret != 0 || d.Waited != 0 {
		t.Errorf("%+v", d)
	}
	for _, c := range []struct {
		ranked []scoring.Ranked
		want   float64
		known  bool
	}{
		{[]scoring.Ranked{{Terms: scoring.Terms{Total: 3, Unit: scoring.Seconds}}, {Terms: scoring.Terms{Total: 1, Unit: scoring.Seconds}}}, 2, true},
		{[]scoring.Ranked{{Terms: scoring.Terms{Total: 3, Unit: scoring.Seconds}}, {Terms: scoring.Terms{Total: 1, Saturated: true}}}, 0, true},
		{[]scoring.Ranked{{Terms: scoring.Terms{Total: 3, Unit: scoring.Turns}}, {Terms: scoring.Terms{Total: 1, Unit: scoring.Turns}}}, 0, false},
	} {
		if got, known := regret(c.ranked); got != c.want || known != c.known {
			t.Errorf("%+v: %g %v", c.ranked, got, known)
		}
	}
}
