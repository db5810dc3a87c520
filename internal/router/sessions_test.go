package router

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"attache/internal/slot"
	"attache/internal/worker"
)

func ofSession(id string) func(*Request) { return func(r *Request) { r.Hints.Session = id } }

// say sends one request of a session and ends it.
func (w *world) say(t *testing.T, id, text string, change ...func(*Request)) *Decision {
	t.Helper()
	req := chatOf(t, "m", text)
	ofSession(id)(req)
	for _, c := range change {
		c(req)
	}
	d, err := w.Route(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	d.Done.End()
	return d
}

// busy gives the worker at home much to do; the function returned ends it.
func (w *world) busy(t *testing.T, home string) func() {
	t.Helper()
	only := Subset{Stated: true, Endpoints: []netip.AddrPort{netip.MustParseAddrPort(home)}}
	req := chatOf(t, "m", long("busy", 200_000))
	req.Subset = only
	d, err := w.Route(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return d.Done.End
}

func sessionWorld(t *testing.T, mode string, change func(*Config)) (*world, []*worker.Worker) {
	ws := workers("default", 1, worker.Ready, worker.Ready)
	return newWorld(t, func(c *Config) {
		c.Affinity.Mode = mode
		if change != nil {
			change(c)
		}
	}, nil, ws...), ws
}

func TestAffinity(t *testing.T) {
	for _, c := range []struct {
		mode         string
		stays        bool // though the worker has more to do
		overTheLimit bool // and when it is saturated
	}{{affinityOff, false, false}, {affinitySoft, true, false}, {affinityHard, true, true}} {
		t.Run(c.mode, func(t *testing.T) {
			w, ws := sessionWorld(t, c.mode, func(c *Config) { c.MaxInFlight = 2 })
			home := first(w.say(t, "s", "hello"))
			end := w.busy(t, home)
			if got := first(w.say(t, "s", "and on")) == home; got != c.stays {
				t.Errorf("a busy worker: stays %t, want %t", got, c.stays)
			}
			end()
			home = first(w.say(t, "t", "hello"))
			ends := []func(){w.busy(t, home), w.busy(t, home)}
			req := chatOf(t, "m", "and on")
			ofSession("t")(req)
			d, err := w.Route(t.Context(), req)
			if moved := err == nil && first(d) != home; moved == c.overTheLimit {
				t.Errorf("a saturated worker: moved %t, %v", moved, err)
			}
			for _, end := range ends {
				end()
			}
			if err == nil {
				d.Done.End()
			}
			// A worker that is gone keeps nobody.
			home = first(w.say(t, "u", "hello"))
			for i, is := range ws {
				if is.Addr.String() == home {
					down := *is
					down.State = worker.Unhealthy
					w.publish(&down, ws[1-i])
				}
			}
			if got := first(w.say(t, "u", "and on")); got == home {
				t.Error("a session was sent to a worker that is unhealthy")
			}
		})
	}
}

// bound is where a session is bound to, as text; "" nowhere.
func (w *world) bound(id string) string {
	at, _, ok := w.pools[0].sessions.find(sessionKey("", id), w.fleet.set, w.clock)
	if !ok {
		return ""
	}
	return w.fleet.set.BySlot(at).Addr.String()
}

func TestSessionsEnd(t *testing.T) {
	final := func(r *Request) { r.Hints.SessionFinal = true }
	keep := func(d time.Duration) func(*Request) { return func(r *Request) { r.Hints.CacheTTL = d } }
	for _, c := range []struct {
		name, mode string
		then       func(t *testing.T, w *world, d *Decision, home string)
		first      func(*Request)
		bound      bool
	}{
		{"not bound without affinity", affinityOff, func(*testing.T, *world, *Decision, string) {}, func(*Request) {}, false},
		{"bound with it", affinitySoft, func(*testing.T, *world, *Decision, string) {}, func(*Request) {}, true},
		{"within its time", affinitySoft, func(_ *testing.T, w *world, _ *Decision, _ string) { w.clock = w.clock.Add(9 * time.Minute) }, func(*Request) {}, true},
		{"after its time", affinitySoft, func(_ *testing.T, w *world, _ *Decision, _ string) { w.clock = w.clock.Add(11 * time.Minute) }, func(*Request) {}, false},
		{"asked for without affinity", affinityOff, func(_ *testing.T, w *world, _ *Decision, _ string) { w.clock = w.clock.Add(4 * time.Minute) }, keep(5 * time.Minute), true},
		{"asked for, and over", affinityOff, func(_ *testing.T, w *world, _ *Decision, _ string) { w.clock = w.clock.Add(6 * time.Minute) }, keep(5 * time.Minute), false},
		{"asked for longer than affinity", affinitySoft, func(_ *testing.T, w *world, _ *Decision, _ string) { w.clock = w.clock.Add(30 * time.Minute) }, keep(time.Hour), true},
		{"the last request", affinitySoft, func(t *testing.T, w *world, _ *Decision, _ string) { w.say(t, "s", "bye", final) }, func(*Request) {}, false},
		{"an answer", affinitySoft, func(_ *testing.T, w *world, d *Decision, home string) {
			w.Report(d.ID, Outcome{Status: 200, Served: netip.MustParseAddrPort(home), Attempts: 1})
		}, func(*Request) {}, true},
		{"a mistake of the client", affinitySoft, func(_ *testing.T, w *world, d *Decision, home string) {
			w.Report(d.ID, Outcome{Status: 400, Served: netip.MustParseAddrPort(home), Attempts: 1})
		}, func(*Request) {}, true},
		{"a failure", affinitySoft, func(_ *testing.T, w *world, d *Decision, home string) {
			w.Report(d.ID, Outcome{Status: 500, Served: netip.MustParseAddrPort(home), Attempts: 1})
		}, func(*Request) {}, false},
		{"a broken answer", affinityHard, func(_ *testing.T, w *world, d *Decision, home string) {
			w.Report(d.ID, Outcome{Status: 200, Served: netip.MustParseAddrPort(home), Attempts: 1, Broken: true})
		}, func(*Request) {}, false},
		{"another worker answered", affinitySoft, func(t *testing.T, w *world, d *Decision, home string) {
			other := addr(1)
			if home == other.String() {
				other = addr(2)
			}
			w.Report(d.ID, Outcome{Status: 200, Served: other, Attempts: 2})
		}, func(*Request) {}, false},
		{"another worker in the slot", affinitySoft, func(_ *testing.T, w *world, _ *Decision, home string) {
			ws := workers("default", 1, worker.Ready, worker.Ready)
			for _, is := range ws {
				if is.Addr.String() == home {
					is.Addr = addr(9)
				}
			}
			w.publish(ws...)
		}, func(*Request) {}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, _ := sessionWorld(t, c.mode, nil)
			d := w.say(t, "s", "hello", c.first)
			c.then(t, w, d, first(d))
			if got := w.bound("s"); (got != "") != c.bound || c.bound && got != first(d) {
				t.Errorf("bound to %q, want it bound to %s: %t", got, first(d), c.bound)
			}
		})
	}
}

// TestAKeptSessionSticks: a request that asks for its prompt to be kept binds its session, though affinity is off.
func TestAKeptSessionSticks(t *testing.T) {
	w, _ := sessionWorld(t, affinityOff, nil)
	home := first(w.say(t, "s", "hello", func(r *Request) { r.Hints.CacheTTL = time.Hour }))
	defer w.busy(t, home)()
	for range 5 {
		w.clock = w.clock.Add(10 * time.Minute)
		if got := first(w.say(t, "s", "and on")); got != home {
			t.Fatalf("sent to %s, bound to %s", got, home)
		}
	}
	w.clock = w.clock.Add(20 * time.Minute)
	w.busy(t, home)
	if got := first(w.say(t, "s", "and on")); got == home {
		t.Error("sent to a busy worker after its time")
	}
}

// TestAnOldFailureDoesNotUnbind: a session that goes on elsewhere is not taken from there by what happened where it was.
func TestAnOldFailureDoesNotUnbind(t *testing.T) {
	var s sessions
	s.most = 10
	ws := workers("default", 1, worker.Ready, worker.Ready)
	set, now := worker.NewSet(ws...), time.Unix(1, 0)
	s.bind(session{key: 1, slot: ws[0].Slot, addr: ws[0].Addr}, now, time.Minute)
	s.bind(session{key: 1, slot: ws[1].Slot, addr: ws[1].Addr}, now, time.Minute)
	s.unbind(1, ws[0].Slot)
	if at, _, ok := s.find(1, set, now); !ok || at != ws[1].Slot {
		t.Errorf("bound to slot %d, %t", at, ok)
	}
	s.unbind(1, ws[1].Slot)
	if _, _, ok := s.find(1, set, now); ok {
		t.Error("bound still")
	}
}

func TestSessionsAreBounded(t *testing.T) {
	var s sessions
	s.most = 3
	ws := workers("default", 1, worker.Ready)
	set, now := worker.NewSet(ws...), time.Unix(1, 0)
	for key := range uint64(4) {
		s.bind(session{key: key, slot: ws[0].Slot, addr: ws[0].Addr}, now, time.Minute) // key 0 is none
		if key == 2 {
			s.find(1, set, now)
		}
	}
	s.bind(session{key: 4, slot: ws[0].Slot, addr: ws[0].Addr}, now, time.Minute)
	got := ""
	for key := range uint64(6) {
		if at, _, ok := s.find(key, set, now); ok && at != slot.None {
			got += fmt.Sprint(key, " ")
		}
	}
	if got != "1 3 4 " || s.count() != 3 || len(s.byKey) != 3 {
		t.Errorf("remembered: %s(%d); want 1, which was asked for last, 3 and 4", got, s.count())
	}
}

func TestSessionsOfTenantsAreApart(t *testing.T) {
	if sessionKey("a", "s") == sessionKey("b", "s") || sessionKey("", "") != 0 || sessionKey("a", "") != 0 || sessionKey("", "s") == 0 {
		t.Error("keys of sessions")
	}
}
