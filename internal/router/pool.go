package router

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"attache/indexer"
	"attache/indexer/events"
	"attache/internal/prompt"
	"attache/internal/worker"
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
	sessions sessions
	learnt   atomic.Pointer[scoring.Learnt] // before the last restart; nil: nothing
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

// eligible lists the pool's workers that may be chosen. The error, when there are none, says what keeps each out.
func (p *pool) eligible(set *worker.Set, req *Request, dst []*worker.Worker) ([]*worker.Worker, error) {
	for _, w := range set.Eligible(p.name) {
		if req.Subset.Allows(w.Addr) {
			dst = append(dst, w)
		}
	}
	if len(dst) > 0 {
		return dst, nil
	}
	return nil, &NoWorkerError{Pool: p.name, Why: whyNobody(set, p.name)}
}

// whyNobody counts a pool's workers by state.
func whyNobody(set *worker.Set, pool string) string {
	if len(set.Eligible(pool)) > 0 {
		return "the gateway's subset excludes all that could"
	}
	all := set.Pool(pool)
	if len(all) == 0 {
		return "no workers known"
	}
	count := map[worker.State]int{}
	for _, w := range all {
		count[w.State]++
	}
	var parts []string
	for state, n := range count {
		parts = append(parts, fmt.Sprintf("%d %s", n, state))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
