package scoring

// Speed is a model of how long an engine takes for a prefill, and what decoding costs beside it. Figures are seconds for
// one model on one kind of machine; being wrong by a factor of two or three is made good by calibration.
type Speed struct {
	Over        float64 // per step: launching, sampling
	Weights     float64 // per step: reading the weights once, the least a step takes
	PerToken    float64 // per prompt token computed
	PerPair     float64 // per pair of a token computed and one it attends to
	PerSquare   float64 // per squared token of a step, for engines whose cost does not depend on what came before
	PerKVToken  float64 // per step and token in the KV cache of decoding requests
	ChunkTokens int     // prompt tokens per step at most (chunked prefill)
}

// Prefill is the time to compute a prompt of which cached tokens are there already. At least one token is computed, even
// when all are cached: the first answer token comes out of it.
//
//	T(u, c) = sum over steps of n tokens (over + max(weights, b*n) + s*n*n) + q*u*(c + u/2)
func (s *Speed) Prefill(uncached, cached int) float64 {
	u := max(uncached, 1)
	var t float64
	if u < s.ChunkTokens {
		t = s.step(u)
	} else {
		t = s.step(u%s.ChunkTokens) + float64(u/s.ChunkTokens)*s.step(s.ChunkTokens)
	}
	return t + s.PerPair*float64(u)*(float64(max(cached, 0))+float64(u)/2)
}

// step is a step of n tokens without what depends on the tokens before.
func (s *Speed) step(n int) float64 {
	if n == 0 {
		return 0
	}
	return s.Over + max(s.Weights, s.PerToken*float64(n)) + s.PerSquare*float64(n)*float64(n)
}

// marginal is what one more token takes in a long prompt.
func (s *Speed) marginal() float64 { return s.Prefill(s.ChunkTokens, 0) / float64(s.ChunkTokens) }

// profile is a Speed with a name.
type profile struct {
	name  string
	speed Speed
}

// profiles: the first is the default. The first two are fitted to published measurements of one engine at saturation and
// alone; the next two follow from the architectures.
var profiles = []profile{
	{"qwen3-32b-2xh100", Speed{2.2e-3, 13e-3, 55e-6, 1.75e-9, 0, 76e-9, 8192}},
	{"qwen3-32b-2xh100-fast", Speed{1.2e-3, 9.8e-3, 41e-6, 1.75e-9, 0, 39e-9, 8192}},
	{"llama-3-70b-4xh100", Speed{2.7e-3, 14.3e-3, 64e-6, 1.1e-9, 0, 48e-9, 8192}},
	{"llama-3-8b-1xh100", Speed{1.2e-3, 6.4e-3, 27e-6, 0.87e-9, 0, 76e-9, 8192}},
	// The simulated engines of Dynamo's replay; a prefill's last step also decodes, by about 9 ms.
	{"dynamo-mocker", Speed{25.50142e-3, 0, 15.18344e-6, 0, 0.4209989e-9, 51.5e-9, 8192}},
}

// DefaultSpeed is Qwen3-32B on two H100.
func DefaultSpeed() Speed { return profiles[0].speed }

// SpeedConfig names a speed model, or states one.
type SpeedConfig struct {
	// Profile is the nearest known combination of model and machine: "qwen3-32b-2xh100", "qwen3-32b-2xh100-fast",
	// "llama-3-70b-4xh100", "llama-3-8b-1xh100" or "dynamo-mocker". Empty: the first. Only the proportions of its figures matter for long,
	// because their scale is learnt from observed first tokens.
	Profile string `yaml:"profile"`
	// OverheadMS is what every step of the engine takes beside computing, in milliseconds. 0: as the profile.
	OverheadMS float64 `yaml:"overhead_ms"`
	// WeightsMS is how long a step takes at least, for reading the weights, in milliseconds. 0: as the profile.
	WeightsMS float64 `yaml:"weights_ms"`
	// PerTokenUS is the time per prompt token computed, in microseconds: one over the prefill throughput of short prompts.
	// 0: as the profile. Too high a value against the others makes reuse count for more than it saves.
	PerTokenUS float64 `yaml:"per_token_us"`
	// PerPairNS is the time of attention per pair of tokens, in nanoseconds: what makes long prompts slower per token.
	// 0: as the profile.
	PerPairNS float64 `yaml:"per_pair_ns"`
	// PerKVTokenNS is what a decode step takes per token in the KV cache of running requests, in nanoseconds. 0: as the
	// profile. Too high a value spreads requests more evenly than reuse would want.
	PerKVTokenNS float64 `yaml:"per_kv_token_ns"`
	// ChunkTokens is how many prompt tokens an engine computes per step at most (vLLM: max_num_batched_tokens, SGLang:
	// chunked_prefill_size). 0: as the profile, 8192.
	ChunkTokens int `yaml:"chunk_tokens"`
	// Error multiplies all times, for asking what a wrong model costs. 0 is 1.
	Error float64 `yaml:"-"`
}

// speed puts the numbers over the profile's; ok is false when there is no such profile.
func (c SpeedConfig) speed() (s Speed, ok bool) {
	for i, p := range profiles {
		if p.name == c.Profile || c.Profile == "" && i == 0 {
			s, ok = p.speed, true
			break
		}
	}
	over := func(field *float64, value, unit float64) {
		if value != 0 {
			*field = value * unit
		}
	}
	over(&s.Over, c.OverheadMS, 1e-3)
	over(&s.Weights, c.WeightsMS, 1e-3)
	over(&s.PerToken, c.PerTokenUS, 1e-6)
	over(&s.PerPair, c.PerPairNS, 1e-9)
	over(&s.PerKVToken, c.PerKVTokenNS, 1e-9)
	if c.ChunkTokens != 0 {
		s.ChunkTokens = c.ChunkTokens
	}
	if c.Error != 0 {
		s.times(c.Error)
	}
	return s, ok
}

// times makes all times longer by a factor.
func (s *Speed) times(f float64) {
	for _, t := range []*float64{&s.Over, &s.Weights, &s.PerToken, &s.PerPair, &s.PerSquare, &s.PerKVToken} {
		*t *= f
	}
}
