package scoring

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"attache/internal/field"
	"attache/internal/slot"
)

// Learnt is what a scorer has learnt of its engines and of their requests, to be kept over a restart as JSON. What is booked is
// not part of it.
type Learnt struct {
	// Version is the version of these fields, LearntVersion.
	Version int `json:"version"`
	// YardstickSeconds is what the speed model says of a cold prompt of 8192 tokens: all sums are relative to that model, and
	// are refused by a scorer that has another one.
	YardstickSeconds float64 `json:"yardstick_seconds"`
	// Pool are the sums that k is the quotient of, over all workers.
	Pool Sums `json:"pool"`
	// PrefillSeconds is the mean of requests' own prefill, by the model, without k.
	PrefillSeconds float64 `json:"prefill_seconds"`
	// OutputTokens is the mean length of an answer.
	OutputTokens float64 `json:"output_tokens"`
	// ResidenceSeconds is the mean time from the decision to the end of a request.
	ResidenceSeconds float64 `json:"residence_seconds"`
	// Workers are the sums of single slots, by the names that the caller gives them.
	Workers map[string]Sums `json:"workers,omitempty"`
}

// Sums are decayed sums of observed and of estimated prefill times, in seconds.
type Sums struct {
	Observed  float64 `json:"observed_seconds"`
	Estimated float64 `json:"estimated_seconds"`
}

// LearntVersion is the version of Learnt that this package writes and reads.
const LearntVersion = 1

const (
	oldCounts   = 20.0    // mean prefills, as which restored sums count at most
	yardstick   = 8192    // tokens
	maxLearnt   = 8 << 20 // bytes of JSON
	maxWorkers  = 1 << 16
	maxName     = 1024 // bytes
	maxSum      = 1e12 // seconds
	leastMean   = 1e-9 // seconds of a prefill
	mostMean    = 1e7  // seconds, or tokens
	roundingOff = 1e-6 // share by which sums may miss their bounds
)

// Learnt returns what was learnt until now. Slots without a name are left out; of slots that share one, the one that has
// learnt most is kept.
func (s *Scorer) Learnt(names map[slot.Slot]string) Learnt {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := Learnt{
		Version: LearntVersion, YardstickSeconds: s.tuning.Load().yardstick, Pool: s.calibration.sums(),
		PrefillSeconds: float64(s.own), OutputTokens: float64(s.output), ResidenceSeconds: float64(s.residence),
	}
	for sl, load := range s.loads {
		name := names[slot.Slot(sl)]
		if name == "" || load == nil || load.own.estimated <= l.Workers[name].Estimated {
			continue
		}
		if l.Workers == nil {
			l.Workers = map[string]Sums{}
		}
		l.Workers[name] = load.own.sums()
	}
	return l
}

// Restore takes in what an earlier scorer has learnt, or nothing of it if it returns an error: that names every field which
// cannot be true, or says that it was learnt with another speed model. The sums count as 20 requests at most, so that what is
// observed from now on soon outweighs them; means fade as they always do.
//
// What this scorer has learnt by itself is kept: of the pool nothing is taken in after the first decision, of a slot nothing after its
// first observation. So it can be called again for workers that appear later. Names that slots does not have are passed over.
func (s *Scorer) Restore(l Learnt, slots map[string]slot.Slot) error {
	if err := l.Validate(); err != nil {
		return fmt.Errorf("scoring: what was learnt: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.tuning.Load().yardstick; l.YardstickSeconds < have*(1-roundingOff) || l.YardstickSeconds > have*(1+roundingOff) {
		return fmt.Errorf("scoring: what was learnt: yardstick_seconds: %v: must be %v, as the configured speed model has it",
			l.YardstickSeconds, have)
	}
	if s.turns == 0 && s.calibration.estimated == 0 {
		s.calibration = l.Pool.old(l.PrefillSeconds)
		s.own, s.output, s.residence = mean(l.PrefillSeconds), mean(l.OutputTokens), mean(l.ResidenceSeconds)
	}
	for name, sums := range l.Workers {
		sl, known := slots[name]
		if !known || sl == slot.None {
			continue
		}
		if load := s.loadOf(sl); load.own.estimated == 0 {
			s.update(load) // by what was believed until now
			load.own = sums.old(l.PrefillSeconds)
		}
	}
	return nil
}

func (c *calibration) sums() Sums { return Sums{c.observed, c.estimated} }

// old is what sums count that were learnt long ago, when a request's prefill is mean seconds in the mean.
func (s Sums) old(mean float64) calibration {
	f := 1.0
	if most := oldCounts * mean; s.Estimated > most {
		f = most / s.Estimated
	}
	return calibration{f * s.Observed, f * s.Estimated}
}

// Validate reports every field that cannot be true.
func (l *Learnt) Validate() error {
	var check field.Checker
	check.Check(l.Version == LearntVersion, "version", l.Version, fmt.Sprintf("must be %d", LearntVersion))
	for _, f := range []struct {
		key          string
		value, least float64
	}{
		{"yardstick_seconds", l.YardstickSeconds, leastMean}, {"prefill_seconds", l.PrefillSeconds, leastMean},
		{"output_tokens", l.OutputTokens, 0}, {"residence_seconds", l.ResidenceSeconds, 0},
	} {
		check.Check(f.value >= f.least && f.value <= mostMean, f.key, f.value, fmt.Sprintf("must be %v to %v", f.least, mostMean))
	}
	check.Under("pool", l.Pool.validate())
	if len(l.Workers) > maxWorkers {
		check.Check(false, "workers", len(l.Workers), fmt.Sprintf("must be at most %d", maxWorkers))
		return check.Err()
	}
	for _, name := range slices.Sorted(maps.Keys(l.Workers)) {
		check.Check(name != "" && len(name) <= maxName, "workers", name[:min(len(name), 40)],
			fmt.Sprintf("must have names of 1 to %d bytes", maxName))
		check.Under(fmt.Sprintf("workers[%.40q]", name), l.Workers[name].validate())
	}
	return check.Err()
}

func (s Sums) validate() error {
	var check field.Checker
	check.Check(s.Estimated >= 0 && s.Estimated <= maxSum, "estimated_seconds", s.Estimated, fmt.Sprintf("must be 0 to %v", maxSum))
	least, most := fastest*s.Estimated*(1-roundingOff), slowest*s.Estimated*(1+roundingOff)
	check.Check(s.Observed >= least && s.Observed <= most, "observed_seconds", s.Observed,
		fmt.Sprintf("must be %v to %v times estimated_seconds", fastest, slowest))
	return check.Err()
}

// ReadLearnt reads a Learnt as JSON, at most 8 MiB of it, and validates it.
func ReadLearnt(r io.Reader) (Learnt, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxLearnt+1))
	if err != nil {
		return Learnt{}, fmt.Errorf("scoring: what was learnt: %w", err)
	}
	if len(text) > maxLearnt {
		return Learnt{}, fmt.Errorf("scoring: what was learnt: must be at most %d bytes", maxLearnt)
	}
	var l Learnt
	if err := json.Unmarshal(text, &l); err != nil {
		return Learnt{}, fmt.Errorf("scoring: what was learnt: must be JSON: %w", err)
	}
	if err := l.Validate(); err != nil {
		return Learnt{}, fmt.Errorf("scoring: what was learnt: %w", err)
	}
	return l, nil
}
