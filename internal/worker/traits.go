package worker

import (
	"fmt"
	"math"
	"strconv"
)

// Traits is what the labels of a worker say that matters for choosing it. The zero value says nothing.
type Traits struct {
	// Prefill: it only computes prompts for others, and takes no whole requests.
	Prefill bool
	// MaxInFlight is how many requests it may have in flight before it counts as saturated; 0 no limit of its own.
	MaxInFlight int
	// BatchTokens is how many tokens its engine takes per step at most; 0 not known.
	BatchTokens int
	// MemoryBytes is the size of its accelerators' memory; 0 not known.
	MemoryBytes float64
	// Distance is how far it is from the gateway, in any unit that all workers of the pool share; 0 nearest.
	Distance float64
}

// The labels that have a meaning. All others are for taints only.
const (
	labelRole        = "role"
	labelRoleLLMD    = "llm-d.ai/role"
	labelMaxInFlight = "max_in_flight"
	labelBatchTokens = "batch_tokens"
	labelMemoryGiB   = "memory_gib"
	labelDistance    = "distance"

	rolePrefill = "prefill"
)

// ParseTraits reads labels. A role other than prefill says that the worker takes whole requests. The error names a label whose
// value is no number of its range; the other traits are valid all the same.
func ParseTraits(labels map[string]string) (t Traits, err error) {
	role, named := labels[labelRole]
	if !named {
		role = labels[labelRoleLLMD]
	}
	t.Prefill = role == rolePrefill
	number := func(label string, least, most float64, whole bool) float64 {
		text, said := labels[label]
		if !said {
			return 0
		}
		n, wrong := strconv.ParseFloat(text, 64)
		if wrong == nil && n >= least && n <= most && (!whole || n == math.Trunc(n)) {
			return n
		}
		kind := "a number"
		if whole {
			kind = "a whole number"
		}
		if err == nil {
			err = fmt.Errorf("labels.%s: %q: must be %s from %g to %g", label, text, kind, least, most)
		}
		return 0
	}
	t.MaxInFlight = int(number(labelMaxInFlight, 1, maxCap, true))
	t.BatchTokens = int(number(labelBatchTokens, 1, 1<<24, true))
	t.MemoryBytes = number(labelMemoryGiB, 0.1, 1<<20, false) * (1 << 30)
	t.Distance = number(labelDistance, 0, 1e9, false)
	return t, err
}

// maxCap is the highest limit of requests in flight that a worker can be given.
const maxCap = 1_000_000
