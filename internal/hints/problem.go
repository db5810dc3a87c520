package hints

import "strconv"

// Kind is what a hint is about.
type Kind uint8

// The kinds.
const (
	Priority Kind = iota
	StrictPriority
	Objective
	PolicyClass
	Session
	ParentSession
	SessionFinal
	Program
	ContextType
	PromptCacheKey
	OutputTokens
	TTFT
	TPOT
	Deadline
	CacheTTL
	SpeculativePrefill
	Flow
	User
	Tenant
	Worker
	Rank
	Taints
	Policy
	Weight
	Model
	kinds // how many there are
)

var kindInfo = [kinds]struct {
	name  string
	group Groups
}{
	Priority:           {"priority", GroupPriority},
	StrictPriority:     {"strict_priority", GroupPriority},
	Objective:          {"objective", GroupPriority},
	PolicyClass:        {"policy_class", GroupPriority},
	Session:            {"session", GroupSession},
	ParentSession:      {"parent_session", GroupSession},
	SessionFinal:       {"session_final", GroupSession},
	Program:            {"program", GroupSession},
	ContextType:        {"context_type", GroupSession},
	PromptCacheKey:     {"prompt_cache_key", GroupSession},
	OutputTokens:       {"output_tokens", GroupLength},
	TTFT:               {"ttft", GroupSLO},
	TPOT:               {"tpot", GroupSLO},
	Deadline:           {"deadline", GroupSLO},
	CacheTTL:           {"cache_ttl", GroupCache},
	SpeculativePrefill: {"speculative_prefill", GroupCache},
	Flow:               {"flow", GroupTenant},
	User:               {"user", GroupTenant},
	Tenant:             {"tenant", GroupTenant},
	Worker:             {"worker", GroupPin},
	Rank:               {"rank", GroupPin},
	Taints:             {"taints", GroupPin},
	Policy:             {"policy", GroupPolicy},
	Weight:             {"weight", GroupPolicy},
	Model:              {"model", GroupModel},
}

// String is the kind's name in metrics and errors.
func (k Kind) String() string { return kindInfo[k].name }

// Group is the group that the kind belongs to.
func (k Kind) Group() Groups { return kindInfo[k].group }

// Reason is why a hint was not taken.
type Reason uint8

// The reasons.
const (
	taken      Reason = iota
	Untrusted         // clients are not believed in this
	WrongType         // a value of another JSON type, or a text that is no number
	OutOfRange        // a number beyond reason, or not finite
	TooLong           // a text of more than MaxText bytes
	NotText           // control characters, or bytes that are not UTF-8
	Unknown           // a word that means nothing here
	TooMany           // more than MaxTaints
)

var reasonInfo = [...]struct{ name, text string }{
	taken:      {"", ""},
	Untrusted:  {"untrusted", "it is not believed"},
	WrongType:  {"wrong_type", "its value is of another type than the hint's"},
	OutOfRange: {"out_of_range", "its number is beyond reason"},
	TooLong:    {"too_long", "its text has more than " + strconv.Itoa(MaxText) + " bytes"},
	NotText:    {"not_text", "its text has control characters or is not UTF-8"},
	Unknown:    {"unknown", "its word means nothing here"},
	TooMany:    {"too_many", "it names more than " + strconv.Itoa(MaxTaints)},
}

// String is the reason's name in metrics.
func (r Reason) String() string { return reasonInfo[r].name }

// Text is the reason as the end of a sentence, for the client.
func (r Reason) Text() string { return reasonInfo[r].text }

// Problem is one hint that was not taken.
type Problem struct {
	Kind   Kind
	Reason Reason
}

// maxProblems is how many problems of one request are kept; further ones are forgotten.
const maxProblems = 8

// Problems are the hints of one request that were not taken. The zero value is none.
type Problems struct {
	list [maxProblems]Problem
	n    uint8
}

// All are the problems, in the order in which they were met. The slice is p's.
func (p *Problems) All() []Problem { return p.list[:p.n] }

// Malformed is the first problem that is the client's mistake; ok is false when there is none. What is only not believed is
// no mistake.
func (p *Problems) Malformed() (first Problem, ok bool) {
	for _, one := range p.All() {
		if one.Reason != Untrusted {
			return one, true
		}
	}
	return Problem{}, false
}

func (p *Problems) add(k Kind, r Reason) {
	if p.n < maxProblems {
		p.list[p.n] = Problem{k, r}
		p.n++
	}
}
