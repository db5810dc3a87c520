package quality

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"attache/internal/sim/gateway"
	"attache/internal/sim/trace"
	"attache/internal/sim/virtual"
)

// Row is one simulation: what a policy made of a scenario with a seed. Latencies are in ms.
type Row struct {
	Scenario   string  `json:"scenario"`
	Policy     string  `json:"policy"`
	Seed       int     `json:"seed"`
	Completed  int     `json:"completed"`
	Hit        float64 `json:"hit"` // prompt tokens reused / all
	TTFTMean   float64 `json:"ttft_mean_ms"`
	TTFTP50    float64 `json:"ttft_p50_ms"`
	TTFTP90    float64 `json:"ttft_p90_ms"`
	TTFTP99    float64 `json:"ttft_p99_ms"`
	TPOTMean   float64 `json:"tpot_mean_ms"`
	TPOTP99    float64 `json:"tpot_p99_ms"`
	E2EMean    float64 `json:"e2e_mean_ms"`
	Asked      int     `json:"asked_tokens"`     // prompt tokens, warm-up included as in the next three
	Available  int     `json:"available_tokens"` // cached at the best worker, by the gateway's knowledge
	Captured   int     `json:"captured_tokens"`  // cached at the chosen worker, by the gateway's knowledge
	Delivered  int     `json:"delivered_tokens"` // found by the engines
	Preempted  int     `json:"preemptions"`
	Refused    int     `json:"refused"`
	Imbalance  float64 `json:"imbalance"` // most / mean prompt tokens computed by a worker
	SimulatedS float64 `json:"simulated_s"`
	WallS      float64 `json:"wall_s"` // of the simulation, on one core
}

// Plan is a comparison: each policy on each scenario with each seed.
type Plan struct {
	Scenarios []Scenario
	Policies  []Spec
	Seeds     int // 1 to Seeds
	Parallel  int // simulations at a time; 0: as many as there are cores
	// Progress is called after each simulation, if it is set; one call at a time.
	Progress func(done, all int)
}

// job is one simulation, and where its row goes.
type job struct {
	scenario *Scenario
	policy   *Spec
	seed     int
	row      int
	load     *loading
}

// loading is a workload that several jobs share, read by the first and forgotten after the last.
type loading struct {
	once     sync.Once
	workload *trace.Workload
	err      error
	left     int // jobs; guarded by the runner's lock
}

// Run returns the rows in the order of scenarios, policies and seeds. All but WallS is the same whatever Parallel is. The error
// names the simulation that failed.
func (p *Plan) Run(ctx context.Context) ([]Row, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	jobs := p.jobs()
	rows := make([]Row, len(jobs))
	queue := make(chan job, len(jobs))
	for _, j := range jobs {
		queue <- j
	}
	close(queue)
	var mu sync.Mutex // guards done, and left of workloads
	done := 0
	work := func() {
		for j := range queue {
			if ctx.Err() != nil {
				return
			}
			row, err := j.run()
			if err != nil {
				stop(fmt.Errorf("%s, policy %s, seed %d: %w", j.scenario.Name, j.policy.Name, j.seed, err))
				return
			}
			rows[j.row] = row
			mu.Lock()
			done++
			if j.load.left--; j.load.left == 0 {
				j.load.workload = nil
			}
			if p.Progress != nil {
				p.Progress(done, len(jobs))
			}
			mu.Unlock()
		}
	}
	parallel := p.Parallel
	if parallel < 1 {
		parallel = runtime.GOMAXPROCS(0)
	}
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(work)
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return rows, nil
}

// jobs are in an order in which few workloads are needed at a time.
func (p *Plan) jobs() []job {
	loads := map[string]*loading{}
	byLoad := map[*loading][]job{}
	var order []*loading
	row := 0
	for i := range p.Scenarios {
		s := &p.Scenarios[i]
		for k := range p.Policies {
			for seed := 1; seed <= p.Seeds; seed++ {
				key := s.Workload.Key
				if s.Workload.Seeded {
					key = fmt.Sprintf("%s, seed %d", key, seed)
				}
				l := loads[key]
				if l == nil {
					l = &loading{}
					loads[key] = l
					order = append(order, l)
				}
				l.left++
				byLoad[l] = append(byLoad[l], job{s, &p.Policies[k], seed, row, l})
				row++
			}
		}
	}
	jobs := make([]job, 0, row)
	for _, l := range order {
		jobs = append(jobs, byLoad[l]...)
	}
	return jobs
}

func (j *job) run() (Row, error) {
	j.load.once.Do(func() { j.load.workload, j.load.err = j.scenario.Workload.Load(uint64(j.seed)) })
	if j.load.err != nil {
		return Row{}, j.load.err
	}
	w := j.load.workload
	begin := time.Now()
	cfg := j.scenario.Cluster
	cfg.SharedCache, cfg.NoReuse = j.policy.Reference, j.policy.NoReuse
	if j.policy.Lag >= 0 {
		cfg.Lag = j.policy.Lag
	}
	c, err := virtual.New(cfg, w)
	if err != nil {
		return Row{}, err
	}
	row := Row{Scenario: j.scenario.Name, Policy: j.policy.Name, Seed: j.seed}
	router, reuse, err := j.router(c, w)
	if err != nil {
		return row, err
	}
	r, err := c.Run(router)
	if err != nil {
		return row, err
	}
	row.WallS = time.Since(begin).Seconds()
	row.fill(r, j.scenario.warmup(w))
	row.Available, row.Captured = row.Delivered, row.Delivered
	if g := reuse(); g.Prompt > 0 {
		row.Available, row.Captured = g.Available, g.Captured
	}
	return row, nil
}

// router is what the policy says.
func (j *job) router(c *virtual.Cluster, w *trace.Workload) (virtual.Router, func() gateway.Reuse, error) {
	if j.policy.Reference {
		return newReference(c, w), func() gateway.Reuse { return gateway.Reuse{} }, nil
	}
	profile := j.scenario.Cluster.Profile
	if profile == "" {
		profile = virtual.DynamoMocker
	}
	cfg, err := j.policy.Scoring(profile)
	if err != nil {
		return nil, nil, err
	}
	options := gateway.Options{
		Scoring: cfg, FirstTokens: j.policy.FirstTokens, TrueCaches: j.policy.TrueCaches, Seed: uint64(j.seed),
		Queue: j.policy.Queue, Limits: j.policy.Limits,
	}
	if j.policy.Replicas > 1 {
		r, err := gateway.NewReplicas(j.policy.Replicas, j.policy.Sync, options, c, w)
		if err != nil {
			return nil, nil, err
		}
		return r, r.Reuse, nil
	}
	g, err := gateway.New(options, c, w)
	if err != nil {
		return nil, nil, err
	}
	return g, g.Reuse, nil
}

func (row *Row) fill(r *virtual.Result, warmup time.Duration) {
	s := r.Summary(warmup, virtual.Limits{})
	row.Completed, row.Hit, row.Preempted, row.Refused, row.Imbalance = s.Completed, s.Hit, s.Preemptions, s.Refused, s.Imbalance
	row.TTFTMean, row.TTFTP50, row.TTFTP90, row.TTFTP99 = ms(s.TTFT.Mean), ms(s.TTFT.P50), ms(s.TTFT.P90), ms(s.TTFT.P99)
	row.TPOTMean, row.TPOTP99, row.E2EMean = ms(s.TPOT.Mean), ms(s.TPOT.P99), ms(s.E2E.Mean)
	row.Asked, row.Delivered, row.SimulatedS = r.Asked, r.Reused, r.Span.Seconds()
}

func ms(t time.Duration) float64 { return float64(t) / float64(time.Millisecond) }
