package sim

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"attache/internal/field"
)

// The modes of an EventFault. With TensorRT-LLM, whose events are pulled, only "drop", "lose" (the same there), and "silence"
// do anything.
const (
	EventDrop       = "drop"        // a batch is not sent; a replay has it
	EventLose       = "lose"        // a batch is neither sent nor replayed; its number is used up
	EventDuplicate  = "duplicate"   // a batch is sent twice
	EventReorder    = "reorder"     // a batch is sent after the next one
	EventSilence    = "silence"     // what happens in a step is not told, and no number is used up
	EventSlowReplay = "slow-replay" // every batch of a replay comes Delay later
	EventNoReplay   = "no-replay"   // a request for a replay is not answered
	EventBlockSize  = "block-size"  // batches say BlockTokens of every block they store
)

var eventModes = []string{
	EventDrop, EventLose, EventDuplicate, EventReorder, EventSilence, EventSlowReplay, EventNoReplay, EventBlockSize,
}

// EventFault is something that is wrong with the events of an engine, all ranks together. Faults of different modes add up.
type EventFault struct {
	// Mode is one of the constants above; "none" ends all faults.
	Mode string
	// Count is how many batches, requests for replays, or steps it hits. 0: all, until For is over or the mode is set anew.
	Count int
	// For is when it ends by itself. 0: never.
	For time.Duration
	// Delay is that of "slow-replay".
	Delay time.Duration
	// BlockTokens is what "block-size" says. 0: twice the truth.
	BlockTokens int

	until time.Time // zero: no end
}

// eventFaultJSON is how an EventFault is written in JSON: durations as in "2s".
type eventFaultJSON struct {
	Mode        string `json:"mode"`
	Count       int    `json:"count,omitempty"`
	For         string `json:"for,omitempty"`
	Delay       string `json:"delay,omitempty"`
	BlockTokens int    `json:"block_tokens,omitempty"`
}

// UnmarshalJSON reads {"mode":"drop","count":3,"for":"5s","delay":"100ms","block_tokens":32}.
func (f *EventFault) UnmarshalJSON(raw []byte) error {
	var j eventFaultJSON
	if err := json.Unmarshal(raw, &j); err != nil {
		return err
	}
	*f = EventFault{Mode: j.Mode, Count: j.Count, BlockTokens: j.BlockTokens}
	return errors.Join(readDuration("delay", j.Delay, &f.Delay), readDuration("for", j.For, &f.For))
}

// MarshalJSON writes what UnmarshalJSON reads.
func (f EventFault) MarshalJSON() ([]byte, error) {
	j := eventFaultJSON{Mode: f.Mode, Count: f.Count, BlockTokens: f.BlockTokens}
	if f.Delay > 0 {
		j.Delay = f.Delay.String()
	}
	if f.For > 0 {
		j.For = f.For.String()
	}
	return json.Marshal(j)
}

// Validate reports every field that breaks its rule.
func (f EventFault) Validate() error {
	var check field.Checker
	check.Check(f.Mode == FaultNone || slices.Contains(eventModes, f.Mode), "mode", f.Mode,
		"must be one of none, "+strings.Join(eventModes, ", "))
	check.Check(f.Count >= 0, "count", f.Count, "must not be negative")
	check.Check(f.For >= 0, "for", f.For, "must not be negative")
	check.Check(f.Delay >= 0 && (f.Delay > 0 || f.Mode != EventSlowReplay), "delay", f.Delay, "must be above 0 with slow-replay")
	check.Check(f.BlockTokens >= 0 && f.BlockTokens <= 1<<20, "block_tokens", f.BlockTokens, "must be 0 (twice the truth) to 1048576 tokens")
	return check.Err()
}

// eventFaults are those of an engine at the moment. They outlive a restart. Safe for concurrent use.
type eventFaults struct {
	mu     sync.Mutex // guards active
	active []EventFault
}

// set adds a fault, in place of that of the same mode.
func (f *eventFaults) set(x EventFault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x.Mode == FaultNone {
		f.active = nil
		return
	}
	if x.For > 0 {
		x.until = time.Now().Add(x.For)
	}
	f.active = append(slices.DeleteFunc(f.active, func(a EventFault) bool { return a.Mode == x.Mode }), x)
}

// find returns the fault of a mode and counts it; ok says that there is one.
func (f *eventFaults) find(mode string) (x EventFault, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.active) == 0 {
		return EventFault{}, false
	}
	f.expire()
	i := slices.IndexFunc(f.active, func(a EventFault) bool { return a.Mode == mode })
	if i < 0 {
		return EventFault{}, false
	}
	x = f.active[i]
	switch x.Count {
	case 0:
	case 1:
		f.active = slices.Delete(f.active, i, i+1)
	default:
		f.active[i].Count--
	}
	return x, true
}

// take is find for faults that say nothing but that they are there.
func (f *eventFaults) take(mode string) bool {
	_, ok := f.find(mode)
	return ok
}

// delay is that of the fault of a mode; 0: there is none.
func (f *eventFaults) delay(mode string) time.Duration {
	x, _ := f.find(mode)
	return x.Delay
}

// blockTokens is what batches say of blocks that have size tokens.
func (f *eventFaults) blockTokens(size int) int {
	x, ok := f.find(EventBlockSize)
	switch {
	case !ok:
		return size
	case x.BlockTokens == 0:
		return 2 * size
	default:
		return x.BlockTokens
	}
}

// list are the faults that there are.
func (f *eventFaults) list() []EventFault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	return append([]EventFault{}, f.active...)
}

func (f *eventFaults) expire() {
	f.active = slices.DeleteFunc(f.active, func(a EventFault) bool { return !a.until.IsZero() && !time.Now().Before(a.until) })
}
