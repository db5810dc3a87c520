package hints

import (
	"fmt"
	"slices"
	"strings"

	"attache/internal/field"
)

// Config says which hints of clients are believed, and what is done with them.
type Config struct {
	// Trust lists the groups of hints that are believed from clients: session, length, slo, cache, priority, tenant, pin, policy,
	// model; or the one word all, or none (docs/operations.md). With priority, tenant, pin, policy and model one client gets ahead of
	// others, takes their share, or chooses the worker: believe them only where every client is yours, or where something in front of
	// attache sets and removes them. What is not believed is ignored and counted; a priority or pin that an engine would act on is
	// taken out of the request, from headers and body.
	Trust []string `yaml:"trust"`
	// Strict answers hints that cannot be understood with 400. Off: they are ignored and counted, and the request goes on.
	Strict bool `yaml:"strict"`
	// ForwardPriority writes a priority that was told as a hint into the body, on the engine's scale: vLLM, which serves lower numbers
	// first, is sent its negative. vLLM must run with --scheduling-policy priority, or it refuses such requests, and SGLang with
	// --enable-priority-scheduling. TensorRT-LLM is sent none. Off: engines get what clients wrote for them, if that is believed.
	ForwardPriority bool `yaml:"forward_priority"`
}

// DefaultConfig believes what can do little harm to others.
func DefaultConfig() Config { return Config{Trust: []string{"session", "length", "slo", "cache"}} }

const (
	wordAll  = "all"
	wordNone = "none"
)

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	for i, word := range c.Trust {
		path := fmt.Sprintf("trust[%d]", i)
		_, known := groupOf(word)
		alone := word == wordAll || word == wordNone
		check.Check(known || alone, path, word, "must be one of "+strings.Join(groupNames[:], ", ")+", all, none")
		check.Check(!alone || len(c.Trust) == 1, path, word, "must be the only word of the list")
		check.Check(slices.Index(c.Trust, word) == i, path, word, "must not be repeated")
	}
	return check.Err()
}

// Trusted are the groups that are believed. The configuration must have been validated.
func (c Config) Trusted() Groups {
	var all Groups
	for _, word := range c.Trust {
		if word == wordAll {
			return everything
		}
		g, _ := groupOf(word)
		all |= g
	}
	return all
}

// Groups is a set of groups of hints, which are believed or not as a whole.
type Groups uint16

// The groups. Each is a set of one.
const (
	GroupSession  Groups = 1 << iota // which requests belong together
	GroupLength                      // how long the answer will be
	GroupSLO                         // how soon it is wanted
	GroupCache                       // how long the prompt is worth keeping
	GroupPriority                    // who is served first
	GroupTenant                      // on whose account
	GroupPin                         // which worker serves
	GroupPolicy                      // by which policy it is chosen
	GroupModel                       // which model serves in place of the body's
	everything    Groups = 1<<iota - 1
)

var groupNames = [...]string{"session", "length", "slo", "cache", "priority", "tenant", "pin", "policy", "model"}

// Has reports whether all of g are in the set.
func (all Groups) Has(g Groups) bool { return all&g == g }

func groupOf(name string) (g Groups, ok bool) {
	i := slices.Index(groupNames[:], name)
	if i < 0 {
		return 0, false
	}
	return 1 << i, true
}
