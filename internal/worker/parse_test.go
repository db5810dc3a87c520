package worker

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// vllmPage is a page that a running vLLM answered, shortened (testdata/README.md).
func vllmPage(tb testing.TB) string {
	tb.Helper()
	page, err := os.ReadFile(filepath.Join("testdata", "vllm-metrics.txt"))
	if err != nil {
		tb.Fatal(err)
	}
	return string(page)
}

const sglangPage = `# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="qwen",pp_rank="0",tp_rank="0"} 12.0
# HELP sglang:num_used_tokens The number of used tokens.
# TYPE sglang:num_used_tokens gauge
sglang:num_used_tokens{engine_type="unified",model_name="qwen",pp_rank="0",tp_rank="0"} 40960.0
# HELP sglang:token_usage The token usage.
# TYPE sglang:token_usage gauge
sglang:token_usage{engine_type="unified",model_name="qwen",pp_rank="0",tp_rank="0"} 0.625
# HELP sglang:num_queue_reqs The number of requests in the waiting queue.
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{engine_type="unified",model_name="qwen",pp_rank="0",tp_rank="0"} 3.0
# HELP sglang:page_size The page size of the KV cache.
# TYPE sglang:page_size gauge
sglang:page_size{engine_type="unified",model_name="qwen",pp_rank="0",tp_rank="0"} 64.0
# HELP sglang:num_pages The number of pages of the KV cache.
# TYPE sglang:num_pages gauge
sglang:num_pages{engine_type="unified",model_name="qwen",pp_rank="0",tp_rank="0"} 1024.0
`

const trtllmPage = `# HELP trtllm_num_requests_running Number of running requests
# TYPE trtllm_num_requests_running gauge
trtllm_num_requests_running{engine_type="undefined",model_name="llama"} 7.0
# HELP trtllm_num_requests_waiting Number of waiting requests
# TYPE trtllm_num_requests_waiting gauge
trtllm_num_requests_waiting{engine_type="undefined",model_name="llama"} 1.0
# HELP trtllm_kv_cache_hit_rate KV cache hit rate
# TYPE trtllm_kv_cache_hit_rate gauge
trtllm_kv_cache_hit_rate{engine_type="undefined",model_name="llama"} 0.9
# HELP trtllm_kv_cache_utilization KV cache utilization
# TYPE trtllm_kv_cache_utilization gauge
trtllm_kv_cache_utilization{engine_type="undefined",model_name="llama"} 0.25
# HELP trtllm_kv_cache_max_blocks Blocks of the KV cache
# TYPE trtllm_kv_cache_max_blocks gauge
trtllm_kv_cache_max_blocks{engine_type="undefined",model_name="llama"} 2048.0
# HELP trtllm_kv_cache_used_blocks Used blocks of the KV cache
# TYPE trtllm_kv_cache_used_blocks gauge
trtllm_kv_cache_used_blocks{engine_type="undefined",model_name="llama"} 512.0
# HELP trtllm_kv_cache_tokens_per_block Tokens per block
# TYPE trtllm_kv_cache_tokens_per_block gauge
trtllm_kv_cache_tokens_per_block{engine_type="undefined",model_name="llama"} 32.0
process_start_time_seconds 1.75e+09
`

const otherPage = `# TYPE tgi_queue_size gauge
tgi_queue_size 4
python_info{implementation="CPython"} 1.0
process_open_fds 38.0
`

// ranksPage is vLLM with two data-parallel ranks: one process, one model, two KV caches.
const ranksPage = `vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.75
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.25
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1000.0
vllm:prefix_cache_queries_total{engine="1",model_name="m"} 500.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 600.0
vllm:prefix_cache_hits_total{engine="1",model_name="m"} 100.0
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="512"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="500"} 1.0
`

func TestParseMetrics(t *testing.T) {
	const unknown = "the metrics page has no metrics of vLLM, SGLang or TensorRT-LLM"
	vllm := Stats{Running: 4, KVUsage: 0.12133072407045009, BlockTokens: 32, Blocks: 512, PrefixQueries: 3025, PrefixHits: 896,
		Model: "tiny-qwen2", Engine: VLLM, ProcessStart: 1.79522136931e+09}
	ranks := Stats{Running: 7, Waiting: 1, KVUsage: 0.5, BlockTokens: 16, Blocks: 1012, Ranks: 2, PrefixQueries: 1500, PrefixHits: 700,
		Model: "m", Engine: VLLM}
	for _, c := range []struct {
		name string
		page string
		want Stats
		err  string
	}{
		{"vLLM under load", vllmPage(t), vllm, ""},
		{"SGLang", sglangPage,
			Stats{Running: 12, Waiting: 3, KVUsage: 0.625, BlockTokens: 64, Blocks: 1024, Model: "qwen", Engine: SGLang}, ""},
		{"TensorRT-LLM", trtllmPage,
			Stats{Running: 7, Waiting: 1, KVUsage: 0.25, BlockTokens: 32, Blocks: 2048, Model: "llama", Engine: TRTLLM,
				ProcessStart: 1.75e9}, ""},
		{"two data-parallel ranks are added up, their usage is averaged", ranksPage, ranks, ""},
		{"two data-parallel ranks of SGLang", `sglang:num_running_reqs{dp_rank="0",model_name="m"} 1.0
sglang:num_running_reqs{dp_rank="1",model_name="m"} 2.0
sglang:num_queue_reqs{dp_rank="0",model_name="m"} 3.0
sglang:num_queue_reqs{dp_rank="1",model_name="m"} 4.0
sglang:token_usage{dp_rank="0",model_name="m"} 0.5
sglang:token_usage{dp_rank="1",model_name="m"} 1.0
`, Stats{Running: 3, Waiting: 7, KVUsage: 0.75, Ranks: 2, Model: "m", Engine: SGLang}, ""},
		{"the pages of SGLang's ranks are added up, those of its information stand back",
			"sglang:num_running_reqs 1\nsglang:num_pages{dp_rank=\"0\"} 100\nsglang:num_pages{dp_rank=\"1\"} 100\n" +
				"sglang:cache_config_info{num_pages=\"100\",page_size=\"64\"} 1\n",
			Stats{Running: 1, BlockTokens: 64, Blocks: 200, Engine: SGLang}, ""},
		{"counts that no engine has", strings.Repeat("vllm:num_requests_running 9e17\n"+
			"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"9223372036854775807\"} 1\n", 11),
			Stats{Running: 11e9, BlockTokens: 16, Blocks: 11e9, Engine: VLLM}, ""},
		{"a tab before the value", "vllm:num_requests_running\t3\t1795221369310\n", Stats{Running: 3, Engine: VLLM}, ""},
		{"an exemplar behind the value", "vllm:num_requests_running{model_name=\"m\"} 3 # {trace_id=\"x\"} 7\n",
			Stats{Running: 3, Model: "m", Engine: VLLM}, ""},
		{"the KV usage of an older vLLM", "vllm:num_requests_running 1\nvllm:gpu_cache_usage_perc 0.5\n",
			Stats{Running: 1, KVUsage: 0.5, Engine: VLLM}, ""},
		{"the block counts that llm-d reads from SGLang",
			"sglang:num_running_reqs 1\nsglang:cache_config_info{num_pages=\"1000\",page_size=\"64\"} 1\n",
			Stats{Running: 1, BlockTokens: 64, Blocks: 1000, Engine: SGLang}, ""},
		{"an idle engine", "vllm:num_requests_running 0.0\nvllm:num_requests_waiting 0.0\n", Stats{Engine: VLLM}, ""},

		{"another engine", otherPage, Stats{}, unknown},
		{"another engine, whose restart shows all the same", otherPage + "process_start_time_seconds 5\n", Stats{ProcessStart: 5}, unknown},
		{"an empty page", "", Stats{}, unknown},
		{"only comments", "# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\n", Stats{}, unknown},
		{"what is no metrics page", "<html><body>vllm:num_requests_running 1</body></html>", Stats{}, unknown},

		{"timestamps", "vllm:num_requests_running{model_name=\"m\"} 3 1795221369310\nvllm:num_requests_waiting 2 1795221369310\n",
			Stats{Running: 3, Waiting: 2, Model: "m", Engine: VLLM}, ""},
		{"lines that end as on Windows", strings.ReplaceAll(ranksPage, "\n", "\r\n"), ranks, ""},
		{"empty lines", strings.ReplaceAll(ranksPage, "\n", "\n\n"), ranks, ""},
		{"no line end after the last line", strings.TrimSuffix(ranksPage, "\n"), ranks, ""},
		{"the last line cut off in its labels", "vllm:num_requests_running 3\nvllm:num_requests_waiting{model_name=\"m",
			Stats{Running: 3, Engine: VLLM}, ""},
		{"the last line cut off before its value", "vllm:num_requests_running 3\nvllm:num_requests_waiting{model_name=\"m\"} ",
			Stats{Running: 3, Engine: VLLM}, ""},
		{"the last line cut off in its exponent", "vllm:num_requests_running 3\nvllm:num_requests_waiting 1.5e+",
			Stats{Running: 3, Engine: VLLM}, ""},
		{"the last line cut off behind a brace in a label", "vllm:num_requests_running 3\nvllm:cache_config_info{x=\"{}\",block_size=\"16",
			Stats{Running: 3, Engine: VLLM}, ""},

		{"not a number, infinite and negative values are ignored", `vllm:num_requests_running 2
vllm:num_requests_running{engine="1"} NaN
vllm:num_requests_running{engine="2"} +Inf
vllm:num_requests_running{engine="3"} -Inf
vllm:num_requests_running{engine="4"} -1
vllm:num_requests_running{engine="5"} 1e300
vllm:num_requests_running{engine="6"} many
vllm:num_requests_waiting -3
vllm:kv_cache_usage_perc NaN
vllm:kv_cache_usage_perc{engine="1"} 0.5
vllm:prefix_cache_queries_total NaN
vllm:prefix_cache_hits_total +Inf
process_start_time_seconds NaN
`, Stats{Running: 2, KVUsage: 0.5, Engine: VLLM}, ""},
		{"names that only begin like those that are read", "vllm:num_requests_running 2\nvllm:num_requests_running_max 9\n" +
			"vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 9\nvllm:prefix_cache_hits_created 9\n",
			Stats{Running: 2, Engine: VLLM}, ""},
		{"a label's name that ends like another's", `vllm:num_requests_running{xmodel_name="a",model_name="b"} 1`,
			Stats{Running: 1, Model: "b", Engine: VLLM}, ""},
		{"only a label that ends like the one looked for", `vllm:num_requests_running{xmodel_name="a"} 1`,
			Stats{Running: 1, Engine: VLLM}, ""},
		{"braces and spaces in a label", `vllm:num_requests_running{lora="{a} b",model_name="org/m v2"} 1`,
			Stats{Running: 1, Model: "org/m v2", Engine: VLLM}, ""},
		{"block counts that are not set", `vllm:num_requests_running 1
vllm:cache_config_info{block_size="16",num_cpu_blocks="None",num_gpu_blocks="None"} 1.0
`, Stats{Running: 1, BlockTokens: 16, Engine: VLLM}, ""},
		{"block counts that are written as floats", `vllm:num_requests_running 1
vllm:cache_config_info{block_size="16.0",num_gpu_blocks="512.0"} 1.0
`, Stats{Running: 1, BlockTokens: 16, Blocks: 512, Engine: VLLM}, ""},
		{"block counts that are negative", `vllm:num_requests_running 1
vllm:cache_config_info{block_size="16",num_gpu_blocks="-1"} 1.0
`, Stats{Running: 1, BlockTokens: 16, Engine: VLLM}, ""},
	} {
		got, err := ParseMetrics([]byte(c.page))
		if got != c.want {
			t.Errorf("%s:\n%+v, want\n%+v", c.name, got, c.want)
		}
		if text := errorText(err); text != c.err {
			t.Errorf("%s: error %q, want %q", c.name, text, c.err)
		}
	}
}

// errorText is an error's text; "" when there is none.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func FuzzParseMetrics(f *testing.F) {
	const odd = "vllm:num_requests_running{xmodel_name=\"a\",model_name=\"b\"} 1 1795221369310\r\n" +
		"vllm:kv_cache_usage_perc NaN\nvllm:cache_config_info{x=\"}"
	for _, page := range []string{vllmPage(f), sglangPage, trtllmPage, otherPage, ranksPage, odd, ""} {
		f.Add([]byte(page))
	}
	f.Fuzz(func(t *testing.T, page []byte) {
		s, err := ParseMetrics(page)
		if err != nil {
			return
		}
		if !s.Engine.Valid() {
			t.Errorf("%q: engine %q", page, s.Engine)
		}
		if s.Running < 0 || s.Waiting < 0 || s.KVUsage < 0 || math.IsNaN(s.KVUsage) {
			t.Errorf("%q: %+v", page, s)
		}
	})
}

func BenchmarkParseMetrics(b *testing.B) {
	page := []byte(vllmPage(b))
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseMetrics(page); err != nil {
			b.Fatal(err)
		}
	}
}
