package worker

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

// ParseMetrics reads what matters of a page in Prometheus' text format, by the exact names of vLLM, SGLang and
// TensorRT-LLM (names as their sources define them; the alternatives that llm-d's documentation uses are read too). Ranks
// of one worker are added up. A page without any known name is an error: then nothing is known of the worker's load.
func ParseMetrics(page []byte) (Stats, error) {
	var s Stats
	usages, infoBlocks := 0, 0
	for len(page) > 0 {
		line := page
		if end := bytes.IndexByte(page, '\n'); end >= 0 {
			line, page = page[:end], page[end+1:]
		} else {
			page = nil
		}
		name, labels, value, ok := sample(line)
		if !ok {
			continue
		}
		switch string(name) {
		case "vllm:num_requests_running", "sglang:num_running_reqs", "trtllm_num_requests_running":
			s.Engine = engineOf(name)
			s.Running += count(value)
			if model := label(labels, "model_name"); model != "" {
				s.Model = model
			}
			if rank := rankOf(labels); rank > 0 {
				s.Ranks = max(s.Ranks, min(rank+1, maxRanks))
			}
		case "vllm:num_requests_waiting", "sglang:num_queue_reqs", "trtllm_num_requests_waiting":
			s.Waiting += count(value)
		case "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "trtllm_kv_cache_utilization":
			s.KVUsage += value
			usages++
		case "vllm:prefix_cache_queries_total":
			s.PrefixQueries += value
		case "vllm:prefix_cache_hits_total":
			s.PrefixHits += value
		case "vllm:cache_config_info":
			s.BlockTokens = number(labels, "block_size")
			s.Blocks += number(labels, "num_gpu_blocks")
		case "sglang:cache_config_info":
			s.BlockTokens = number(labels, "page_size")
			infoBlocks += number(labels, "num_pages")
		case "sglang:page_size", "trtllm_kv_cache_tokens_per_block":
			s.BlockTokens = count(value)
		case "sglang:num_pages", "trtllm_kv_cache_max_blocks":
			s.Blocks += count(value)
		case "process_start_time_seconds":
			s.ProcessStart = value
		}
	}
	if usages > 0 {
		s.KVUsage /= float64(usages)
	}
	if s.Blocks == 0 {
		s.Blocks = infoBlocks
	}
	if s.Engine == "" {
		return Stats{ProcessStart: s.ProcessStart}, errors.New("the metrics page has no metrics of vLLM, SGLang or TensorRT-LLM")
	}
	return s, nil
}

// rankOf is the data-parallel rank of a sample: "engine" of vLLM, "dp_rank" of SGLang.
func rankOf(labels []byte) int { return max(number(labels, "engine"), number(labels, "dp_rank")) }

func engineOf(name []byte) Engine {
	switch name[0] {
	case 's':
		return SGLang
	case 't':
		return TRTLLM
	default:
		return VLLM
	}
}

// sample takes a line "name{labels} value [timestamp]" apart. Lines of other families are left after one look at their
// first byte.
func sample(line []byte) (name, labels []byte, value float64, ok bool) {
	if len(line) == 0 || (line[0] != 'v' && line[0] != 's' && line[0] != 't' && line[0] != 'p') {
		return nil, nil, 0, false
	}
	var rest []byte
	if brace := bytes.IndexByte(line, '{'); brace >= 0 {
		end := closing(line, brace)
		if end < 0 {
			return nil, nil, 0, false
		}
		name, labels, rest = line[:brace], line[brace+1:end], line[end+1:]
	} else {
		space := bytes.IndexAny(line, " \t")
		if space < 0 {
			return nil, nil, 0, false
		}
		name, rest = line[:space], line[space:]
	}
	if !known(name) {
		return nil, nil, 0, false
	}
	rest = bytes.TrimSpace(rest)
	if space := bytes.IndexAny(rest, " \t"); space >= 0 {
		rest = rest[:space]
	}
	value, err := strconv.ParseFloat(string(rest), 64)
	return name, labels, value, err == nil && value >= 0 && value < 1e18
}

// closing finds the brace that ends the labels; braces in their values are text.
func closing(line []byte, from int) int {
	if last := bytes.LastIndexByte(line, '}'); last < from || bytes.IndexByte(line[from:last], '}') < 0 {
		return last // the only one, as nearly always
	}
	quoted := false
	for i := from; i < len(line); i++ {
		switch {
		case quoted && line[i] == '\\':
			i++
		case line[i] == '"':
			quoted = !quoted
		case line[i] == '}' && !quoted:
			return i
		}
	}
	return -1
}

func known(name []byte) bool {
	return bytes.HasPrefix(name, []byte("vllm:")) || bytes.HasPrefix(name, []byte("sglang:")) ||
		bytes.HasPrefix(name, []byte("trtllm_")) || string(name) == "process_start_time_seconds"
}

// label finds a label's value; escapes do not occur in the ones that are read.
func label(labels []byte, name string) string {
	for at := 0; at < len(labels); {
		i := bytes.Index(labels[at:], []byte(name+`="`))
		if i < 0 {
			return ""
		}
		i += at
		if i == 0 || labels[i-1] == ',' {
			value := labels[i+len(name)+2:]
			if end := bytes.IndexByte(value, '"'); end >= 0 {
				return string(value[:end])
			}
			return ""
		}
		at = i + 1
	}
	return ""
}

// maxCount bounds what one line may count, so that no sum of a page's lines overflows.
const maxCount = 1e9

func count(value float64) int { return int(min(value, maxCount)) }

// number reads a label that is a whole number; vLLM writes "None" for what is not set.
func number(labels []byte, name string) int {
	n, err := strconv.Atoi(strings.TrimSuffix(label(labels, name), ".0"))
	if err != nil || n < 0 {
		return 0
	}
	return min(n, maxCount)
}
