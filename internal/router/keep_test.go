package router

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"attache/internal/openai"
	"attache/internal/worker"
)

// kept is a keeper that writes down what it is told.
type kept struct {
	prompts []*Prompt
	places  []*Place
	forgot  []uint64
}

func (k *kept) Keep(p *Prompt) func(*Place) {
	k.prompts = append(k.prompts, p)
	return func(at *Place) { k.places = append(k.places, at) }
}

func (k *kept) Forget(key uint64) { k.forgot = append(k.forgot, key) }

func keepingWorld(t *testing.T) (*world, *kept) {
	w, k := newWorld(t, nil, nil, workers("default", 1, worker.Ready, worker.Ready)...), &kept{}
	w.keeper, w.keeps = k, Keeps{Prompts: true, Next: true}
	return w, k
}

// ask routes a request that wants its prompt kept, and hands over the body.
func (w *world) ask(t *testing.T, change ...func(*Request)) *Decision {
	t.Helper()
	req := chatOf(t, "m", long("hello", 4000))
	req.Path, req.Hints.CacheTTL = "/v1/chat/completions?key=secret", 5*time.Minute
	for _, c := range change {
		c(req)
	}
	d, err := w.Route(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	body := []byte("as sent")
	d.Done.Keep(body)
	d.Done.Keep(body) // once is enough
	clear(body)       // it is its caller's
	return d
}

// atFirst sends a request to the first worker.
func atFirst(r *Request) { r.Subset = Subset{Stated: true, Endpoints: []netip.AddrPort{addr(1)}} }

func TestWhichPromptsAreKept(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Request)
		want   bool
	}{
		{"one that asks for it", func(*Request) {}, true},
		{"one that says nothing", func(r *Request) { r.Hints.CacheTTL = 0 }, false},
		{"the last of its session", func(r *Request) { r.Hints.Session, r.Hints.SessionFinal = "s", true }, false},
		{"one too short to fill a block", func(r *Request) { *r = *chatOf(t, "m", "hi"); r.Hints.CacheTTL = time.Minute }, false},
		{"embeddings", func(r *Request) { r.Kind = openai.Embeddings }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, k := keepingWorld(t)
			d := w.ask(t, c.change)
			if d.Keep != c.want || len(k.prompts) > 0 != c.want {
				t.Errorf("the decision wants the body: %t; %d kept, want %t", d.Keep, len(k.prompts), c.want)
			}
			d.Done.End()
		})
	}
}

func TestWhereAPromptIsKept(t *testing.T) {
	ok := Outcome{Status: 200, Attempts: 1}
	for _, c := range []struct {
		name string
		out  func(Outcome) Outcome
		want string // worker; "" nowhere
	}{
		{"where it was answered", func(o Outcome) Outcome { o.Served = addr(1); return o }, "w1"},
		{"where the retry was answered", func(o Outcome) Outcome { o.Served, o.Attempts = addr(2), 2; return o }, "w2"},
		{"the client left early", func(o Outcome) Outcome { o.Served, o.Aborted = addr(1), true; return o }, "w1"},
		{"an error", func(o Outcome) Outcome { o.Served, o.Status = addr(1), 500; return o }, ""},
		{"a broken answer", func(o Outcome) Outcome { o.Served, o.Broken = addr(1), true; return o }, ""},
		{"a worker that nobody knows any more", func(o Outcome) Outcome { o.Served = addr(9); return o }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, k := keepingWorld(t)
			d := w.ask(t, func(r *Request) { r.Hints.Session = "s" }, atFirst)
			if d.Worker != "w1" {
				t.Fatalf("chosen is %s", d.Worker)
			}
			d.Done.End()
			if len(k.places) > 0 {
				t.Fatal("told before it is known where")
			}
			w.Report(d.ID, c.out(ok))
			w.Report(d.ID, c.out(ok))
			if len(k.places) != 1 || len(k.prompts) != 1 {
				t.Fatalf("told %d times of %d prompts", len(k.places), len(k.prompts))
			}
			p, got := k.prompts[0], ""
			if at := k.places[0]; at != nil {
				got = at.Worker.Name
				at.Held()
			}
			if got != c.want {
				t.Errorf("it is at %q, want %q", got, c.want)
			}
			if string(p.Body) != "as sent" || p.Path != "/v1/chat/completions" || p.Kind != openai.Chat || !p.Until.Equal(w.clock.Add(5*time.Minute)) || p.Size <= len(p.Body) {
				t.Errorf("%+v", p)
			}
		})
	}
}

// TestNobodyTellsWhatBecameOfIt: then it is believed to be where it was sent.
func TestNobodyTellsWhatBecameOfIt(t *testing.T) {
	w, k := keepingWorld(t)
	d := w.ask(t)
	d.Done.End()
	w.clock = w.clock.Add(w.settings.Load().FeedbackTTL + time.Second)
	w.table.forget(w.clock.Add(-w.settings.Load().FeedbackTTL), w.tell)
	if len(k.places) != 1 || k.places[0] == nil || k.places[0].Worker.Name != d.Worker {
		t.Errorf("%v", k.places)
	}
}

// TestKeysOfKeptPrompts: turns of one session have one, else equal prompts do; other sessions, tenants and pools have others.
func TestKeysOfKeptPrompts(t *testing.T) {
	pools := []PoolConfig{{Name: "a", Models: []string{"m"}}, {Name: "b", Models: []string{"n"}}}
	k := &kept{}
	w := newWorld(t, nil, pools, append(workers("a", 1, worker.Ready), workers("b", 2, worker.Ready)...)...)
	w.keeper, w.keeps = k, Keeps{Prompts: true}
	key := func(model, session, tenant, text string) uint64 {
		w.ask(t, func(r *Request) {
			path, ttl := r.Path, r.Hints.CacheTTL
			*r = *chatOf(t, model, long(text, 4000))
			r.Path, r.Hints.CacheTTL, r.Hints.Session, r.Tenant = path, ttl, session, tenant
		}).Done.End()
		return k.prompts[len(k.prompts)-1].Key
	}
	mine := key("m", "s", "t", "one")
	if key("m", "s", "t", "two") != mine {
		t.Error("turns of a session have different keys")
	}
	none := key("m", "", "t", "one")
	if key("m", "", "t", "one") != none {
		t.Error("equal prompts have different keys")
	}
	seen := map[uint64]string{mine: "mine", none: "none"}
	for _, other := range [][4]string{{"m", "s2", "t", "one"}, {"m", "s", "t2", "one"}, {"n", "s", "t", "one"}, {"m", "", "t", "two"}} {
		got := key(other[0], other[1], other[2], other[3])
		if seen[got] != "" {
			t.Errorf("%v has the key of %s", other, seen[got])
		}
		seen[got] = fmt.Sprint(other)
	}
	last := chatOf(t, "m", "bye")
	last.Hints.Session, last.Tenant, last.Hints.SessionFinal = "s", "t", true
	d, err := w.Route(t.Context(), last)
	if err != nil {
		t.Fatal(err)
	}
	d.Done.End()
	if len(k.forgot) != 1 || k.forgot[0] != mine {
		t.Errorf("forgot %v, want %d", k.forgot, mine)
	}
}

// TestAKeptPromptIsRemembered: whoever sends it again keeps what is remembered of its worker from being taken for evicted.
func TestAKeptPromptIsRemembered(t *testing.T) {
	w, k := keepingWorld(t)
	d := w.ask(t, atFirst)
	d.Done.End()
	w.Report(d.ID, Outcome{Status: 200, Attempts: 1, Served: addr(1)})
	w.pools[0].index.Clear(1)
	k.places[0].Held()
	if again := w.ask(t); again.PredictedCached == 0 || again.Worker != d.Worker {
		t.Errorf("%d tokens are believed at %s", again.PredictedCached, again.Worker)
	}
}

// TestTheNextTurn is handed over where it is wanted and asked for.
func TestTheNextTurn(t *testing.T) {
	for _, c := range []struct {
		name        string
		keeps       Keeps
		change      func(*Request)
		keep, ahead bool
	}{
		{"wanted", Keeps{Next: true}, func(r *Request) { r.Hints.SpeculativePrefill = true }, true, true},
		{"not asked for", Keeps{Next: true}, func(*Request) {}, false, false},
		{"not wanted", Keeps{Prompts: true}, func(r *Request) { r.Hints.SpeculativePrefill = true }, true, false},
		{"not for completions", Keeps{Next: true}, func(r *Request) { r.Hints.SpeculativePrefill, r.Kind = true, openai.Completions }, false, false},
		{"not for a message that goes on", Keeps{Next: true}, func(r *Request) {
			r.Hints.SpeculativePrefill, r.Scan.Template.ContinueFinal = true, openai.Yes
		}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, k := keepingWorld(t)
			w.keeps = c.keeps
			d := w.ask(t, c.change, atFirst)
			if d.Keep != c.keep || d.Ahead != c.ahead {
				t.Errorf("keep %t, ahead %t", d.Keep, d.Ahead)
			}
			d.Done.Answered([]byte("next"))
			d.Done.End()
			w.Report(d.ID, Outcome{Status: 200, Attempts: 1, Served: addr(1)})
			if !c.keep {
				return
			}
			if got := string(k.places[0].Next) == "next"; got != c.ahead || k.prompts[0].Until.IsZero() == c.keeps.Prompts {
				t.Errorf("handed over %t, until %s", got, k.prompts[0].Until)
			}
		})
	}
}
