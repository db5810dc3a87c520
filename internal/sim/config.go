package sim

import (
	"slices"
	"strings"
	"time"

	"attache/internal/field"
)

// Config describes one simulated worker.
type Config struct {
	// Listen is where it serves HTTP, host:port; port 0 is any free one.
	Listen string
	// Name tells engines apart: it comes back in the header x-sim-engine of every response.
	Name string
	// Model is the only model name that it serves.
	Model string
	// ModelDir is the folder of a real model: its chat template and tokenizer then make the tokens of prompts, as in a real
	// engine. Empty: every 4 bytes are a token.
	ModelDir string
	// Profile is the combination of model and machine whose speed it has; see Profiles. Empty: the first.
	Profile string
	// Speed divides the time of every step: 10 is ten times as fast as the profile. Above 50 or so the time to wake up
	// counts for more than the model.
	Speed float64
	// MinStep is what a step takes at least, whatever Speed says. 0: no bound. A large value makes tokens trickle.
	MinStep time.Duration
	// KVBlocks is the size of the KV cache in blocks. 0: what the profile's machine has.
	KVBlocks int
	// BlockTokens is the number of tokens in a block.
	BlockTokens int
	// MaxTokens is how many tokens a step computes at most (vLLM: max_num_batched_tokens). It must not be below MaxSeqs.
	MaxTokens int
	// MaxSeqs is how many requests run at a time (vLLM: max_num_seqs).
	MaxSeqs int
	// MaxModelTokens bounds prompt and answer of one request together, as does the size of the KV cache. A longer prompt
	// is cut to fit, where a real engine would answer 400: so bodies of many megabytes can be sent through a gateway
	// without waiting minutes for their prefill.
	MaxModelTokens int
	// HostBlocks and DiskBlocks are the sizes of the tiers below the device's, in blocks; see tier. 0: there is none.
	HostBlocks, DiskBlocks int
	// Ranks is how many data-parallel ranks there are: engines with queue and cache of their own, behind one HTTP port.
	Ranks int
	// LoRAs are the adapters that are served beside Model, under their own names.
	LoRAs []string
	// Dialect is the engine that it plays; see Dialects. Empty: the first.
	Dialect string
	// Events is where rank 0 publishes the events of its cache, a ZeroMQ endpoint to bind such as tcp://127.0.0.1:5557; rank n
	// has the port n above. Port 0 is any free one, for each. Empty: there are none. TensorRT-LLM has no use for it: its
	// events are always there, to be pulled.
	Events string
	// Replay is where rank 0 answers for batches that were missed, likewise. Empty: nowhere. Only with Events.
	Replay string
	// Topic is what batches are published under.
	Topic string
	// BufferSteps is how many batches each rank keeps for replays, or how many events TensorRT-LLM keeps until they are pulled.
	BufferSteps int
	// DecodeInterval is after how many steps without prompts SGLang publishes (decode-log-interval). Others do after each.
	DecodeInterval int
	// HashSeed is what the engine's names of blocks depend on. 0: another one with every start, as real processes do it.
	HashSeed uint64
	// Seed varies the words of answers.
	Seed uint64
	// Fault is what is wrong with it from the start. The zero value: nothing.
	Fault Fault

	vocabulary *vocabulary // of ModelDir; New reads it
}

// DefaultConfig is Qwen3-32B on two H100, as vLLM runs it.
func DefaultConfig() Config {
	return Config{
		Listen:         "127.0.0.1:8000",
		Name:           "sim",
		Model:          "sim-model",
		Profile:        profiles[0].name,
		Speed:          1,
		BlockTokens:    16,
		MaxTokens:      8192,
		MaxSeqs:        256,
		MaxModelTokens: 40_960,
		Ranks:          1,
		Dialect:        dialects[0],
		BufferSteps:    10_000,
		DecodeInterval: 40,
	}
}

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	check.Under("listen", field.Address(c.Listen))
	check.Check(!strings.HasPrefix(c.Listen, "unix:"), "listen", c.Listen, "must be host:port")
	check.Check(c.Name != "" && !strings.ContainsAny(c.Name, "\r\n"), "name", c.Name, "must be one line of text")
	check.Check(c.Model != "", "model", c.Model, "must not be empty")
	_, known := profileOf(c.Profile)
	check.Check(known, "profile", c.Profile, "must be one of "+strings.Join(Profiles(), ", "))
	check.Check(c.Speed > 0 && c.Speed <= 1000, "speed", c.Speed, "must be above 0 and at most 1000")
	check.Check(c.MinStep >= 0, "min-step", c.MinStep, "must not be negative")
	check.Check(c.BlockTokens >= 1 && c.BlockTokens <= 1024, "block-tokens", c.BlockTokens, "must be 1 to 1024 tokens")
	check.Check(c.KVBlocks >= 0 && c.KVBlocks <= 1<<24, "kv-blocks", c.KVBlocks, "must be 0 (as the profile) to 16777216 blocks")
	check.Check(c.MaxSeqs >= 1, "max-seqs", c.MaxSeqs, "must be at least 1 request")
	check.Check(c.MaxTokens >= max(1, c.MaxSeqs), "max-tokens", c.MaxTokens, "must not be below max-seqs")
	check.Check(c.MaxModelTokens >= 2, "max-model-tokens", c.MaxModelTokens, "must be at least 2 tokens")
	if known && c.BlockTokens >= 1 {
		check.Check(c.window() >= 2, "kv-blocks", c.KVBlocks, "must hold at least 2 tokens")
	}
	check.Under("fault", c.Fault.Validate())
	c.validateEvents(&check)
	return check.Err()
}

func (c *Config) validateEvents(check *field.Checker) {
	check.Check(c.HostBlocks >= 0 && c.HostBlocks <= 1<<24, "host-blocks", c.HostBlocks, "must be 0 (none) to 16777216 blocks")
	check.Check(c.DiskBlocks >= 0 && c.DiskBlocks <= 1<<24, "disk-blocks", c.DiskBlocks, "must be 0 (none) to 16777216 blocks")
	check.Check(c.Ranks >= 1 && c.Ranks <= 64, "ranks", c.Ranks, "must be 1 to 64")
	check.Check(c.Dialect == "" || slices.Contains(dialects, c.Dialect), "dialect", c.Dialect, "must be one of "+strings.Join(dialects, ", "))
	for _, name := range c.LoRAs {
		check.Check(name != "" && name != c.Model, "lora", name, "must be a name other than the model's")
	}
	for _, e := range []struct{ name, at string }{{"events", c.Events}, {"replay", c.Replay}} {
		if e.at != "" {
			_, err := endpointOf(e.at, c.Ranks-1)
			check.Under(e.name, err)
		}
	}
	check.Check(c.Events == "" || c.Dialect != DialectTensorRT, "events", c.Events, "must be empty: TensorRT-LLM's are pulled")
	check.Check(c.Replay == "" || c.Events != "", "replay", c.Replay, "must be empty without events")
	check.Check(c.BufferSteps >= 1, "buffer-steps", c.BufferSteps, "must be at least 1")
	check.Check(c.DecodeInterval >= 1, "decode-interval", c.DecodeInterval, "must be at least 1")
}

// blocks is the size of the KV cache.
func (c Config) blocks() int {
	if c.KVBlocks > 0 {
		return c.KVBlocks
	}
	p, _ := profileOf(c.Profile)
	return p.kvTokens / c.BlockTokens
}

// window is how many tokens prompt and answer may have together.
func (c Config) window() int { return min(c.MaxModelTokens, c.blocks()*c.BlockTokens) }

// modes are the faults there are.
var modes = []string{"", FaultNone, FaultRefuse, FaultHang, FaultSlow, Fault503, Fault500, FaultCut, FaultReset}

func knownMode(mode string) bool { return slices.Contains(modes, mode) }
