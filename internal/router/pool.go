package router

import (
	"net/netip"
	"slices"
	"sync/atomic"

	"attache/indexer"
	"attache/indexer/events"
	"attache/internal/prompt"
	"attache/scoring"
)

// pool is what a decision needs of one pool: the model's index and its scoring. Both know workers by slot only.
type pool struct {
	name     string
	keyer    *prompt.Keyer
	index    *indexer.Index
	ledger   *events.Ledger
	scorer   *scoring.Scorer
	watcher  Watcher // nil: nobody watches
	tallies  tallies
	counters counters
	flights  flights
	gate     *gate
	sharer   Sharer // nil: there are no other replicas
	remote   *Remote
	sessions sessions
	learnt   atomic.Pointer[scoring.Learnt] // before the last restart; nil: nothing
	memories recollections                  // of a snapshot
	tenants  tenants
	misses   misses
	heat     heat

	fidelities fidelities
	trust      atomic.Pointer[[]float64] // by slot; see refreshTrust
}

// Subset restricts who may serve a request, as a gateway may demand (Gateway API Inference Extension). A stated subset
// that names nobody allows nobody.
type Subset struct {
	Stated    bool
	Endpoints []netip.AddrPort // exactly this ip:port
	Hosts     []netip.Addr     // every port of this ip
}

// Allows reports whether a worker at this address may serve.
func (s *Subset) Allows(addr netip.AddrPort) bool {
	return !s.Stated || slices.Contains(s.Endpoints, addr) || slices.Contains(s.Hosts, addr.Addr())
}
