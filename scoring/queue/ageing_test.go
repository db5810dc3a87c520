package queue

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// patience is how much later than the request another must arrive to be sure not to overtake it, in seconds (doc.go).
func patience(cfg Config, r *Request) float64 {
	c := &cfg.Classes[r.Class]
	p := bounded(r.Priority, cfg.MaxPriority)
	switch c.Policy {
	case "lcfs":
		return c.Ageing.Seconds() + cfg.MaxPriority
	case "wspt":
		return c.Ageing.Seconds() * math.Log2((1+cfg.MaxPriority)*max(1, float64(r.UncachedTokens))/(1+p))
	case "edf":
		return sloOf(c, r).Seconds() + cfg.MaxPriority
	default:
		return cfg.MaxPriority
	}
}

// TestNobodyStarves: whatever arrives, an entry is overtaken only by those that arrive within its patience. As what is
// there and what arrives in a bounded time is bounded, a server that goes on serves it.
func TestNobodyStarves(t *testing.T) {
	for _, p := range policies {
		t.Run(p.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				cfg := DefaultConfig()
				cfg.Limits.MaxWait = 0
				cfg.MaxPriority = rapid.Float64Range(0, 100).Draw(t, "max priority")
				c := DefaultClass()
				c.Policy = p.name
				c.Ageing = time.Duration(rapid.IntRange(1, 20_000).Draw(t, "ageing")) * time.Millisecond
				cfg.Classes = []ClassConfig{c}
				q := New[struct{}](cfg)
				waiting := map[*Entry[struct{}]]bool{}
				now := time.Duration(0)
				for range rapid.IntRange(1, 60).Draw(t, "steps") {
					now += time.Duration(rapid.IntRange(0, 30_000).Draw(t, "pause")) * time.Millisecond
					for range rapid.IntRange(0, 3).Draw(t, "arrivals") {
						e, _, _ := q.Push(now, Request{
							Priority:       rapid.Float64Range(-1, 200).Draw(t, "priority"),
							UncachedTokens: rapid.IntRange(0, 100_000).Draw(t, "uncached"),
							SLO:            time.Duration(rapid.IntRange(0, 20).Draw(t, "slo")) * time.Second,
						}, struct{}{})
						waiting[e] = true
					}
					first := true
					q.Dispatch(now, func(e *Entry[struct{}]) Placement {
						if !first {
							return Blocked
						}
						first = false
						delete(waiting, e)
						for o := range waiting {
							if late := (e.Arrival - o.Arrival).Seconds(); late > patience(cfg, &o.Request)+1e-6 {
								t.Fatalf("%+v is overtaken by %+v, which arrived %.3f s later; its patience is %.3f s",
									o.Request, e.Request, late, patience(cfg, &o.Request))
							}
						}
						return Placed
					})
				}
			})
		})
	}
}

// TestAgeingIsWhatServesThem: two requests arrive for each that is served, and those that arrive are always preferred.
func TestAgeingIsWhatServesThem(t *testing.T) {
	for _, policy := range []string{"wspt", "lcfs"} {
		for _, ageing := range []time.Duration{0, 10 * time.Second} {
			cfg := DefaultConfig()
			cfg.Limits.MaxWait = 0
			c := DefaultClass()
			c.Policy, c.Ageing = policy, ageing
			cfg.Classes = []ClassConfig{c}
			q := New[struct{}](cfg)
			old, _, _ := q.Push(0, Request{UncachedTokens: 100_000}, struct{}{})
			for now := time.Second; now < 1000*time.Second && old.Waiting(); now += time.Second {
				q.Push(now, Request{UncachedTokens: 10}, struct{}{})
				q.Push(now, Request{UncachedTokens: 10}, struct{}{})
				free := true
				q.Dispatch(now, func(*Entry[struct{}]) Placement {
					if !free {
						return Blocked
					}
					free = false
					return Placed
				})
			}
			if old.Waiting() != (ageing == 0) {
				t.Errorf("%s, ageing %v: waiting for ever: %v", policy, ageing, old.Waiting())
			}
		}
	}
}
