package worker

import (
	"fmt"
	"time"
)

// facts are what is known of one worker; its state follows from them and the time, and from nothing else.
type facts struct {
	drain, drainByHand bool

	checked  bool   // its health was answered or refused at least once
	failures int    // health checks failed in a row
	down     bool   // its health check fails
	cause    string // what the last check said, when it failed
	gone     bool   // its process was seen gone since it was healthy

	circuit circuit

	admitted bool      // it was ready before, or Envoy knows it
	healthy  time.Time // since when it waits to be admitted; zero: not waiting

	epoch        uint64
	processStart float64
}

// circuit keeps requests away from a worker on which they fail.
//
//	closed --failures--> open --pause--> half-open --success--> closed
//	                      ^                  |
//	                      +--failure, pause doubled
//
// Half-open lets requests through; the first outcome decides.
type circuit struct {
	failures int           // in a row, while closed
	pause    time.Duration // of the current opening; 0 closed
	until    time.Time
	kind     Kind // of the failure that opened it
}

// Kind is how a request failed on a worker.
type Kind string

// The kinds of failure.
const (
	Connect Kind = "connect" // it could not be reached, or did not take the request
	Reset   Kind = "reset"   // it broke off
)

// Outcome is what a request met on a worker.
type Outcome struct {
	OK   bool
	Kind Kind // when not OK
}

func (c *circuit) report(o Outcome, cfg CircuitConfig, now time.Time) {
	if o.OK {
		*c = circuit{}
		return
	}
	switch {
	case c.pause > 0 && now.Before(c.until):
		return // late news of what opened it
	case c.pause > 0:
		c.pause = min(2*c.pause, cfg.MaxPause)
	default:
		c.failures++
		if o.Kind != Connect && c.failures < cfg.Failures {
			return
		}
		c.pause = cfg.Pause
	}
	c.until, c.kind = now.Add(c.pause), o.Kind
}

func (c *circuit) cause() string {
	if c.kind == Connect {
		return "requests could not reach it"
	}
	return fmt.Sprintf("%d requests in a row broke off on it", c.failures)
}

func (c *circuit) open(now time.Time) bool { return c.pause > 0 && now.Before(c.until) }

// health is the result of one check.
type health struct {
	ok      bool
	refused bool   // nobody listens: the process is gone
	cause   string // when not ok, or when ok with a reservation
}

// check takes in a health check.
func (f *facts) check(h health, cfg HealthConfig) {
	if h.ok {
		if f.gone {
			f.gone = false
			f.epoch++
			f.processStart = 0 // the next reading tells the new one, which is no second restart
		}
		f.checked, f.failures, f.down, f.cause = true, 0, false, h.cause
		if f.circuit.kind == Connect {
			f.circuit = circuit{} // it can be reached again
		}
		return
	}
	f.failures++
	if h.refused || f.failures >= cfg.Failures {
		f.checked, f.down, f.cause = true, true, h.cause
		f.gone = f.gone || h.refused
	}
}

// restarted takes in the process's start time as its metrics tell it.
func (f *facts) restarted(start float64) {
	if start == 0 || start == f.processStart {
		return
	}
	if f.processStart != 0 {
		f.epoch++
	}
	f.processStart = start
	f.gone = false
}

// gate says whether a worker must be known to Envoy before it is used.
type gate struct {
	on      bool
	known   bool
	timeout time.Duration
}

// state is the first that applies.
func (f *facts) state(g gate, now time.Time) (State, string) {
	switch {
	case f.drainByHand:
		return Draining, "drained by an operator"
	case f.drain:
		return Draining, "drained by discovery"
	case !f.checked:
		return Starting, "waiting for its first health check"
	case f.down:
		f.healthy = time.Time{}
		return Unhealthy, f.cause
	case f.circuit.open(now):
		return Suspect, f.circuit.cause()
	}
	if !f.admitted {
		if f.healthy.IsZero() {
			f.healthy = now
		}
		if g.on && !g.known && now.Sub(f.healthy) < g.timeout {
			return Syncing, "Envoy has not acknowledged its address yet"
		}
		f.admitted = true
	}
	return Ready, f.cause
}
