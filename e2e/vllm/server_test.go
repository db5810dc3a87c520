package vllm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"attache/internal/proc"
)

const (
	model = "tiny-qwen2"
	// blockTokens is the smallest block that vLLM has on a CPU. cacheBlocks is a server's whole cache: so few that a
	// dozen long conversations overflow it.
	blockTokens = 32
	cacheBlocks = 512
	maxTokens   = 4096
	// withEvents lets attache subscribe to the servers' KV events; without, it goes by what it sent where.
	withEvents = true
)

// server is one vLLM.
type server struct {
	*proc.Process

	name                 string
	http, events, replay int // ports
}

func (s *server) address() string { return "127.0.0.1:" + strconv.Itoa(s.http) }

// eventsYAML is what the workers file says of the server's events.
func (s *server) eventsYAML() string {
	if !withEvents {
		return ""
	}
	return fmt.Sprintf(", events: {endpoint: %q, replay: %q}", fmt.Sprintf("tcp://127.0.0.1:%d", s.events), fmt.Sprintf("tcp://127.0.0.1:%d", s.replay))
}

func modelDir() string { return filepath.Join(os.Getenv("VLLM"), "model") }

// environment of a server: one thread each, because servers, gateway and load share the machine, and no word to anyone.
var environment = []string{
	"VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1",
	"HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1",
}

// launch starts a server, behind everybody else in the queue for the processors.
func (r *rig) launch(s *server) {
	args := append([]string{"-n", "10", "env"}, environment...)
	args = append(args, filepath.Join(os.Getenv("VLLM"), "venv", "bin", "python"), "-m", "vllm.entrypoints.openai.api_server",
		"--host", "127.0.0.1", "--port", strconv.Itoa(s.http), "--uvicorn-log-level", "warning",
		"--model", modelDir(), "--served-model-name", model, "--load-format", "dummy", "--dtype", "float32", "--enforce-eager",
		"--max-model-len", strconv.Itoa(maxTokens), "--max-num-seqs", "16",
		"--block-size", strconv.Itoa(blockTokens), "--num-gpu-blocks-override", strconv.Itoa(cacheBlocks),
		"--enable-prefix-caching", "--enable-prompt-tokens-details",
		"--kv-events-config", fmt.Sprintf(`{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:%d","replay_endpoint":"tcp://*:%d"}`,
			s.events, s.replay))
	p, err := proc.Start(context.Background(), r.log(s.name), "nice", args...)
	if err != nil {
		r.t.Fatal(err)
	}
	s.Process = p
	r.whole.Cleanup(func() { s.kill(p) })
}

// awaitServer waits until a server answers.
func (r *rig) awaitServer(s *server) {
	r.t.Helper()
	r.within(startWait, s.name+" answers", func() bool {
		select {
		case <-s.Done():
			r.t.Fatalf("%s ended at start: %v", s.name, s.Err())
		default:
		}
		return answers("http://" + s.address() + "/health")
	})
}

// kill is kill -9 for a server's process and those that it started: they are one group.
func (*server) kill(p *proc.Process) {
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	p.Kill()
}

// words is a text of about n tokens that is the same for the same seed and shares no beginning with other seeds.
func words(seed string, n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n*35/10; i++ {
		fmt.Fprintf(&b, "%s-%d speaks of blocks, prefixes and queues. ", seed, i)
	}
	return b.String()
}
