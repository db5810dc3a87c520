package router

import (
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// tenants are the figures of a pool's tenants. Their number is bounded, because clients may be able to choose their names: the first
// so many have their own, all others share those of otherTenant. Requests that name no tenant are not counted. Safe for concurrent use.
type tenants struct {
	most  atomic.Int64
	make  func(name string) *tenantTokens
	mu    sync.RWMutex // guards named and other
	named map[string]*tenantTokens
	other *tenantTokens // nil until needed
}

// tenantTokens are one tenant's counters in one pool.
type tenantTokens struct {
	prompt, available, captured, delivered, measured prometheus.Counter
}

const (
	otherTenant   = "other"
	longestTenant = 128 // bytes
)

// of finds a tenant's counters; nil: it is not counted.
func (t *tenants) of(name string) *tenantTokens {
	if name == "" || t.most.Load() == 0 {
		return nil
	}
	t.mu.RLock()
	c := t.named[name]
	t.mu.RUnlock()
	if c != nil {
		return c
	}
	return t.add(name)
}

// add gives a tenant counters of its own while there is room.
func (t *tenants) add(name string) *tenantTokens {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.named[name]; c != nil {
		return c
	}
	if len(t.named) < int(t.most.Load()) && len(name) <= longestTenant && utf8.ValidString(name) && name != otherTenant {
		if t.named == nil {
			t.named = map[string]*tenantTokens{}
		}
		c := t.make(name)
		t.named[name] = c
		return c
	}
	if t.other == nil {
		t.other = t.make(otherTenant)
	}
	return t.other
}
