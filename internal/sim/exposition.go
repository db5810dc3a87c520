package sim

import "github.com/prometheus/client_golang/prometheus"

// exposition is how the metrics of a dialect are called. Empty names are not shown.
type exposition struct {
	prefix                                            string
	path                                              string // where they are
	interToken, queueTime, promptTokens, outputTokens string
	finished                                          bool // there is a counter of requests by how they ended
	labels                                            func(c *Config, rank string) prometheus.Labels
	figures                                           []figure
	info                                              func(c *Config, labels prometheus.Labels) prometheus.Collector
}

// figure is read from a core at each scrape.
type figure struct {
	name, help string
	counts     bool // it never falls
	value      func(*Config, Stats) float64
}

func exposedBy(dialect string) *exposition {
	switch dialect {
	case DialectSGLang:
		return &sglangMetrics
	case DialectTensorRT:
		return &tensorRTMetrics
	default:
		return &vllmMetrics
	}
}

// usage is the share of the KV cache that requests hold.
func (s *Stats) usage() float64 { return float64(s.Held) / float64(s.Pages) }

// hitRate is the share of the prompt tokens looked up that were found.
func (s *Stats) hitRate() float64 { return float64(s.Hit) / float64(max(1, s.Queried)) }

// of makes the value of a figure of a field alone.
func of(field func(*Stats) int) func(*Config, Stats) float64 {
	return func(_ *Config, s Stats) float64 { return float64(field(&s)) }
}

// tokens makes the value of a figure of a field in blocks, counted in tokens.
func tokens(field func(*Stats) int) func(*Config, Stats) float64 {
	return func(c *Config, s Stats) float64 { return float64(field(&s) * c.BlockTokens) }
}

func running(s *Stats) int   { return s.Running }
func waiting(s *Stats) int   { return s.Waiting }
func queried(s *Stats) int   { return s.Queried }
func hit(s *Stats) int       { return s.Hit }
func prompted(s *Stats) int  { return s.Prompted }
func generated(s *Stats) int { return s.Generated }
func pages(s *Stats) int     { return s.Pages }
func held(s *Stats) int      { return s.Held }
func unheld(s *Stats) int    { return s.Pages - s.Held }
func idle(s *Stats) int      { return s.Idle }

func usageOf(_ *Config, s Stats) float64   { return s.usage() }
func hitRateOf(_ *Config, s Stats) float64 { return s.hitRate() }

var vllmMetrics = exposition{
	prefix: "vllm:", path: "/metrics", interToken: "inter_token_latency_seconds", queueTime: "request_queue_time_seconds",
	promptTokens: "request_prompt_tokens", outputTokens: "request_generation_tokens", finished: true,
	labels: func(c *Config, rank string) prometheus.Labels {
		return prometheus.Labels{"model_name": c.Model, "engine": rank}
	},
	figures: []figure{
		{"num_requests_running", "Requests in execution.", false, of(running)},
		{"num_requests_waiting", "Requests in the queue.", false, of(waiting)},
		{"kv_cache_usage_perc", "Share of the KV cache that requests hold; 1 is all of it.", false, usageOf},
		{"prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", true, of(queried)},
		{"prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", true, of(hit)},
		{"prompt_tokens_total", "Prompt tokens processed, those found in the cache included.", true, of(prompted)},
		{"generation_tokens_total", "Tokens generated.", true, of(generated)},
		{"num_preemptions_total", "Requests preempted: none ever is.", true, of(func(*Stats) int { return 0 })},
	},
	info: func(c *Config, labels prometheus.Labels) prometheus.Collector {
		info := prometheus.NewGaugeVec(prometheus.GaugeOpts{ //nolint:promlinter // vLLM's names have a colon
			Name: "vllm:cache_config_info", Help: "The KV cache, in labels.", ConstLabels: prometheus.Labels{"engine": labels["engine"]},
		}, []string{"block_size", "num_gpu_blocks", "kv_cache_size_tokens", "enable_prefix_caching"})
		info.WithLabelValues(itoa(c.BlockTokens), itoa(c.blocks()), itoa(c.blocks()*c.BlockTokens), "True").Set(1)
		return info
	},
}

var sglangMetrics = exposition{
	prefix: "sglang:", path: "/metrics", interToken: "inter_token_latency_seconds", queueTime: "queue_time_seconds",
	labels: func(c *Config, rank string) prometheus.Labels {
		return prometheus.Labels{
			"model_name": c.Model, "engine_type": "unified", "tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0", "dp_rank": rank,
		}
	},
	figures: []figure{
		{"num_running_reqs", "Requests in execution.", false, of(running)},
		{"num_queue_reqs", "Requests in the queue.", false, of(waiting)},
		{"token_usage", "Share of the KV cache that requests hold; 1 is all of it.", false, usageOf},
		{"num_used_tokens", "Tokens of KV that requests hold.", false, tokens(held)},
		{"kv_used_tokens", "Tokens of KV that requests hold.", false, tokens(held)},
		{"kv_available_tokens", "Tokens of KV that nothing is in.", false,
			tokens(func(s *Stats) int { return s.Pages - s.Held - s.Idle })},
		{"kv_evictable_tokens", "Tokens of KV that can be found and that nobody holds.", false, tokens(idle)},
		{"max_total_num_tokens", "Size of the KV cache in tokens.", false, tokens(pages)},
		{"page_size", "Tokens in a page.", false, func(c *Config, _ Stats) float64 { return float64(c.BlockTokens) }},
		{"num_pages", "Size of the KV cache in pages.", false, of(pages)},
		{"cache_hit_rate", "Share of the prompt tokens that were found in the cache.", false, hitRateOf},
		{"prompt_tokens_total", "Prompt tokens processed, those found in the cache included.", true, of(prompted)},
		{"generation_tokens_total", "Tokens generated.", true, of(generated)},
		{"cached_tokens_total", "Prompt tokens found in the cache.", true, of(hit)},
	},
}

var tensorRTMetrics = exposition{
	prefix: "trtllm_", path: "/prometheus/metrics", interToken: "time_per_output_token_seconds", queueTime: "request_queue_time_seconds",
	finished: true,
	labels: func(c *Config, rank string) prometheus.Labels {
		labels := prometheus.Labels{"model_name": c.Model, "engine_type": "trtllm"}
		if c.Ranks > 1 {
			labels["dp_rank"] = rank
		}
		return labels
	},
	figures: []figure{
		{"num_requests_running", "Requests in execution.", false, of(running)},
		{"num_requests_waiting", "Requests in the queue.", false, of(waiting)},
		{"max_num_active_requests", "Requests that run at a time.", false, func(c *Config, _ Stats) float64 { return float64(c.MaxSeqs) }},
		{"kv_cache_utilization", "Share of the KV cache that requests hold; 1 is all of it.", false, usageOf},
		{"kv_cache_hit_rate", "Share of the prompt tokens that were found in the cache.", false, hitRateOf},
		{"kv_cache_reused_blocks_total", "Blocks found in the cache.", true,
			func(c *Config, s Stats) float64 { return float64(s.Hit / c.BlockTokens) }},
		{"kv_cache_missed_blocks_total", "Blocks looked up and not found.", true,
			func(c *Config, s Stats) float64 { return float64((s.Queried - s.Hit) / c.BlockTokens) }},
		{"kv_cache_max_blocks", "Size of the KV cache in blocks.", false, of(pages)},
		{"kv_cache_used_blocks", "Blocks that requests hold.", false, of(held)},
		{"kv_cache_free_blocks", "Blocks that nobody holds.", false, of(unheld)},
		{"kv_cache_tokens_per_block", "Tokens in a block.", false, func(c *Config, _ Stats) float64 { return float64(c.BlockTokens) }},
		{"prompt_tokens_total", "Prompt tokens processed, those found in the cache included.", true, of(prompted)},
		{"prompt_cached_tokens_total", "Prompt tokens found in the cache.", true, of(hit)},
		{"generation_tokens_total", "Tokens generated.", true, of(generated)},
	},
}
