package quality

import (
	"fmt"
	"time"

	"attache/internal/sim/trace"
	"attache/internal/sim/virtual"
)

// Scenario is a workload on a cluster.
type Scenario struct {
	Name string
	// Group is what it is an example of; figures are also given by group.
	Group    string
	Workload Workload
	// Cluster is without what a Spec says.
	Cluster virtual.Config
	// Warmup is the share of the workload, by arrivals or by horizon if it has one, that latencies are not taken of.
	Warmup float64
	// Collapse marks a load at which one decision is between a good day and a queue without end; worst cases leave it out.
	Collapse bool
}

// Workload is how a workload comes to be.
type Workload struct {
	// Key tells workloads apart; two of one key are the same.
	Key string
	// Seeded says that it differs with the seed.
	Seeded bool
	Load   func(seed uint64) (*trace.Workload, error)
}

// Recorded is a trace by its name or file.
func Recorded(name string, o trace.Options) Workload {
	o.Seed = 0
	return Workload{fmt.Sprintf("%s %+v", name, o), o.Jitter > 0, func(seed uint64) (*trace.Workload, error) {
		o := o
		o.Seed = seed
		return trace.Open(name, o)
	}}
}

// Sessions are recorded coding agents in a closed loop.
func Sessions(o trace.SessionOptions) Workload {
	return Workload{fmt.Sprintf("sessions %+v", o), true, func(seed uint64) (*trace.Workload, error) {
		o := o
		o.Seed = seed
		return trace.AgentSessions(o)
	}}
}

// Customers are long prompts with a few users each. most bounds the requests; 0 is no bound.
func Customers(o trace.B2BOptions, most int) Workload {
	return Workload{fmt.Sprintf("b2b %+v %d", o, most), true, func(seed uint64) (*trace.Workload, error) {
		o := o
		o.Seed = seed
		w, err := trace.B2B(o)
		if err == nil && most > 0 && most < len(w.All) {
			w.All, w.Heads = w.All[:most], w.Heads[:most]
		}
		return w, err
	}}
}

// Programs are several agents each that work on one task.
func Programs(o trace.AgentsOptions) Workload {
	return Workload{fmt.Sprintf("programs %+v", o), true, func(seed uint64) (*trace.Workload, error) {
		o := o
		o.Seed = seed
		return trace.Agents(o)
	}}
}

// warmup is when latencies begin to count.
func (s *Scenario) warmup(w *trace.Workload) time.Duration {
	if w.Horizon > 0 {
		return time.Duration(s.Warmup * float64(w.Horizon))
	}
	if i := int(s.Warmup * float64(len(w.Heads))); i > 0 && i < len(w.Heads) {
		return w.Heads[i].Arrival
	}
	return 0
}
