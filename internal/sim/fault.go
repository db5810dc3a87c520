package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"attache/internal/field"
)

// The modes of a Fault.
const (
	FaultNone   = "none"
	FaultRefuse = "refuse" // the port is closed, as are all connections, as if the process were gone
	FaultHang   = "hang"   // connections are accepted, but nothing is answered and no step is done
	FaultSlow   = "slow"   // every step takes Delay longer
	Fault503    = "503"    // inference is answered with 503
	Fault500    = "500"    // inference is answered with 500
	FaultCut    = "cut"    // the connection ends without a word after AfterTokens tokens of an answer
	FaultReset  = "reset"  // the connection is reset after the request was read, before the response headers
)

// Fault is something that is wrong with an engine.
type Fault struct {
	// Mode is one of the constants above; empty is "none".
	Mode string
	// AfterTokens is how much of an answer "cut" lets through. 0: the response headers only.
	AfterTokens int
	// Delay is what "slow" adds to each step.
	Delay time.Duration
	// For is when the fault ends by itself. 0: when the next one is set.
	For time.Duration
	// Count is how many inference requests "503", "500", "cut" and "reset" hit before they end. 0: all.
	Count int
	// Health makes "503" and "500" answer for /health, too.
	Health bool
}

// faultJSON is how a Fault is written in JSON: durations as in "2s".
type faultJSON struct {
	Mode        string `json:"mode"`
	AfterTokens int    `json:"after_tokens,omitempty"`
	Delay       string `json:"delay,omitempty"`
	For         string `json:"for,omitempty"`
	Count       int    `json:"count,omitempty"`
	Health      bool   `json:"health,omitempty"`
}

// UnmarshalJSON reads {"mode":"cut","after_tokens":3,"delay":"2s","for":"5s","count":1,"health":true}.
func (f *Fault) UnmarshalJSON(raw []byte) error {
	var j faultJSON
	if err := json.Unmarshal(raw, &j); err != nil {
		return err
	}
	*f = Fault{Mode: j.Mode, AfterTokens: j.AfterTokens, Count: j.Count, Health: j.Health}
	return errors.Join(readDuration("delay", j.Delay, &f.Delay), readDuration("for", j.For, &f.For))
}

// readDuration reads a duration as it is written in JSON; an empty one is none.
func readDuration(name, text string, into *time.Duration) (err error) {
	if text == "" {
		return nil
	}
	if *into, err = time.ParseDuration(text); err != nil {
		return fmt.Errorf("%s: %q: must be a duration such as 500ms or 2s", name, text)
	}
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (f Fault) MarshalJSON() ([]byte, error) {
	j := faultJSON{Mode: f.mode(), AfterTokens: f.AfterTokens, Count: f.Count, Health: f.Health}
	if f.Delay > 0 {
		j.Delay = f.Delay.String()
	}
	if f.For > 0 {
		j.For = f.For.String()
	}
	return json.Marshal(j)
}

// Validate reports every field that breaks its rule.
func (f Fault) Validate() error {
	var check field.Checker
	check.Check(knownMode(f.Mode), "mode", f.Mode, "must be one of "+strings.Join(modes[1:], ", "))
	check.Check(f.AfterTokens >= 0, "after_tokens", f.AfterTokens, "must not be negative")
	check.Check(f.Delay >= 0, "delay", f.Delay, "must not be negative")
	check.Check(f.For >= 0, "for", f.For, "must not be negative")
	check.Check(f.Count >= 0, "count", f.Count, "must not be negative")
	return check.Err()
}

func (f Fault) mode() string {
	if f.Mode == "" {
		return FaultNone
	}
	return f.Mode
}

// status is the HTTP status of "503" and "500".
func (f Fault) status() int {
	if f.Mode == Fault503 {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// faults is the fault of an engine at the moment. Safe for concurrent use.
type faults struct {
	onChange func(was, is Fault) // called with mu held

	mu      sync.Mutex    // guards the fields below
	current Fault         // Count goes down as requests are hit
	changed chan struct{} // closed when another fault takes over
	timer   *time.Timer   // ends the current one; nil without For
}

func newFaults(onChange func(was, is Fault)) *faults {
	return &faults{onChange: onChange, changed: make(chan struct{})}
}

// set replaces the fault.
func (f *faults) set(x Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.setLocked(x)
}

func (f *faults) setLocked(x Fault) {
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
	close(f.changed)
	was, over := f.current, make(chan struct{})
	f.current, f.changed = x, over
	f.onChange(was, x)
	if x.For > 0 {
		f.timer = time.AfterFunc(x.For, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.changed == over { // nobody was faster
				f.setLocked(Fault{})
			}
		})
	}
}

// get returns the fault and a channel that is closed when it is over.
func (f *faults) get() (Fault, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current, f.changed
}

// hit is the fault that one inference request meets; it counts.
func (f *faults) hit() Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.current
	switch x.Mode {
	case Fault503, Fault500, FaultCut, FaultReset:
	default:
		return Fault{}
	}
	if x.Count == 1 {
		f.setLocked(Fault{})
	} else if x.Count > 1 {
		f.current.Count--
	}
	return x
}
