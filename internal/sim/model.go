package sim

import "time"

// Model is how long the steps of one language model take on one kind of machine. Figures are seconds.
//
// It is the truth that a router's own speed model is to guess, so it is not shared with the router's.
type Model struct {
	Over       float64 // per step: launching, sampling
	Weights    float64 // per step: reading the weights once, the least that computing takes
	PerToken   float64 // per token computed
	PerPair    float64 // per pair of a prompt token computed and one it attends to
	PerKVToken float64 // per token in the KV cache of an answer that goes on
}

// batch is the work of one step.
type batch struct {
	tokens int     // tokens computed: prompt chunks, and one for each running answer
	pairs  float64 // sum over the chunks of chunk*(before + chunk/2)
	kv     int     // tokens of context of the running answers
	// onboard is the time in seconds for bringing blocks back from lower tiers.
	onboard float64
}

// step is the time for a batch of n tokens:
//
//	t = over + max(weights, b*n) + q*pairs + c*kv
func (m *Model) step(b batch) time.Duration {
	t := m.Over + max(m.Weights, m.PerToken*float64(b.tokens)) + m.PerPair*b.pairs + m.PerKVToken*float64(b.kv)
	return time.Duration(t * float64(time.Second))
}

// profile is a Model with a name and the KV cache that such a machine has room for.
type profile struct {
	name     string
	model    Model
	kvTokens int
}

// profiles: the first is the default. The first two are fitted to published measurements of one engine, at saturation and
// alone; the others follow from the architectures, their KV caches are assumed.
var profiles = []profile{
	{"qwen3-32b-2xh100", Model{2.2e-3, 13e-3, 55e-6, 1.75e-9, 76e-9}, 307_328},
	{"qwen3-32b-2xh100-fast", Model{1.2e-3, 9.8e-3, 41e-6, 1.75e-9, 39e-9}, 307_328},
	{"llama-3-70b-4xh100", Model{2.7e-3, 14.3e-3, 64e-6, 1.1e-9, 48e-9}, 400_000},
	{"llama-3-8b-1xh100", Model{1.2e-3, 6.4e-3, 27e-6, 0.87e-9, 76e-9}, 400_000},
}

// Profiles are the names that Config.Profile may have, the default first.
func Profiles() []string {
	names := make([]string, len(profiles))
	for i, p := range profiles {
		names[i] = p.name
	}
	return names
}

// ModelOf is the model of a profile and the KV cache, in tokens, that such a machine has room for. ok is false for a name
// that is not one of Profiles.
func ModelOf(name string) (m Model, kvTokens int, ok bool) {
	p, ok := profileOf(name)
	return p.model, p.kvTokens, ok
}

// profileOf finds a profile; an empty name is the default.
func profileOf(name string) (profile, bool) {
	for i, p := range profiles {
		if p.name == name || name == "" && i == 0 {
			return p, true
		}
	}
	return profile{}, false
}
