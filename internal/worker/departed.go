package worker

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Departed is a worker that left: its state is Gone.
type Departed struct {
	Spec

	Cause string // a sentence
	At    time.Time
}

// How long, and how many at most, workers are shown that left.
const (
	showDeparted = 10 * time.Minute
	maxDeparted  = 256
)

// Departed are the workers that left during the last ten minutes and have not come back, the latest first.
func (r *Registry) Departed() []Departed {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetDepartedLocked(time.Now())
	left := slices.Clone(r.departed)
	slices.Reverse(left)
	return left
}

// Farewell says why a worker is missing from the list that its source applies next. Nobody has to say anything.
func (r *Registry) Farewell(addr netip.AddrPort, cause string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.farewells[addr] = cause
}

func (r *Registry) departLocked(spec Spec, now time.Time) {
	d := Departed{Spec: spec, Cause: cmp.Or(r.farewells[spec.Addr], "its source, "+spec.Source+", names it no longer"), At: now}
	r.metrics.states.WithLabelValues(spec.Pool, spec.Name, string(Gone)).Set(1)
	r.log.Info("worker "+string(Gone), "worker", spec.Name, "pool", spec.Pool, "address", spec.Addr.String(), "cause", d.Cause)
	r.departed = append(r.departed, d)
	r.forgetDepartedLocked(now)
}

// forgetDepartedLocked leaves out who came back, who left long ago, and the oldest of too many.
func (r *Registry) forgetDepartedLocked(now time.Time) {
	if len(r.departed) == 0 {
		return
	}
	present := map[[2]string]bool{}
	for _, e := range r.entries {
		present[[2]string{e.spec.Pool, e.spec.Name}] = true
	}
	surplus := len(r.departed) - maxDeparted
	r.departed = slices.DeleteFunc(r.departed, func(d Departed) bool {
		surplus--
		if surplus < 0 && now.Sub(d.At) < showDeparted && r.entries[d.Addr] == nil && !present[[2]string{d.Pool, d.Name}] {
			return false
		}
		r.metrics.states.DeleteLabelValues(d.Pool, d.Name, string(Gone))
		return true
	})
}
