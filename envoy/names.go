// Package envoy owns what attache and Envoy must agree on: every name they share, pure builders of Envoy's protobuf
// configuration, and the configurations that are printed for people.
//
// Nothing here has state or knows attache's other packages. Values and their reasons are those that were tested on
// Envoy 1.38 to 1.40.
package envoy

// Headers of requests.
const (
	// DestinationHeader carries the decision: "ip:port[,ip:port…]", best first (endpoint picker protocol 004).
	DestinationHeader = "x-gateway-destination-endpoint"
	// RankHeader tells an engine with several data-parallel ranks which of them should answer (vLLM, SGLang).
	RankHeader = "x-data-parallel-rank"
	// ServedHeader names who served; only gateways write it.
	ServedHeader = "x-gateway-destination-endpoint-served"
	// PoolHeader names the cluster of the pool that was decided for, where it is not the default one.
	PoolHeader = "x-attache-pool"
	// DroppedHeader tells why a request was turned away.
	DroppedHeader = "x-llm-d-request-dropped-reason"
	// TraceHeader tells, in answers, who answers and why: decision, worker, cached tokens, wait.
	TraceHeader = "x-attache-trace"
	// TimingHeader tells, in answers, how long each step took (W3C Server Timing).
	TimingHeader = "server-timing"
	// ClientHeader names the client that authentication recognised.
	ClientHeader = "x-client-id"
	// SessionHeader is what Envoy's fallback policy keeps sessions together by.
	SessionHeader = "x-session-id"
)

// Dynamic metadata.
const (
	// SteerNamespace holds DestinationKey, which the load balancer reads, and ServedKey, which it writes.
	SteerNamespace = "envoy.lb"
	DestinationKey = "x-gateway-destination-endpoint"
	ServedKey      = "x-gateway-destination-endpoint-served"

	// SubsetNamespace holds SubsetKey: the endpoints that a foreign gateway allows.
	SubsetNamespace = "envoy.lb.subset_hint"
	SubsetKey       = "x-gateway-destination-endpoint-subset"

	// NoteNamespace holds what a decision tells itself through Envoy, and what Envoy's filters extract from answers.
	NoteNamespace        = "attache"
	NoteDecision         = "decision"
	NoteReplica          = "replica"
	NotePool             = "pool"
	NoteCached           = "predicted_cached"
	NotePromptTokens     = "prompt_tokens"
	NoteCompletionTokens = "completion_tokens"
	NoteCachedTokens     = "cached_tokens"

	// UsageNamespace is typed metadata of Envoy 1.40's ai_protocol_manager.
	UsageNamespace = "envoy.ai.token_usage"
)

// Custom tags of access-log entries, in microseconds.
const (
	// TagTTFT is from the request's first byte to the answer's first body byte, queue and failed attempts included.
	TagTTFT = "ttft_us"
	// TagEngineTTFT is from the end of the upload to the first body byte of the attempt that served.
	TagEngineTTFT = "engine_ttft_us"
)

// Names of resources and filters.
const (
	// AttacheCluster reaches ext_proc and the access-log service; XDSCluster the control plane.
	AttacheCluster = "attache"
	XDSCluster     = "attache_xds"
	// WorkersCluster is the default pool's cluster; other pools append their name.
	WorkersCluster = "attache_workers"
	// BaselineCluster holds the default pool's workers under round robin, for comparison.
	BaselineCluster = "attache_baseline"

	ListenerName         = "llm"
	BaselineListenerName = "llm_baseline"
	RouteName            = "llm"

	ExtProcFilter  = "envoy.filters.http.ext_proc"
	ExtProcService = "envoy.service.ext_proc.v3.ExternalProcessor"
)

// PoolCluster is the cluster of a pool.
func PoolCluster(pool string) string {
	if pool == "default" {
		return WorkersCluster
	}
	return WorkersCluster + "." + pool
}
