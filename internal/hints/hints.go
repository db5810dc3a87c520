// Package hints reads what clients and gateways tell about a request beside its prompt: how urgent it is, which
// conversation it belongs to, how long its answer will be, how soon it is wanted.
//
// Nearly all requests say nothing, and then nothing is parsed or allocated. Otherwise a Headers gathers the headers that are
// hints while somebody walks over all of them, Headers.Read makes Hints of them, and Hints.ReadBody adds what the body says.
// What is wrong, or not believed, is left out and noted as a Problem: a hint is never a reason to fail, unless the operator
// wants that.
//
// The names are those of NVIDIA Dynamo (x-dynamo-*, nvext), llm-d and the Gateway API Inference Extension (x-llm-d-*,
// x-gateway-*, x-slo-*), of engines (x-vllm-priority, x-override-*), and of coding agents.
package hints

import "time"

// MaxTaints is how many taints of each kind one request may name.
const MaxTaints = 4

// Hints is what was said and believed about one request. The zero value says nothing. It holds no reference to the request.
type Hints struct {
	// Priority is the number that was said, PriorityFrom where. Use Urgency: the scale depends on the source.
	Priority     float64
	PriorityFrom Source
	// StrictPriority is a tier: a higher one is always served first. 0 is the lowest.
	StrictPriority uint32
	// Objective and PolicyClass name a priority that the operator has defined.
	Objective, PolicyClass string

	// Session names the conversation, or the chain of reasoning of one agent; SessionFrom says who named it.
	Session     string
	SessionFrom Source
	// ParentSession is the session that started this one; "" for none.
	ParentSession string
	// SessionFinal says that no request of the session will follow.
	SessionFinal bool
	// Program is the run of an agent, with all of its sessions; ContextType the kind of work that it does.
	Program, ContextType string
	// PromptCacheKey is OpenAI's: requests of one key have a prompt's beginning in common.
	PromptCacheKey string

	// OutputTokens is how long the answer is expected to be; 0 unknown.
	OutputTokens int

	// TTFT and TPOT are the latencies that are wanted, to the first token and between two; Deadline is when the answer is
	// wanted, from the request's arrival. 0: not said.
	TTFT, TPOT, Deadline time.Duration

	// CacheTTL is how long the prompt is worth keeping; 0: not said.
	CacheTTL time.Duration
	// SpeculativePrefill asks for the next turn's prompt to be computed ahead.
	SpeculativePrefill bool

	// Flow is whose share the request takes where shares are fair, User the end user that the client names, Tenant whose KV
	// cache it may use.
	Flow, User, Tenant string

	// Worker is the one worker that is to serve: its name, or "ip:port". "" for any.
	Worker string
	// Rank is the data-parallel rank that is to serve, if Ranked.
	Rank   int
	Ranked bool
	// Required are taints that a worker must have, Preferred those that count for or against it; the first empty name ends
	// each list.
	Required  [MaxTaints]string
	Preferred [MaxTaints]Taint

	// Policy is the scoring policy to choose by, Weights what it is to weigh differently.
	Policy  string
	Weights Weights

	// Model is the name of the model to serve in place of the body's.
	Model string

	// Problems is what was said and not taken.
	Problems Problems

	strict bool // StrictPriority was said, perhaps as 0
}

// Taint is a mark on workers and how much it counts: above 0 for, below 0 against a worker that has it.
type Taint struct {
	Name   string
	Weight float64
}

// Weights replace weights of the dynamo policy for one request; what was not said keeps its configured value.
type Weights struct{ OverlapScoreCredit, PrefillLoadScale, RouterTemperature Number }

// Number is a number that may be left open.
type Number struct {
	Value float64
	Said  bool
}

// Or is the number, or what holds when it is left open.
func (n Number) Or(otherwise float64) float64 {
	if n.Said {
		return n.Value
	}
	return otherwise
}

// Source is where a hint was found.
type Source uint8

// The sources.
const (
	Nowhere          Source = iota // nothing was said
	FromDynamo                     // a header x-dynamo-*
	FromClaudeCode                 // a header of Claude Code, or its metadata.user_id
	FromCodex                      // a header of Codex
	FromOpenCode                   // a header of OpenCode
	FromHeader                     // a header that has no owner
	FromToken                      // x-session-token: opaque, and the same for all sessions that one worker was given by a router
	FromEngineHeader               // a header for one engine, whose scale is known
	FromExtension                  // nvext in the body
	FromMember                     // a member of the body that engines know as well
	FromMetadata                   // metadata in the body
)

var sourceNames = [...]string{"", "dynamo", "claude_code", "codex", "opencode", "header", "token", "engine_header", "extension",
	"member", "metadata"}

// String is the source's name, "" for Nowhere.
func (s Source) String() string { return sourceNames[s] }

// Urgency is the priority on a scale where more is more urgent; 0 when nothing was said. lowerFirst says that the engine serves
// lower numbers first, as vLLM does: the body's own priority is on the engine's scale, every other one says which it is on.
func (h *Hints) Urgency(lowerFirst bool) float64 {
	if h.PriorityFrom == FromMember && lowerFirst {
		return -h.Priority
	}
	return h.Priority
}
