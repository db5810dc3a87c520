package worker

import (
	"fmt"
	"slices"
	"time"
)

// flap holds back a worker that comes and goes: each change costs requests, and the caches of those that moved.
//
//	changes within the window reach the limit -> held back for a pause
//	... again within a window of its return   -> for twice as long, up to a bound
type flap struct {
	seen    bool        // ready has a meaning
	ready   bool        // as its state was last, not counting what is held back here
	changes []time.Time // within the window, oldest first
	pause   time.Duration
	until   time.Time // held back until then
	count   int       // changes that led to it
}

// see takes in a state, and reports whether the worker is held back from now on. Drains and waiting for Envoy are no flapping.
func (f *flap) see(state State, cfg FlapConfig, now time.Time) bool {
	if cfg.Changes == 0 || state != Ready && state != Unhealthy && state != Suspect {
		return false
	}
	ready, first := state == Ready, !f.seen
	if !first && ready == f.ready {
		return false
	}
	f.seen, f.ready = true, ready
	if first {
		return false
	}
	f.changes = append(slices.DeleteFunc(f.changes, func(at time.Time) bool { return now.Sub(at) > cfg.Window }), now)
	if len(f.changes) < cfg.Changes {
		return false
	}
	if f.pause > 0 && now.Before(f.until.Add(cfg.Window)) {
		f.pause = min(2*f.pause, cfg.MaxPause)
	} else {
		f.pause = cfg.Pause
	}
	f.until, f.count, f.changes = now.Add(f.pause), len(f.changes), f.changes[:0]
	return true
}

func (f *flap) held(now time.Time) bool { return now.Before(f.until) }

func (f *flap) cause(cfg FlapConfig) string {
	return fmt.Sprintf("it changed between ready and not ready %d times within %s; held back for %s, until %s", f.count, cfg.Window, f.pause,
		f.until.UTC().Format("15:04:05 UTC"))
}

// verdict is a worker's state in the making.
type verdict struct {
	state State
	cause string
}

// kind is what workers can stand in for each other in.
type kind struct {
	pool    string
	prefill bool
}

func (e *entry) kind() kind {
	traits, _ := ParseTraits(e.spec.Labels)
	return kind{e.spec.Pool, traits.Prefill}
}

// holdBackLocked keeps those that flap from being chosen, and those on which requests fail, where others can be. Where none can, a request
// that is tried on such a worker may still succeed, and one that is refused cannot.
func (r *Registry) holdBackLocked(now time.Time) {
	flap := r.cfg.Load().Flap
	why := func(e *entry) string {
		switch {
		case e.verdict.state == Suspect:
			return e.verdict.cause
		case e.verdict.state == Ready && e.flap.held(now):
			return e.flap.cause(flap)
		}
		return ""
	}
	some := false
	for _, e := range r.entries {
		some = some || why(e) != ""
	}
	if !some {
		return
	}
	others := map[kind]bool{}
	for _, e := range r.entries {
		if e.verdict.state == Ready && why(e) == "" {
			others[e.kind()] = true
		}
	}
	for _, e := range r.entries {
		switch cause := why(e); {
		case cause == "":
		case others[e.kind()]:
			e.verdict = verdict{Suspect, cause}
		default:
			e.verdict = verdict{Ready, cause + "; used all the same, because no other worker of its pool is ready"}
		}
	}
}
