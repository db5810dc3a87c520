package quality

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"attache/internal/sim/trace"
	"attache/internal/sim/virtual"
)

// Suite is a comparison with a name and aims.
type Suite struct {
	Name, About string
	Scenarios   []Scenario
	Policies    []string // specs
	Seeds       int
	targets     func(*Results) []Target
}

// Suites are all there are, in the order in which they are told of.
func Suites() []Suite {
	return []Suite{
		{
			"dynamo", "The rows that Dynamo's own replay was measured on, on its simulated engines.",
			mockerScenarios(), append(slices.Clone(everyone), leastLoad), 3, mockerTargets,
		},
		{
			"second", "27 scenarios on a second kind of engine, fitted to Qwen3-32B on two H100 each. Policies named after others are our restatements of the rules that they publish, not their code.",
			secondScenarios(), append(slices.Clone(everyone), peers...), 3, secondTargets,
		},
		{
			"variants", "What a gateway does not know: late KV events, first tokens seen through events or not at all, its own mirrors of the caches, a wrong speed model.",
			variantScenarios(), append(slices.Clone(variants), dynamo16, dynamo16+",first_tokens=clock"), 5, variantTargets,
		},
		{
			"cluster", "Clusters that are unequal, change, or are large.",
			clusterScenarios(), append(slices.Clone(everyone), leastLoad), 3, clusterTargets,
		},
		{
			"comparison", "Routing and the engines' prefix caches, each alone and both: 50 long prompts in 10,000 requests on four nodes; programs of several agents on eight.",
			comparisonScenarios(), append([]string{robin + ":reuse=false", leastLoad + ":reuse=false", ours + ":reuse=false", leastLoad}, everyone...), 3, comparisonTargets,
		},
		{
			"queue", "Requests held back at the gateway while all workers are saturated, in some orders and by some limits, against none.",
			holdingScenarios(), holdings, 2, holdingTargets,
		},
		{
			"replicas", "Several gateways before one cluster, any of which gets a request. They tell each other what they decide, which takes 10 ms if nothing is said; off: they do not.",
			replicaScenarios(), replicated, 2, replicaTargets,
		},
		{
			"ci", "A few of all, in seconds.",
			ciScenarios(), []string{dynamo1, dynamo16, ours, production, SharedCache}, 2, ciTargets,
		},
	}
}

// Pick finds suites by name; "all" is all but ci, which is part of the others.
func Pick(names ...string) ([]Suite, error) {
	var picked []Suite
	suites := Suites()
	known := make([]string, len(suites), len(suites)+1)
	for i := range suites {
		known[i] = suites[i].Name
	}
	for _, name := range names {
		i := slices.Index(known, name)
		switch {
		case name == "all":
			picked = append(picked, suites[:len(suites)-1]...)
		case i >= 0:
			picked = append(picked, suites[i])
		default:
			return nil, fmt.Errorf("suite %q: all or one of %s expected", name, strings.Join(known, ", "))
		}
	}
	return picked, nil
}

// Outcome is a suite that was run.
type Outcome struct {
	Suite

	Results *Results
	Targets []Target
	Took    time.Duration
}

// Options change how a suite runs.
type Options struct {
	More     []Spec // beside its policies
	Seeds    int    // 0: as the suite
	Only     string // only scenarios whose name contains this; targets are then left out
	Parallel int
	Progress func(done, all int)
}

// Run runs a suite.
func (s *Suite) Run(ctx context.Context, o Options) (*Outcome, error) {
	specs, err := ParseSpecs(s.Policies...)
	if err != nil {
		return nil, err
	}
	for _, more := range o.More {
		if !slices.ContainsFunc(specs, func(s Spec) bool { return s.Name == more.Name }) {
			specs = append(specs, more)
		}
	}
	plan := Plan{Scenarios: s.Scenarios, Policies: specs, Seeds: s.Seeds, Parallel: o.Parallel, Progress: o.Progress}
	if o.Seeds > 0 {
		plan.Seeds = o.Seeds
	}
	if o.Only != "" {
		plan.Scenarios = slices.DeleteFunc(slices.Clone(plan.Scenarios), func(s Scenario) bool { return !strings.Contains(s.Name, o.Only) })
		if len(plan.Scenarios) == 0 {
			return nil, fmt.Errorf("no scenario of suite %s has %q in its name", s.Name, o.Only)
		}
	}
	begin := time.Now()
	rows, err := plan.Run(ctx)
	if err != nil {
		return nil, fmt.Errorf("suite %s: %w", s.Name, err)
	}
	out := &Outcome{Suite: *s, Results: NewResults(&plan, rows), Took: time.Since(begin)}
	if o.Only == "" {
		out.Targets = s.targets(out.Results)
	}
	return out, nil
}

// Failed are the targets that were missed.
func (o *Outcome) Failed() (missed []Target) {
	for _, t := range o.Targets {
		if !t.Pass {
			missed = append(missed, t)
		}
	}
	return missed
}

// everyone are the policies of most suites.
var everyone = []string{robin, dynamo1, dynamo4, dynamo16, ours, SharedCache}

const leastLoad = "least-load"

// peers are what else there is to choose.
var peers = []string{
	"blend-3-2-2", "weighted", "preble", "lmetric", "token-load", "sticky", "sglang-cache-aware", "aibrix-prefix", "chwbl", "session", "power-of-two", leastLoad,
}

// Groups of scenarios.
const (
	ticks         = "ticks"
	agentic       = "agentic"
	small         = "small caches"
	conversation1 = "conversation kv=1"
	conversation4 = "conversation kv=4"
	synthetic     = "synthetic"
	customers     = "b2b"
	unequal       = "cluster"
)

// Scenarios that targets name.
const (
	ticksX2     = "ticks x2"
	ticksX4     = "ticks x4"
	jitterX2    = "jittered x2"
	syntheticX1 = "synthetic x1"
)

// secondEngine is the profile of the second kind of engine.
const secondEngine = "qwen3-32b-2xh100"

// mockerScenarios have 16,384 blocks of 64 tokens per worker, which is the profile's default.
func mockerScenarios() []Scenario {
	moon := func(name, groupName, recording string, rows int, speedup float64, blocks int) Scenario {
		return Scenario{
			Name: name, Group: groupName, Workload: Recorded(recording, trace.Options{Rows: rows, Speedup: speedup}),
			Cluster: virtual.Config{Workers: 8, KVTokens: blocks * 64},
		}
	}
	agents := func(rate float64) Scenario {
		return Scenario{
			Name: "agentic " + number(rate) + "/s", Group: agentic, Workload: Sessions(trace.SessionOptions{Rate: rate, Horizon: 1500}),
			Cluster: virtual.Config{Workers: 8},
		}
	}
	return []Scenario{
		moon("ticks x1", ticks, "conversation", 4000, 1, 0),
		moon(ticksX2, ticks, "conversation", 4000, 2, 0),
		moon(ticksX4, ticks, "conversation", 4000, 4, 0),
		moon(jitterX2, "jittered", "conversation-jittered", 4000, 2, 0),
		moon(syntheticX1, synthetic, "synthetic", 0, 1, 0),
		moon("all rows x2", ticks, "conversation", 0, 2, 0),
		agents(.1), agents(.2),
		moon("small caches, ticks x2", small, "conversation", 4000, 2, 4096),
	}
}

// talk is a conversation on the second engine, its tick of 3 s spread.
func talk(workers int, kv, load float64) Scenario {
	return Scenario{
		Name:  fmt.Sprintf("conversation kv=%s, %d workers, x%s", number(kv), workers, number(load)),
		Group: "conversation kv=" + number(kv), Warmup: .1,
		Workload: Recorded("conversation", trace.Options{BlockTokens: 512, Speedup: load, Jitter: 3 * time.Second}),
		Cluster:  virtual.Config{Workers: workers, Profile: secondEngine, KV: kv},
	}
}

// coding are agents on the second engine.
func coding(workers int, rate float64) Scenario {
	return Scenario{
		Name: fmt.Sprintf("agentic, %d workers, %s/s", workers, number(rate)), Group: agentic, Warmup: .2,
		Workload: Sessions(trace.SessionOptions{BlockTokens: 512, Rate: rate, Horizon: 1500}),
		Cluster:  virtual.Config{Workers: workers, Profile: secondEngine, KV: 4},
	}
}

// selling are customers on the second engine. At 10 requests per second it is on the edge.
func selling(qps float64) Scenario {
	o := trace.DefaultB2B()
	o.Rate = qps
	return Scenario{
		Name: fmt.Sprintf("b2b, 8 workers, %s/s", number(qps)), Group: customers, Warmup: .1, Workload: Customers(o, 0),
		Cluster: virtual.Config{Workers: 8, Profile: secondEngine}, Collapse: qps >= 10,
	}
}

// secondScenarios are the 27.
func secondScenarios() []Scenario {
	var list []Scenario
	for _, workers := range []int{8, 16} {
		times := float64(workers) / 8
		for _, kv := range []float64{1, 4} {
			for _, load := range []float64{.8, 1.2, 1.4} {
				list = append(list, talk(workers, kv, load*times))
			}
		}
		for _, load := range []float64{.6, 1, 1.4} {
			list = append(list, Scenario{
				Name: fmt.Sprintf("synthetic kv=4, %d workers, x%s", workers, number(load*times)), Group: synthetic, Warmup: .1,
				Workload: Recorded("synthetic", trace.Options{BlockTokens: 512, Speedup: load * times, Jitter: time.Millisecond}),
				Cluster:  virtual.Config{Workers: workers, Profile: secondEngine, KV: 4},
			})
		}
		for _, rate := range []float64{.05, .1, .15} {
			list = append(list, coding(workers, rate*times))
		}
	}
	return append(list, selling(6), selling(9), selling(10))
}

// replicated are so many gateways, told of each other's decisions sooner, later or never.
var replicated = []string{
	ours, "time:replicas=2", fourReplicas, "time:replicas=8", "time:replicas=4,sync=100ms", "time:replicas=4,sync=1s", fourAlone, dynamo16 + ",replicas=4",
}

const (
	fourReplicas = "time:replicas=4"
	fourAlone    = "time:replicas=4,sync=off"
)

// replicaScenarios are those of the second engine, and a recording whose arrivals come in bursts, with and without its clock's ticks.
func replicaScenarios() []Scenario {
	bursts := slices.DeleteFunc(mockerScenarios(), func(s Scenario) bool { return s.Name != ticksX2 && s.Name != jitterX2 })
	return append(secondScenarios(), bursts...)
}

// production is what attache knows of engines that publish KV events: their last prompt block as the sign of a first token, a
// little late, and its own mirrors of the caches.
const production = "time:first_tokens=events,lag=100ms"

// variants are what a gateway may know, the best first.
var variants = []string{
	ideal, ours, "time:lag=100ms", "time:lag=1s",
	"time:first_tokens=events", production, "time:first_tokens=events,lag=1s",
	"time:first_tokens=clock", "time:first_tokens=clock,lag=1s",
	"time:true_caches=true,first_tokens=events", "time:true_caches=true,first_tokens=clock",
	"time:speed_error=0.5", "time:speed_error=2",
	production + ",speed_error=0.5", production + ",speed_error=2",
	"time:first_tokens=clock,speed_error=0.5", "time:first_tokens=clock,speed_error=2",
}

// variantScenarios are a few rows of both engines.
func variantScenarios() []Scenario {
	mocker := mockerScenarios()
	list := slices.DeleteFunc(mocker, func(s Scenario) bool {
		return s.Name != ticksX2 && s.Name != jitterX2 && s.Name != "agentic 0.2/s" && s.Group != small
	})
	return append(list, talk(8, 4, 1.2), talk(8, 1, 1.4), coding(8, .1), selling(9))
}

// clusterScenarios are conversations on the second engine with kv=4.
func clusterScenarios() []Scenario {
	named := func(name string, s Scenario) Scenario {
		s.Name, s.Group = name, unequal
		return s
	}
	slow := named("2 of 8 at half speed, x1.05", talk(8, 4, 1.05))
	slow.Cluster.Speeds = []float64{1, 1, 1, 1, 1, 1, .5, .5}
	changing := named("one of 8 fails at a third, another comes at half, x1.2", talk(9, 4, 1.2))
	span := time.Duration(3537 / 1.2 * float64(time.Second))
	changing.Cluster.Changes = []virtual.Change{{At: span / 3, Worker: 3}, {At: span / 2, Worker: 8, Up: true}}
	slowAgents := named("agentic, 2 of 8 at half speed, 0.1/s", coding(8, .1))
	slowAgents.Cluster.Speeds = slow.Cluster.Speeds
	return []Scenario{
		slow, slowAgents, changing,
		named("16 workers, x2.4", talk(16, 4, 2.4)), named("32 workers, x4.8", talk(32, 4, 4.8)), named("64 workers, x9.6", talk(64, 4, 9.6)),
	}
}

// comparisonScenarios are long prompts that come again and again.
func comparisonScenarios() []Scenario {
	o := trace.B2BOptions{BlockTokens: 64, Groups: 50, Users: 2000, System: 12000, Question: 200, Output: 200, Rate: 3, Horizon: 4000}
	agents := trace.DefaultAgents()
	agents.Rate, agents.BlockTokens = .15, 64
	return []Scenario{
		{
			Name: "50 prompts of 12,000 tokens, 10,000 requests, four nodes", Group: "50 prompts", Workload: Customers(o, 10_000),
			Cluster: virtual.Config{Workers: 4, Profile: secondEngine},
		},
		{
			Name: "programs of 5 agents, 0.15/s, eight nodes", Group: "multi-agent", Workload: Programs(agents),
			Cluster: virtual.Config{Workers: 8, Profile: secondEngine}, Warmup: .1,
		},
	}
}

// ciScenarios are short ones.
func ciScenarios() []Scenario {
	mocker := mockerScenarios()
	list := slices.DeleteFunc(mocker, func(s Scenario) bool {
		return s.Name != ticksX2 && s.Name != syntheticX1 && s.Name != "agentic 0.2/s" && s.Group != small
	})
	return append(list, talk(8, 4, 1.2), coding(8, .1), selling(6))
}

// number is short: 0.8, 12.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
