package worker

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"attache/internal/bubble"
)

// TestFlap plays states at seconds: "second state -> until when it is held back, in seconds after the start, 0: not".
func TestFlap(t *testing.T) {
	cfg := FlapConfig{Changes: 4, Window: 60 * time.Second, Pause: 10 * time.Second, MaxPause: 30 * time.Second}
	for name, script := range map[string]string{
		"two restarts in a minute are too many": `
			0 ready -> 0
			1 unhealthy -> 0
			2 ready -> 0
			3 unhealthy -> 0
			4 ready -> 14`,
		"spread over time they are not": `
			0 ready -> 0
			1 unhealthy -> 0
			30 ready -> 0
			61 unhealthy -> 0
			95 ready -> 0`,
		"the way in and drains are no changes": `
			0 starting -> 0
			1 syncing -> 0
			2 ready -> 0
			3 draining -> 0
			4 ready -> 0
			5 suspect -> 0
			6 unhealthy -> 0
			7 ready -> 0
			8 draining -> 0
			9 suspect -> 0`,
		"who flaps on is held back for longer, up to a bound": `
			0 ready -> 0
			1 unhealthy -> 0
			2 ready -> 0
			3 unhealthy -> 0
			4 ready -> 14
			5 unhealthy -> 14
			6 ready -> 14
			7 unhealthy -> 14
			8 ready -> 28
			30 suspect -> 28
			31 ready -> 28
			32 suspect -> 28
			33 ready -> 63
			90 unhealthy -> 63
			91 ready -> 63
			92 unhealthy -> 63
			93 ready -> 123`,
		"who kept still for a window begins anew": `
			0 ready -> 0
			1 unhealthy -> 0
			2 ready -> 0
			3 unhealthy -> 0
			4 ready -> 14
			75 unhealthy -> 14
			76 ready -> 14
			77 unhealthy -> 14
			78 ready -> 88`,
	} {
		t.Run(name, func(t *testing.T) {
			var f flap
			begin := time.Unix(1_000_000, 0)
			for line := range strings.Lines(strings.TrimSpace(script)) {
				var second, want int
				var state State
				if _, err := fmt.Sscanf(strings.TrimSpace(line), "%d %s -> %d", &second, &state, &want); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				at := begin.Add(time.Duration(second) * time.Second)
				before := f.until
				held := f.see(state, cfg, at)
				got := 0
				if !f.until.IsZero() {
					got = int(f.until.Sub(begin).Seconds())
				}
				if got != want || held != f.until.After(before) {
					t.Fatalf("%q: held back until %d (told %v), want %d", strings.TrimSpace(line), got, held, want)
				}
				for range 3 { // looking again is no news
					if f.see(state, cfg, at) {
						t.Fatalf("%q: held back again", line)
					}
				}
			}
		})
	}
}

// TestFlapAgainstItsDefinition draws histories, and counts all changes in each window anew.
func TestFlapAgainstItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := FlapConfig{Changes: rapid.IntRange(2, 5).Draw(t, "changes"), Window: time.Minute, Pause: 10 * time.Second, MaxPause: time.Minute}
		var f flap
		var all []time.Time
		ready, now := true, time.Unix(1_000_000, 0)
		f.see(Ready, cfg, now)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second)
			if next := rapid.Bool().Draw(t, "ready"); next != ready {
				ready = next
				all = append(all, now)
			}
			within := 0
			for _, at := range all {
				if now.Sub(at) <= cfg.Window {
					within++
				}
			}
			state := Unhealthy
			if ready {
				state = Ready
			}
			news := len(all) > 0 && all[len(all)-1].Equal(now)
			if got, want := f.see(state, cfg, now), news && within >= cfg.Changes; got != want {
				t.Fatalf("held back: %v, want %v: %d changes within the window", got, want, within)
			} else if got {
				all = nil
			}
			if f.pause > cfg.MaxPause || f.held(now) && f.until.Sub(now) > cfg.MaxPause {
				t.Fatalf("held back for %s", f.pause)
			}
		}
	})
}

// TestWhoFlapsIsHeldBackWhereOthersServe drives the registry with what requests meet.
func TestWhoFlapsIsHeldBackWhereOthersServe(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.Flap.Changes = 4
		reg := prometheus.NewRegistry()
		r, err := New(cfg, slog.New(slog.DiscardHandler), reg)
		if err != nil {
			t.Fatal(err)
		}
		list := specs("p/a", "p/b")
		r.Apply("test", list)
		flapping, other := list[0].Addr, list[1].Addr
		answer := func(h health) { r.change(flapping, func(e *entry, _ time.Time) { e.check(h, cfg.Health) }) }
		look := func() string {
			r.change(flapping, func(*entry, time.Time) {})
			w := r.Set().ByAddr(flapping)
			return string(w.State) + ": " + w.Cause
		}
		good, dead := health{ok: true}, health{refused: true, cause: "connection refused"}
		r.change(other, func(e *entry, _ time.Time) { e.check(good, cfg.Health) })
		answer(good)
		for range 2 {
			time.Sleep(time.Second)
			answer(dead)
			answer(good)
		}
		held := "it changed between ready and not ready 4 times within 1m0s; held back for 10s, until 00:00:12 UTC"
		if got := look(); got != "suspect: "+held {
			t.Errorf("got %s", got)
		}
		r.change(other, func(e *entry, _ time.Time) { e.check(dead, cfg.Health) })
		if got := look(); got != "ready: "+held+"; used all the same, because no other worker of its pool is ready" {
			t.Errorf("alone: %s", got)
		}
		r.change(other, func(e *entry, _ time.Time) { e.check(good, cfg.Health) })
		if got := look(); got != "suspect: "+held {
			t.Errorf("with others again: %s", got)
		}
		time.Sleep(10 * time.Second)
		if got := look(); got != "ready: " {
			t.Errorf("after its pause: %s", got)
		}
		for range 2 {
			answer(dead)
			answer(good)
		}
		if got := look(); !strings.Contains(got, "held back for 20s") {
			t.Errorf("again: %s", got)
		}
		if err := r.Drain("a", false); err != nil || look() != "ready: " {
			t.Errorf("given back by an operator: %s, %v", look(), err)
		}
		if n := testutil.ToFloat64(r.metrics.flaps.WithLabelValues("p")); n != 2 {
			t.Errorf("%g times counted, want 2", n)
		}
	})
}
