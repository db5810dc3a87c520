package register

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"attache/internal/worker"
)

// record is what the store keeps of a worker, as JSON. Versions of attache that run side by side read each other's: members are added,
// and never change their meaning.
type record struct {
	Registration

	Addr     netip.AddrPort `json:"addr"`     // Address, as it was resolved
	Lease    float64        `json:"lease_s"`  // how long without a heartbeat
	Since    time.Time      `json:"since"`    // when it registered
	Beats    uint64         `json:"beats"`    // heartbeats so far
	Draining bool           `json:"draining"` // it said that it will leave
	Load     Load           `json:"load"`
	Left     string         `json:"left"` // why it is gone, a sentence; "" while it is there
}

func (r *record) encode() ([]byte, error) { return json.Marshal(r) }

func decodeRecord(name string, text []byte) (*record, error) {
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("worker %s in the store: %w", name, err)
	}
	if err := r.Check(); err != nil {
		return nil, fmt.Errorf("worker %s in the store: %w", name, err)
	}
	if r.Name != name || r.Pool == "" || !r.Addr.IsValid() || !(r.Lease > 0 && r.Lease <= time.Hour.Seconds()) {
		return nil, fmt.Errorf("worker %s in the store: %w", name, errRecord)
	}
	return &r, nil
}

var errRecord = errors.New("must be a record of that name with pool, addr, and a lease of at most an hour")

func (r *record) ttl() time.Duration { return time.Duration(r.Lease * float64(time.Second)) }

// sameSpec reports whether two records make the same worker, whatever its figures.
func (r *record) sameSpec(o *record) bool {
	a, b := *r, *o
	a.Beats, a.Load, b.Beats, b.Load = 0, Load{}, 0, Load{}
	one, err := a.encode()
	two, wrong := b.encode()
	return err == nil && wrong == nil && bytes.Equal(one, two)
}

func (r *record) spec() worker.Spec {
	engine := r.Engine
	if engine == "" {
		engine = worker.Auto
	}
	return worker.Spec{
		Name: r.Name, Pool: r.Pool, Address: r.Address, Addr: r.Addr, Engine: engine, Drain: r.Draining, Labels: r.labels(),
		Events: worker.EventSource(r.Events),
	}
}

func (r *record) stats() worker.Stats {
	return worker.Stats{
		Running: r.Load.Running, Waiting: r.Load.Waiting, KVUsage: r.Load.KVUsage, Blocks: r.Capacity.Blocks,
		BlockTokens: r.Capacity.BlockTokens,
	}
}
