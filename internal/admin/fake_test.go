package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"attache/internal/worker/register"
)

// noon is when the fake stands still.
var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// fake is a Source that hands out what it was given. Safe for concurrent use; change fields under mu.
type fake struct {
	mu       sync.Mutex
	asked    int // calls of Status: one per state
	status   Status
	pools    []Pool
	workers  []Worker
	made     []Decision
	feeds    []Feed
	indexes  []Index
	held     []WorkerPrefixes
	series   Series
	config   string
	checks   []Check
	dead     error
	drainErr error
	panicky  bool
	asks     []Question
	answer   *Explanation
	refusal  error
	takes    *taker
}

func (f *fake) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.panicky {
		panic("no status today")
	}
	return f.status
}
func (f *fake) Pools() []Pool     { f.mu.Lock(); defer f.mu.Unlock(); return slices.Clone(f.pools) }
func (f *fake) Workers() []Worker { f.mu.Lock(); defer f.mu.Unlock(); return slices.Clone(f.workers) }
func (f *fake) Feeds() []Feed     { f.mu.Lock(); defer f.mu.Unlock(); return slices.Clone(f.feeds) }
func (f *fake) Indexes() []Index  { f.mu.Lock(); defer f.mu.Unlock(); return slices.Clone(f.indexes) }
func (f *fake) Prefixes(worker string, n int) (found []WorkerPrefixes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.held {
		if w.Worker == worker {
			w.Prefixes = w.Prefixes[:min(n, len(w.Prefixes))]
			found = append(found, w)
		}
	}
	return found
}
func (f *fake) Decisions(limit int) []Decision {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.made[:min(limit, len(f.made))])
}
func (f *fake) Explain(_ context.Context, q Question) (*Explanation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asks = append(f.asks, q)
	if f.refusal != nil {
		return nil, f.refusal
	}
	x := *f.answer
	return &x, nil
}
func (f *fake) Series() Series { f.mu.Lock(); defer f.mu.Unlock(); return f.series }
func (f *fake) Config() string { f.mu.Lock(); defer f.mu.Unlock(); return f.config }
func (f *fake) Ready() Readiness {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Readiness{Checks: f.checks}
}
func (f *fake) Live() error { f.mu.Lock(); defer f.mu.Unlock(); return f.dead }

func (f *fake) Drain(name string, on bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.drainErr != nil {
		return f.drainErr
	}
	for i := range f.workers {
		if w := &f.workers[i]; w.Name == name {
			w.State, w.Cause, w.Since = "ready", "", noon
			if on {
				w.State, w.Cause = "draining", "drained by the operator"
			}
			return nil
		}
	}
	return errors.New("gone meanwhile")
}

func (f *fake) Registrar() Registrar { return f.takes }

// newFake is a small fleet at noon: two pools, workers in every state, decisions with every kind of ending.
func newFake() *fake {
	reuse := Reuse{Available: Known(0.71), Captured: Known(0.664), Delivered: Known(0.631)}
	f := &fake{
		status: Status{
			Version: "0.1.0", StartedAt: noon.Add(-76*time.Hour - 12*time.Minute), Replica: "attache-0", Mode: "ads",
			RequestsTotal: 11_284_113, RequestsPerS: Known(41.27), ErrorsTotal: 341, ErrorsPerS: Known(0.03), InFlight: 63,
			Errors:   []Tally{{"upstream_reset", 210}, {"no_worker", 131}},
			TTFTP50S: Known(0.184), TTFTP99S: Known(1.42), Reuse: reuse,
			Envoys: []Envoy{
				{Node: "edge-2", Version: "1.38.3", Profile: "basic", ConnectedSince: noon.Add(-90 * time.Minute),
					LastNack: `cluster attache_workers: unknown field "foo"`},
				{Node: "edge-1", Version: "1.40.0", Profile: "full", ConnectedSince: noon.Add(-76 * time.Hour)},
			},
			Replicas: []Replica{{Name: "attache-1", HeardAgeS: Known(0.4), Whole: true}, {Name: "attache-2", HeardAgeS: Known(3.1)}},
			Warnings: []string{"gpu-f says its block size is 32 tokens, pool code is configured with 16: nothing it caches can be found"},
		},
		checks: []Check{
			{"workers", OK, "6 of 8 workers are ready"},
			{"envoy", Degraded, "edge-2 refused the latest configuration"},
		},
		pools: []Pool{
			{Name: "chat", Models: []string{"llama-3.3-70b", "llama-3.1-8b-instruct"}, Policy: "time", WorkersReady: 4, WorkersTotal: 5,
				RequestsPerS: Known(33.9), Reuse: reuse, TTFTP50S: Known(0.171), TTFTP99S: Known(1.18), SpeedFactor: Known(1.08), Rung: "exact"},
			{Name: "code", Policy: "dynamo", WorkersReady: 2, WorkersTotal: 3, RequestsPerS: Known(7.37),
				Reuse: Reuse{Available: Known(0.9), Captured: Known(0.88)}, TTFTP50S: Known(0.29), TTFTP99S: Known(2.6)},
		},
	}
	add := func(name, pool, engine, state, cause string, ago time.Duration, inFlight int, queue, kv, cached float64) {
		n := len(f.workers)
		w := Worker{
			Name: name, Pool: pool, Address: fmt.Sprintf("10.0.3.%d:8000", 11+n), Engine: engine, State: state, Cause: cause,
			Since: noon.Add(-ago), InFlight: inFlight, QueueS: Known(queue), RequestsTotal: uint64(1_400_000 - 90_000*n),
			FailuresTotal: uint64(n % 3 * 17),
		}
		if state != "starting" {
			w.EngineRunning, w.EngineWaiting = Known(inFlight), Known(inFlight/9)
			w.KVUsage, w.CachedShare, w.CachedBlocksKnown = Known(kv), Known(cached), Known(int(kv*30000))
			w.TTFTP50S = Known(0.12 + 0.02*float64(n))
			w.CapacityBlocks, w.CapacityLearnt = Known(30_000), n%2 == 1
			w.Accuracy, w.Trust = Accuracy{Agreed: Known(0.96), Kept: Known(0.98), Foreseen: Known(0.98)}, Known(0.98)
		}
		f.workers = append(f.workers, w)
	}
	add("gpu-a", "chat", "vllm", "ready", "", 76*time.Hour, 14, 0.48, 0.81, 0.66)
	add("gpu-b", "chat", "vllm", "ready", "", 76*time.Hour, 11, 0.21, 0.74, 0.71)
	add("gpu-c", "chat", "sglang", "ready", "", 5*time.Hour, 17, 0.93, 0.93, 0.58)
	add("gpu-d", "chat", "sglang", "suspect",
		"3 of the last 10 requests failed: connection reset", 42*time.Second, 2, 0.05, 0.98, 0.5)
	add("gpu-e", "chat", "vllm", "ready", "", 20*time.Minute, 6, 0.0041, 0.22, 0.31)
	add("gpu-f", "code", "trtllm", "ready", "", 30*time.Hour, 9, 1.7, 0.66, 0)
	add("gpu-g", "code", "vllm", "unhealthy",
		"health check failed 3 times: dial tcp 10.0.3.17:8000: connect: connection refused", 4*time.Minute, 0, 0, 0, 0)
	add("gpu-h", "code", "vllm", "ready", "", 30*time.Hour, 4, 0.33, 0.57, 0.89)
	f.workers[4].Epoch, f.workers[6].Epoch = 1, 3
	for i := range f.workers {
		f.workers[i].Source = "file/" + f.workers[i].Pool
	}
	f.workers[1].Source = register.Source
	f.workers[1].Lease = &Lease{RegisteredAt: noon.Add(-76 * time.Hour), TTLS: Known(15), LeftS: Known(12.5), HeartbeatAgeS: Known(2.5),
		Models: []string{"llama-3.3-70b"}, Capacity: register.Capacity{Blocks: 30_000, BlockTokens: 16}, Load: register.Load{Running: 11, KVUsage: .74}}
	f.workers = append(f.workers, Worker{Name: "gpu-i", Pool: "code", Address: "10.0.3.19:8000", Engine: "vllm", State: "gone",
		Cause: "its lease ended: no heartbeat for 15s", Since: noon.Add(-2 * time.Minute), Source: register.Source})
	f.takes = &taker{known: map[string]int{}}
	f.cache()

	cost := func(worker string, cached, inFlight int, queue, prefill, decode, evict float64) Candidate {
		return Candidate{Worker: worker, CachedTokens: cached, InFlight: Known(inFlight), Unit: "s", Eligible: true,
			Terms: []Term{{"queue", Known(queue)}, {"prefill", Known(prefill)}, {"decode", Known(decode)},
				{"evict", Known(evict)}},
			Total: Known(queue + prefill + decode + evict)}
	}
	f.made = []Decision{
		{ID: "attache-0/9c41", Time: noon.Add(-time.Second), RequestID: "7f1c0a52-0d1e-4a55-9d4a-4f8f2f4a9b10", Pool: "chat",
			Model: "llama-3.3-70b", Path: "/v1/chat/completions", PromptTokens: 4100, Rung: "approximate", Chosen: "gpu-b",
			Alternatives: []string{"gpu-a", "gpu-c"}, PredictedTTFTS: Known(0.21), Policy: "time", Excluded: 1, Hints: []string{"session", "priority"},
			WaitedS: Known(0.02), AvailableTokens: 3584, CapturedTokens: 3072, Regret: Known(0),
			Candidates: []Candidate{cost("gpu-b", 3072, 11, 0.08, 0.13, 0.04, 0.01), cost("gpu-a", 2048, 14, 0.21, 0.19, 0.05, 0.03),
				cost("gpu-c", 3584, 17, 0.71, 0.07, 0.06, 0.02), cost("gpu-e", 0, 6, 0, 0.62, 0.03, 0.25)}},
		{ID: "attache-0/9c40", Time: noon.Add(-2 * time.Second), RequestID: "req-2", Pool: "chat", Model: "llama-3.3-70b",
			Path: "/v1/chat/completions", PromptTokens: 12_480, Rung: "approximate", Chosen: "gpu-c", Served: "gpu-a", Attempts: 2,
			Candidates: []Candidate{cost("gpu-c", 12_480, 16, 0.3, 0.01, 0.06, 0), cost("gpu-a", 2048, 14, 0.2, 0.9, 0.05, 0.1)},
			TTFTS:      Known(1.31), EngineTTFTS: Known(1.27), PredictedTTFTS: Known(0.31),
			DeliveredCachedTokens: Known(2048), Outcome: "ok"},
		{ID: "attache-0/9c3f", Time: noon.Add(-3 * time.Second), RequestID: "<script>alert(1)</script>", Pool: "code",
			Model: "qwen3-coder", Path: "/v1/completions", PromptTokens: 900, Rung: "none", Chosen: "gpu-h", CandidatesTotal: 2,
			Candidates: []Candidate{{Worker: "gpu-h", Terms: []Term{{"prefill_blocks", Known(56.3)}, {"decode_blocks", Known(112)}},
				Total: Known(168.3), Unit: "blocks", Eligible: true}},
			TTFTS: Known(0.094), Outcome: "client_left"},
		{ID: "attache-0/9c3e", Time: noon.Add(-4 * time.Second), Pool: "code", Model: "qwen3-coder", Path: "/v1/completions",
			PromptTokens: 32, Outcome: "no_worker"},
	}
	f.answer = explanationAtNoon()
	f.series = Series{Start: noon.Add(-3 * time.Second), StepS: 1, Requests: []int{40, 0, 43}, Errors: []int{0, 0, 1},
		TTFTP50S: []Figure{Known(0.18), {}, Known(0.19)}, TTFTP99S: []Figure{Known(1.4), {}, Known(1.2)},
		Available: []Figure{Known(0.7), {}, Known(0.72)}, Captured: []Figure{Known(0.66), {}, Known(0.67)},
		Delivered: []Figure{Known(0.63), {}, Known(0.61)}}
	f.config = "listen: 0.0.0.0:9001\nredis:\n  url: redis://app:hunter2@redis:6379/0\n  password: hunter2\n"
	return f
}
