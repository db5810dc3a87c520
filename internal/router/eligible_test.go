package router

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"attache/internal/hints"
	"attache/internal/openai"
	"attache/internal/slot"
	"attache/internal/worker"
)

// made is a ready worker w<n> with labels, and what its engine says it serves.
func made(n int, labels map[string]string, served *worker.Served, ranks ...slot.Slot) *worker.Worker {
	w := worker.NewWorker(worker.Spec{Name: fmt.Sprintf("w%d", n), Pool: "default", Address: addr(n).String(), Addr: addr(n), Labels: labels},
		slot.Slot(n), worker.Ready, ranks...)
	if served != nil {
		w = w.WithServed(*served)
	}
	return w
}

func labels(pairs ...string) map[string]string {
	m := map[string]string{}
	for _, p := range pairs {
		key, value, _ := strings.Cut(p, "=")
		m[key] = value
	}
	return m
}

// idsOf is a completion of n token ids, whose length is known exactly.
func idsOf(t testing.TB, model string, n, answer int) *Request {
	t.Helper()
	body := []byte(fmt.Sprintf(`{"model":%q,"max_tokens":%d,"prompt":[%s]}`, model, answer, strings.TrimSuffix(strings.Repeat("7,", n), ",")))
	if answer == 0 {
		body = []byte(fmt.Sprintf(`{"model":%q,"prompt":[%s]}`, model, strings.TrimSuffix(strings.Repeat("7,", n), ",")))
	}
	scan := new(openai.Request)
	if err := openai.Scan(scan, openai.Completions, body); err != nil {
		t.Fatal(err)
	}
	return &Request{Kind: openai.Completions, Body: body, Scan: scan, Path: "/v1/completions", ID: "id"}
}

// who is who may serve a request, in order, with what each prefers; or the error.
func (w *world) who(t *testing.T, req *Request) string {
	t.Helper()
	a := attempt{scratch: new(scratch)}
	if err := w.prepare(t.Context(), req, &a); err != nil {
		return err.Error()
	}
	var names []string
	for _, c := range a.candidates {
		k := a.set.BySlot(c.Slot)
		name := k.Name
		if rank := rankOf(k, c.Slot); rank != "" {
			name += "." + rank
		}
		if c.Preference != 0 {
			name += fmt.Sprintf("%+g", c.Preference)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestExclusions(t *testing.T) {
	base := &worker.Served{Names: []string{"m"}}
	nobody := func(why string) string { return `no worker of pool "default" can take the request: ` + why }
	for _, c := range []struct {
		name string
		ws   []*worker.Worker
		req  func(*Request)
		want string
	}{
		{"no wish", []*worker.Worker{made(1, nil, nil), made(2, nil, nil)}, func(*Request) {}, "w1 w2"},
		{"worker by name", []*worker.Worker{made(1, nil, nil), made(2, nil, nil)}, func(r *Request) { r.Hints.Worker = "w2" }, "w2"},
		{"worker by address", []*worker.Worker{made(1, nil, nil), made(2, nil, nil)}, func(r *Request) { r.Hints.Worker = "10.0.0.2:8000" }, "w2"},
		{"a worker that is not there", []*worker.Worker{made(1, nil, nil), made(2, nil, nil)}, func(r *Request) { r.Hints.Worker = "w3" },
			nobody("2 not the worker that the request names")},
		{"rank", []*worker.Worker{made(1, nil, nil, 11, 12), made(2, nil, nil)}, func(r *Request) { r.Hints.Ranked, r.Hints.Rank = true, 1 }, "w1.1"},
		{"rank 0 is everybody's", []*worker.Worker{made(1, nil, nil, 11, 12), made(2, nil, nil)}, func(r *Request) { r.Hints.Ranked = true }, "w1.0 w2"},
		{"a rank that nobody has", []*worker.Worker{made(1, nil, nil, 11, 12)}, func(r *Request) { r.Hints.Ranked, r.Hints.Rank = true, 3 },
			nobody("1 without the rank that the request names")},
		{"taint with a value", []*worker.Worker{made(1, labels("zone=a"), nil), made(2, labels("zone=b"), nil), made(3, nil, nil)},
			func(r *Request) { r.Hints.Required[0] = "zone=b" }, "w2"},
		{"taint without a value", []*worker.Worker{made(1, labels("zone=a"), nil), made(2, labels("zone=b"), nil), made(3, nil, nil)},
			func(r *Request) { r.Hints.Required[0] = "zone" }, "w1 w2"},
		{"all taints", []*worker.Worker{made(1, labels("zone=a", "h200"), nil), made(2, labels("zone=a"), nil)},
			func(r *Request) { r.Hints.Required = [hints.MaxTaints]string{"zone=a", "h200"} }, "w1"},
		{"preferred taints", []*worker.Worker{made(1, labels("zone=a", "new"), nil), made(2, labels("zone=a"), nil), made(3, nil, nil)},
			func(r *Request) {
				r.Hints.Preferred = [hints.MaxTaints]hints.Taint{{Name: "zone=a", Weight: 2}, {Name: "new", Weight: -0.5}}
			}, "w1+1.5 w2+2 w3"},
		{"role", []*worker.Worker{made(1, labels("role=prefill"), nil), made(2, labels("role=decode"), nil)}, func(*Request) {}, "w2"},
		{"prefill alone", []*worker.Worker{made(1, labels("role=prefill"), nil)}, func(*Request) {}, nobody("1 for prefill only")},
		{"an adapter that one has", []*worker.Worker{made(1, nil, &worker.Served{Names: []string{"base"}, Adapters: []string{"m"}}),
			made(2, nil, &worker.Served{Names: []string{"base"}}), made(3, nil, nil), made(4, nil, new(worker.Served))}, func(*Request) {}, "w1 w3 w4"},
		{"a model that nobody names", []*worker.Worker{made(1, nil, &worker.Served{Names: []string{"base"}}), made(2, nil, nil)}, func(*Request) {}, "w1 w2"},
		{"a model that its metrics name", []*worker.Worker{made(1, nil, base),
			made(2, nil, &worker.Served{Names: []string{"other"}}).WithStats(worker.Stats{Model: "m"})}, func(*Request) {}, "w1 w2"},
		{"an approximate length excludes nobody", []*worker.Worker{made(1, nil, &worker.Served{Names: []string{"m"}, MaxTokens: 1})}, func(*Request) {}, "w1"},
		{"the first reason counts", []*worker.Worker{made(1, labels("role=prefill"), nil)}, func(r *Request) { r.Hints.Worker = "w2" },
			nobody("1 not the worker that the request names")},
	} {
		w := newWorld(t, nil, nil, c.ws...)
		req := chatOf(t, "m", "hello")
		c.req(req)
		if got := w.who(t, req); got != c.want {
			t.Errorf("%s: %s; want %s", c.name, got, c.want)
		}
	}
}

func TestContextLength(t *testing.T) {
	takes := func(n, tokens int) *worker.Worker {
		return made(n, nil, &worker.Served{Names: []string{"m"}, MaxTokens: tokens})
	}
	sick := func(w *worker.Worker) *worker.Worker { w.State = worker.Unhealthy; return w }
	for _, c := range []struct {
		name           string
		prompt, answer int
		ws             []*worker.Worker
		want           string
	}{
		{"exactly as long as it may be", 100, 28, []*worker.Worker{takes(1, 128)}, "w1"},
		{"one token more", 100, 29, []*worker.Worker{takes(1, 128), takes(2, 129)}, "w2"},
		{"an answer of any length", 127, 0, []*worker.Worker{takes(1, 128)}, "w1"},
		{"who does not tell may serve", 1000, 0, []*worker.Worker{takes(1, 128), made(2, nil, nil)}, "w2"},
		{"no room for an answer", 128, 0, []*worker.Worker{takes(1, 128), takes(2, 100)},
			"the model's context has 128 tokens, and the prompt has 128, which leaves no room for an answer; shorten the prompt"},
		{"too much in all", 100, 100, []*worker.Worker{takes(1, 128), takes(2, 150)}, "the model's context has 150 tokens, and the request asks " +
			"for 200: 100 in the prompt and up to 100 in the answer; shorten the prompt or lower max_tokens"},
		{"somebody could when in health", 100, 100, []*worker.Worker{takes(1, 128), sick(takes(2, 200))},
			`no worker of pool "default" can take the request: 1 too small for prompt and answer, 1 unhealthy`},
		{"nobody could even then", 100, 100, []*worker.Worker{takes(1, 128), sick(takes(2, 199))}, "the model's context has 199 tokens, and the request " +
			"asks for 200: 100 in the prompt and up to 100 in the answer; shorten the prompt or lower max_tokens"},
	} {
		if got := newWorld(t, nil, nil, c.ws...).who(t, idsOf(t, "m", c.prompt, c.answer)); got != c.want {
			t.Errorf("%s: %s; want %s", c.name, got, c.want)
		}
	}
	w := newWorld(t, nil, nil, takes(1, 10))
	var long *TooLongError
	if _, err := w.Route(t.Context(), idsOf(t, "m", 20, 5)); !errors.As(err, &long) || *long != (TooLongError{"default", 20, 5, 10}) {
		t.Errorf("%v", err)
	}
}

// TestExclusionsAreCountedOncePerRequest: however many workers are kept out by one reason.
func TestExclusionsAreCountedOncePerRequest(t *testing.T) {
	ws := append(workers("default", 1, worker.Ready, worker.Unhealthy, worker.Unhealthy), made(9, labels("role=prefill"), nil))
	w := newWorld(t, nil, nil, ws...)
	for range 3 {
		w.route(t, "m", "hello").Done.End()
	}
	for why, want := range map[Exclusion]float64{ExcludedUnhealthy: 3, ExcludedRole: 3, ExcludedDraining: 0} {
		if got := testutil.ToFloat64(w.metrics.excluded.WithLabelValues("default", why.String())); got != want {
			t.Errorf("%s: %g, want %g", why, got, want)
		}
	}
}

// TestOwnLimit: a worker at its own limit is saturated, not left out; when all are, requests are turned away.
func TestOwnLimit(t *testing.T) {
	w := newWorld(t, nil, nil, made(1, labels("max_in_flight=1"), nil), made(2, labels("max_in_flight=2"), nil))
	var ends []Done
	served := map[string]int{}
	for range 3 {
		d := w.route(t, "m", "hello")
		served[first(d)]++
		ends = append(ends, d.Done)
	}
	if served[addr(1).String()] != 1 || served[addr(2).String()] != 2 {
		t.Errorf("sent to %v", served)
	}
	var shed *ShedError
	if _, err := w.Route(t.Context(), chatOf(t, "m", "hello")); !errors.As(err, &shed) {
		t.Fatalf("%v, want it turned away", err)
	}
	ends[0].End()
	w.route(t, "m", "hello").Done.End()
}

// TestNobodyExcludedAllocatesNothing: reasons are for those who ask.
func TestNobodyExcludedAllocatesNothing(t *testing.T) {
	var ws []*worker.Worker
	for n := range 16 {
		ws = append(ws, made(n+1, labels("zone=a"), &worker.Served{Names: []string{"m"}, MaxTokens: 1 << 20}))
	}
	w := newWorld(t, nil, nil, ws...)
	req := chatOf(t, "m", "hello")
	req.Hints.Required[0], req.Hints.Preferred[0] = "zone=a", hints.Taint{Name: "zone=a", Weight: 1}
	a := attempt{scratch: new(scratch)}
	if err := w.prepare(t.Context(), req, &a); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		if a.screened() != nil {
			t.Fatal("nobody")
		}
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

// TestScreenAgreesWithItsTwin: one wish after another, over all workers.
func TestScreenAgreesWithItsTwin(t *testing.T) {
	states := []worker.State{worker.Ready, worker.Ready, worker.Unhealthy, worker.Draining, worker.Starting, worker.Suspect, worker.Syncing}
	rapid.Check(t, func(t *rapid.T) {
		one := func(of ...string) string { return of[rapid.IntRange(0, len(of)-1).Draw(t, "choice")] }
		var ws []*worker.Worker
		for n := range rapid.IntRange(0, 5).Draw(t, "workers") {
			k := made(n+1, labels("zone="+one("a", "b"), one("x", "y"), "role="+one("prefill", "decode", "")), nil)
			if one("told", "untold") == "told" {
				k = k.WithServed(worker.Served{Names: []string{one("m", "n")}, MaxTokens: rapid.IntRange(0, 3).Draw(t, "tokens")})
			}
			k.State = states[rapid.IntRange(0, len(states)-1).Draw(t, "state")]
			ws = append(ws, k)
		}
		req := &Request{}
		req.Hints.Worker = one("", "", "w1", "w2")
		req.Hints.Required = [hints.MaxTaints]string{one("", "zone=a", "x")}
		req.Subset.Stated = one("", "", "stated") != ""
		req.Subset.Endpoints = append(req.Subset.Endpoints, addr(1), addr(2))
		s := screen{subset: &req.Subset, hints: &req.Hints, model: one("", "m"), prompt: rapid.IntRange(0, 3).Draw(t, "prompt")}
		a := attempt{scratch: new(scratch), set: worker.NewSet(ws...), pool: &pool{name: "default"}, screen: s}
		err := a.screened()

		left := slices.DeleteFunc(slices.Clone(ws), func(k *worker.Worker) bool { return k.State != worker.Ready || k.Labels["role"] == "prefill" })
		if req.Subset.Stated {
			left = slices.DeleteFunc(left, func(k *worker.Worker) bool { return k.Addr != addr(1) && k.Addr != addr(2) })
		}
		if req.Hints.Worker != "" {
			left = slices.DeleteFunc(left, func(k *worker.Worker) bool { return k.Name != req.Hints.Worker })
		}
		switch req.Hints.Required[0] {
		case "zone=a":
			left = slices.DeleteFunc(left, func(k *worker.Worker) bool { return k.Labels["zone"] != "a" })
		case "x":
			left = slices.DeleteFunc(left, func(k *worker.Worker) bool { _, has := k.Labels["x"]; return !has })
		}
		if names := func(k *worker.Worker) bool { return k.Served() != nil && k.Served().Names[0] == "m" }; s.model == "m" && slices.ContainsFunc(ws, names) {
			left = slices.DeleteFunc(left, func(k *worker.Worker) bool { return k.Served() != nil && !names(k) })
		}
		left = slices.DeleteFunc(left, func(k *worker.Worker) bool {
			return k.Served() != nil && k.Served().MaxTokens > 0 && s.prompt > k.Served().MaxTokens
		})
		if got, want := describe(a.eligible), describe(left); got != want || (err == nil) != (len(left) > 0) {
			t.Fatalf("%s may serve (%v), want %s", got, err, want)
		}
		if a.out.total()+len(a.eligible) != len(ws) {
			t.Fatalf("%d left out and %d not, of %d", a.out.total(), len(a.eligible), len(ws))
		}
	})
}

func describe(ws []*worker.Worker) string {
	var names []string
	for _, k := range ws {
		names = append(names, k.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func BenchmarkScreened(b *testing.B) {
	for _, n := range []int{16, 512} {
		var ws []*worker.Worker
		for i := range n {
			addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 8000)
			ws = append(ws, worker.NewWorker(worker.Spec{Name: addr.String(), Pool: "default", Addr: addr, Labels: labels("zone=a")}, slot.Slot(i), worker.Ready).
				WithServed(worker.Served{Names: []string{"m"}, MaxTokens: 1 << 17}))
		}
		for _, taint := range []string{"", "zone=a"} {
			b.Run(fmt.Sprintf("workers=%d/taint=%v", n, taint != ""), func(b *testing.B) {
				req := &Request{}
				req.Hints.Required[0] = taint
				a := attempt{scratch: new(scratch), set: worker.NewSet(ws...), pool: &pool{name: "default"},
					screen: screen{subset: &req.Subset, hints: &req.Hints, model: "m", prompt: 1000, answer: 100}}
				b.ReportAllocs()
				for b.Loop() {
					if err := a.screened(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
