package admin

import "time"

// Source hands out what there is to see. Its methods are called from several goroutines at once, at most once per
// refresh for all viewers together plus once per API request. They must not block on the request path, and they return
// slices that the caller may keep and change.
type Source interface {
	// Status is the process as a whole.
	Status() Status
	// Pools are all configured pools, also those without workers.
	Pools() []Pool
	// Workers are the workers of all pools, whatever their state.
	Workers() []Worker
	// Decisions are the latest decisions, newest first, at most limit.
	Decisions(limit int) []Decision
	// Series is the recent past, second by second; see Window.
	Series() Series
	// Config is the running configuration as YAML, secrets already blanked. It is blanked again by key name.
	Config() string
	Prober
	Caches
	Explainer
	Changer
}

// Prober says how the process is.
type Prober interface {
	// Ready says whether this process should get traffic, check by check.
	Ready() Readiness
	// Live is nil unless the process can only be helped by a restart.
	Live() error
}

// Changer is what can be changed from here.
type Changer interface {
	// Drain takes a worker out of new decisions (on) or gives it back. It is called with the name of an existing worker;
	// the error is shown to the operator.
	Drain(worker string, on bool) error
	// Registrar takes in workers that register themselves.
	Registrar() Registrar
}

// Status is the process as a whole. Rates and quantiles are those of the last minute.
type Status struct {
	Version   string    `json:"version"`
	StartedAt time.Time `json:"started_at"`
	// UptimeS is filled from StartedAt when it is left unknown.
	UptimeS Figure `json:"uptime_s"`
	Replica string `json:"replica"`
	// Mode is how Envoy gets its configuration: "attach", "ads" ...
	Mode          string `json:"mode"`
	RequestsTotal uint64 `json:"requests_total"`
	RequestsPerS  Figure `json:"requests_per_s"`
	ErrorsTotal   uint64 `json:"errors_total"`
	ErrorsPerS    Figure `json:"errors_per_s"`
	// Errors breaks ErrorsTotal down by cause, most frequent first.
	Errors   []Tally `json:"errors"`
	InFlight int     `json:"in_flight"`
	TTFTP50S Figure  `json:"ttft_p50_s"`
	TTFTP99S Figure  `json:"ttft_p99_s"`
	Reuse    Reuse   `json:"cached_share"`
	Envoys   []Envoy `json:"envoys"`
	// Replicas are the others that share their decisions with this one, by name.
	Replicas []Replica `json:"replicas"`
	// Warnings are sentences an operator should act on, worst first.
	Warnings []string `json:"warnings"`
}

// Replica is another attache before the same workers.
type Replica struct {
	Name      string `json:"name"`
	HeardAgeS Figure `json:"heard_age_s"`
	// Whole: all that it has under way is known here.
	Whole bool `json:"whole"`
}

// Tally counts one kind of thing since the start.
type Tally struct {
	Name  string `json:"name"`
	Total uint64 `json:"total"`
}

// Reuse says how many of the prompt tokens were in a KV cache, as shares of all prompt tokens, 0 to 1: the best any
// eligible worker offered, what the chosen workers held, and what the engines report to have reused. What is lost from
// one to the next is lost by the policy and in the engine.
type Reuse struct {
	Available Figure `json:"available"`
	Captured  Figure `json:"captured"`
	Delivered Figure `json:"delivered"`
}

// Envoy is one connected Envoy.
type Envoy struct {
	Node    string `json:"node"`
	Version string `json:"version"`
	// Profile is the set of features that is used with this Envoy.
	Profile        string    `json:"profile"`
	ConnectedSince time.Time `json:"connected_since"`
	// LastNack is what it refused last and why; "" when it accepted the latest configuration.
	LastNack string `json:"last_nack"`
}

// Pool is one pool of workers. Rates, shares and quantiles are those of the last minute.
type Pool struct {
	Name         string   `json:"name"`
	Models       []string `json:"models"`
	Policy       string   `json:"policy"`
	WorkersReady int      `json:"workers_ready"`
	WorkersTotal int      `json:"workers_total"`
	RequestsPerS Figure   `json:"requests_per_s"`
	Reuse        Reuse    `json:"cached_share"`
	TTFTP50S     Figure   `json:"ttft_p50_s"`
	TTFTP99S     Figure   `json:"ttft_p99_s"`
	// Rung is how prompts are cut into blocks at best: "exact", "engine" or "approximate"; RungReason is why not better.
	Rung       string `json:"rung"`
	RungReason string `json:"rung_reason"`
	// SpeedFactor is the learnt k of the time policy: observed over estimated first-token time. 1 is as configured.
	SpeedFactor Figure `json:"speed_factor"`
	// Accuracy is how well predictions on that rung agree with what engines deliver.
	Accuracy Accuracy `json:"accuracy"`
	// VerifyS is how often silent engines should be asked for missed events, by what was found so far.
	VerifyS Figure `json:"recommended_verify_interval_s"`
}

// Accuracy compares the tokens predicted to be cached with those that engines say were, over the last some hundred requests;
// unknown before the first.
type Accuracy struct {
	// Agreed is the share, of the tokens predicted or delivered, that were both.
	Agreed Figure `json:"agreed"`
	// Kept is the share of the predicted tokens that were delivered, Foreseen that of the delivered ones that were predicted.
	Kept     Figure `json:"kept"`
	Foreseen Figure `json:"foreseen"`
}

// gone is the state of workers that left.
const gone = "gone"

// Worker is one engine endpoint.
type Worker struct {
	Name    string `json:"name"`
	Pool    string `json:"pool"`
	Address string `json:"address"`
	Engine  string `json:"engine"`
	// State is one of "starting", "syncing", "ready", "suspect", "unhealthy", "draining"; or "gone", for those that left within the last
	// ten minutes.
	State string `json:"state"`
	// Cause says in a sentence why it is in this state; "" when there is nothing to say.
	Cause string    `json:"cause"`
	Since time.Time `json:"since"`
	// InFlight is how many of our requests it has, QueueS the seconds of work estimated to be ahead of a new one.
	InFlight int    `json:"in_flight"`
	QueueS   Figure `json:"queue_s"`
	// EngineRunning, EngineWaiting (requests) and KVUsage (0 to 1) are what the engine itself said last.
	EngineRunning Figure `json:"engine_running"`
	EngineWaiting Figure `json:"engine_waiting"`
	KVUsage       Figure `json:"kv_usage"`
	// CachedBlocksKnown is how many blocks of its KV cache the index knows.
	CachedBlocksKnown Figure `json:"cached_blocks_known"`
	RequestsTotal     uint64 `json:"requests_total"`
	FailuresTotal     uint64 `json:"failures_total"`
	TTFTP50S          Figure `json:"ttft_p50_s"`
	// CachedShare is the delivered share of prompt tokens; the captured one where the engine does not report it.
	CachedShare Figure `json:"cached_share"`
	// Epoch counts the restarts of the engine that were seen: each emptied its KV cache.
	Epoch uint64 `json:"epoch"`
	// CapacityBlocks is how many blocks memory of our own decisions takes the worker to have room for, on its first rank, and
	// CapacityLearnt whether that was learnt from what it reported to have cached.
	CapacityBlocks Figure `json:"believed_capacity_blocks"`
	CapacityLearnt bool   `json:"capacity_learnt"`
	// Accuracy is how well what is predicted of the worker agrees with what it delivers; Trust what a block that it is believed
	// to hold should count by that, of one that is known: applied with router.auto where it has no events.
	Accuracy Accuracy `json:"accuracy"`
	Trust    Figure   `json:"recommended_trust"`
	// Overlap says how it is known what the worker holds.
	Overlap Overlap `json:"overlap"`
	// Source is who named it: "static/POOL", "file/POOL", "registered" ...
	Source string `json:"source"`
	// Lease is of workers that registered themselves; null for others.
	Lease *Lease `json:"lease"`
}

// Decision is one routed request, why it went where it went, and how it ended.
type Decision struct {
	ID        string    `json:"id"`
	Time      time.Time `json:"time"`
	RequestID string    `json:"request_id"`
	Pool      string    `json:"pool"`
	Model     string    `json:"model"`
	Path      string    `json:"path"`
	Tenant    string    `json:"tenant,omitempty"` // who asked, as authentication in front of attache says
	// PromptTokens is an estimate unless the prompt was tokenized.
	PromptTokens int `json:"prompt_tokens"`
	// Rung says how the prompt was keyed; "none" when it was not understood and only load counted.
	Rung string `json:"rung"`
	// RungReason is what kept it from a better rung, in one word; "" for nothing. The reasons are in docs/operations.md.
	RungReason string `json:"rung_reason,omitempty"`
	// Chosen is the worker the request was sent to, "" when there was none; Alternatives are those named after it.
	Chosen       string   `json:"chosen"`
	Alternatives []string `json:"alternatives"`
	// Candidates are best first; CandidatesTotal is how many were compared, when not all of them are listed.
	Candidates      []Candidate `json:"candidates"`
	CandidatesTotal int         `json:"candidates_total"`
	PredictedTTFTS  Figure      `json:"predicted_ttft_s"`
	// Policy decided; Excluded is how many workers of the pool could not serve the request.
	Policy   string `json:"policy"`
	Excluded int    `json:"excluded"`
	// Hints are the kinds of hints that were said and believed.
	Hints []string `json:"hints"`
	// WaitedS is how long the request waited for a worker with room.
	WaitedS Figure `json:"waited_s"`
	// AvailableTokens are the cached tokens of the candidate that held the most, CapturedTokens those that the chosen one held.
	AvailableTokens int `json:"available_tokens"`
	CapturedTokens  int `json:"captured_tokens"`
	// Regret is how much more the chosen worker cost than the cheapest, in the unit of the terms: by chance, or for a session.
	// Unknown where the policy compares no costs.
	Regret Figure `json:"regret"`
	// TTFTS is until the client's first byte, EngineTTFTS without the time before the worker had the request.
	TTFTS       Figure `json:"ttft_s"`
	EngineTTFTS Figure `json:"engine_ttft_s"`
	// Served is the worker that answered: not the chosen one when Envoy retried. Attempts counts the tries; 0: unknown.
	Served   string `json:"served"`
	Attempts int    `json:"attempts"`
	// DeliveredCachedTokens is what the engine reported in usage.
	DeliveredCachedTokens Figure `json:"delivered_cached_tokens"`
	// Outcome is "" while the request runs, "ok" when it was answered, else one word for what went wrong.
	Outcome string `json:"outcome"`
	// Reason is one sentence for a human. It is written from the other fields (see Reason) when it is left empty.
	Reason string `json:"reason"`
}

// Candidate is one worker as a decision saw it.
type Candidate struct {
	Worker       string `json:"worker"`
	CachedTokens int    `json:"cached_tokens"`
	InFlight     Figure `json:"in_flight"`
	// Terms are the parts of Total in the order of the formula, in Unit: "s", "blocks" ...
	Terms    []Term `json:"terms"`
	Total    Figure `json:"total"`
	Unit     string `json:"unit"`
	Eligible bool   `json:"eligible"`
	// Passed says that the policy's rule passed the worker over, whatever it costs.
	Passed bool `json:"passed"`
}

// Term is one named part of a cost: "queue", "prefill", "decode", "evict", "kv_wait" ...
type Term struct {
	Name  string `json:"name"`
	Value Figure `json:"value"`
}

// Series is the recent past in equal steps, oldest first. All columns have the same length; a second in which nothing
// was measured is unknown.
type Series struct {
	// Start is the beginning of the first step, StepS its length in seconds.
	Start     time.Time `json:"start"`
	StepS     int       `json:"step_s"`
	Requests  []int     `json:"requests"` // per step
	Errors    []int     `json:"errors"`   // per step
	TTFTP50S  []Figure  `json:"ttft_p50_s"`
	TTFTP99S  []Figure  `json:"ttft_p99_s"`
	Available []Figure  `json:"cached_share_available"`
	Captured  []Figure  `json:"cached_share_captured"`
	Delivered []Figure  `json:"cached_share_delivered"`
}

// CheckState is how one part of the process is doing.
type CheckState string

// The states of a check. Only a failed one makes the process unready; a degraded one costs quality, not answers.
const (
	OK       CheckState = "ok"
	Degraded CheckState = "degraded"
	Failed   CheckState = "failed"
)

// Check is one part of readiness.
type Check struct {
	Name  string     `json:"name"`
	State CheckState `json:"state"`
	// Detail is a sentence that says what was found.
	Detail string `json:"detail"`
}

// Readiness is every check, in the order they should be read.
type Readiness struct {
	Checks []Check `json:"checks"`
}

// Ready reports whether no check failed.
func (r Readiness) Ready() bool { return r.Worst() != Failed }

// Worst is the worst state of all checks; OK when there are none.
func (r Readiness) Worst() CheckState {
	worst := OK
	for _, c := range r.Checks {
		if c.State == Failed {
			return Failed
		}
		if c.State != OK {
			worst = Degraded
		}
	}
	return worst
}
