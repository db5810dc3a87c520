package hints

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// header is a header that is a hint. Of those that mean the same the smaller one wins: newer names come before older ones,
// and what is said to a router before what is said to an engine.
type header uint8

const (
	noHeader header = iota
	dynamoPriority
	vllmPriority
	sglangPriority
	dynamoStrictPriority
	llmdObjective
	gatewayObjective
	dynamoPolicyClass

	dynamoSession
	dynamoParent
	dynamoFinal
	claudeAgent
	claudeParent
	claudeSession
	codexThread
	codexParent
	codexSession
	codexOldSession
	openCodeSession
	plainSession
	plainParent
	routingKey
	sessionToken

	llmdTTFT
	oldTTFT
	llmdTPOT
	oldTPOT

	llmdFairness
	gatewayFairness
	tenantID

	dynamoWorker
	dynamoRank
	engineRank
	sglangRank
	sglangPrefillRank
	rankHost
	prefillHost
	bootstrapHost
	bootstrapPort
	bootstrapRoom

	attachePolicy
	llmdModel
	gatewayModel
)

// headers are their names in lower case, as Envoy sends them. Those of the groups priority and pin are taken out of the request
// when they are not believed. Some pins are known for that alone: they lead engines to other hosts or ranks.
var headers = [...]struct {
	name string
	kind Kind
}{
	dynamoPriority:       {"x-dynamo-request-priority", Priority},
	vllmPriority:         {"x-vllm-priority", Priority},
	sglangPriority:       {"x-override-priority", Priority},
	dynamoStrictPriority: {"x-dynamo-request-strict-priority", StrictPriority},
	llmdObjective:        {"x-llm-d-inference-objective", Objective},
	gatewayObjective:     {"x-gateway-inference-objective", Objective},
	dynamoPolicyClass:    {"x-dynamo-meta-policy-class", PolicyClass},
	dynamoSession:        {"x-dynamo-session-id", Session},
	dynamoParent:         {"x-dynamo-parent-session-id", ParentSession},
	dynamoFinal:          {"x-dynamo-session-final", SessionFinal},
	claudeAgent:          {"x-claude-code-agent-id", Session},
	claudeParent:         {"x-claude-code-parent-agent-id", ParentSession},
	claudeSession:        {"x-claude-code-session-id", Session},
	codexThread:          {"thread-id", Session},
	codexParent:          {"x-codex-parent-thread-id", ParentSession},
	codexSession:         {"session-id", Session},
	codexOldSession:      {"session_id", Session},
	openCodeSession:      {"x-opencode-session", Session},
	plainSession:         {"x-session-id", Session},
	plainParent:          {"x-parent-session-id", ParentSession},
	routingKey:           {"x-smg-routing-key", Session},
	sessionToken:         {"x-session-token", Session},
	llmdTTFT:             {"x-llm-d-slo-ttft-ms", TTFT},
	oldTTFT:              {"x-slo-ttft-ms", TTFT},
	llmdTPOT:             {"x-llm-d-slo-tpot-ms", TPOT},
	oldTPOT:              {"x-slo-tpot-ms", TPOT},
	llmdFairness:         {"x-llm-d-inference-fairness-id", Flow},
	gatewayFairness:      {"x-gateway-inference-fairness-id", Flow},
	tenantID:             {"x-tenant-id", Tenant},
	dynamoWorker:         {"x-dynamo-worker-instance-id", Worker},
	dynamoRank:           {"x-dynamo-dp-rank", Rank},
	engineRank:           {"x-data-parallel-rank", Rank},
	sglangRank:           {"x-override-routed-dp-rank", Rank},
	sglangPrefillRank:    {"x-override-disagg-prefill-dp-rank", Rank},
	rankHost:             {"x-data-parallel-host-port", Worker},
	prefillHost:          {"x-prefiller-host-port", Worker},
	bootstrapHost:        {"x-override-bootstrap-host", Worker},
	bootstrapPort:        {"x-override-bootstrap-port", Worker},
	bootstrapRoom:        {"x-override-bootstrap-room", Worker},
	attachePolicy:        {"x-attache-policy", Policy},
	llmdModel:            {"x-llm-d-model-name-rewrite", Model},
	gatewayModel:         {"x-gateway-model-name-rewrite", Model},
}

// headerOf finds a name among headers. It is a switch because nearly every name is none of them: that shows by its length or by
// a few comparisons.
func headerOf(key []byte) header {
	switch string(key) {
	case "x-dynamo-request-priority":
		return dynamoPriority
	case "x-vllm-priority":
		return vllmPriority
	case "x-override-priority":
		return sglangPriority
	case "x-dynamo-request-strict-priority":
		return dynamoStrictPriority
	case "x-llm-d-inference-objective":
		return llmdObjective
	case "x-gateway-inference-objective":
		return gatewayObjective
	case "x-dynamo-meta-policy-class":
		return dynamoPolicyClass
	case "x-dynamo-session-id":
		return dynamoSession
	case "x-dynamo-parent-session-id":
		return dynamoParent
	case "x-dynamo-session-final":
		return dynamoFinal
	case "x-claude-code-agent-id":
		return claudeAgent
	case "x-claude-code-parent-agent-id":
		return claudeParent
	case "x-claude-code-session-id":
		return claudeSession
	case "thread-id":
		return codexThread
	case "x-codex-parent-thread-id":
		return codexParent
	case "session-id":
		return codexSession
	case "session_id":
		return codexOldSession
	case "x-opencode-session":
		return openCodeSession
	case "x-session-id":
		return plainSession
	case "x-parent-session-id":
		return plainParent
	case "x-smg-routing-key":
		return routingKey
	case "x-session-token":
		return sessionToken
	case "x-llm-d-slo-ttft-ms":
		return llmdTTFT
	case "x-slo-ttft-ms":
		return oldTTFT
	case "x-llm-d-slo-tpot-ms":
		return llmdTPOT
	case "x-slo-tpot-ms":
		return oldTPOT
	case "x-llm-d-inference-fairness-id":
		return llmdFairness
	case "x-gateway-inference-fairness-id":
		return gatewayFairness
	case "x-tenant-id":
		return tenantID
	case "x-dynamo-worker-instance-id":
		return dynamoWorker
	case "x-dynamo-dp-rank":
		return dynamoRank
	case "x-data-parallel-rank":
		return engineRank
	case "x-override-routed-dp-rank":
		return sglangRank
	case "x-override-disagg-prefill-dp-rank":
		return sglangPrefillRank
	case "x-data-parallel-host-port":
		return rankHost
	case "x-prefiller-host-port":
		return prefillHost
	case "x-override-bootstrap-host":
		return bootstrapHost
	case "x-override-bootstrap-port":
		return bootstrapPort
	case "x-override-bootstrap-room":
		return bootstrapRoom
	case "x-attache-policy":
		return attachePolicy
	case "x-llm-d-model-name-rewrite":
		return llmdModel
	case "x-gateway-model-name-rewrite":
		return gatewayModel
	default:
		return noHeader
	}
}

// Headers gathers what the headers of one request say. The zero value is empty and takes no memory.
type Headers struct{ said []saying }

type saying struct {
	header header
	value  []byte
}

// Add takes a header, if it is a hint. key is in lower case; value must stay as it is until Read.
func (h *Headers) Add(key, value []byte) {
	if of := headerOf(key); of != noHeader {
		h.said = append(h.said, saying{of, value})
	}
}

// Read writes what is believed into hints, which must be empty, and forgets the headers. It returns the names of those to take out
// of the request, because an engine could act on what is not believed; or on what it will be told otherwise, if forward says that
// priorities are.
func (h *Headers) Read(hints *Hints, trust Groups, forward bool) (remove []string) {
	if len(h.said) == 0 {
		return nil
	}
	slices.SortStableFunc(h.said, func(a, b saying) int { return int(a.header) - int(b.header) })
	var ids sessionIDs
	for _, s := range h.said {
		info := &headers[s.header]
		if forward && (s.header == vllmPriority || s.header == sglangPriority) && !slices.Contains(remove, info.name) {
			remove = append(remove, info.name)
		}
		if !trust.Has(info.kind.Group()) {
			hints.Problems.add(info.kind, Untrusted)
			if info.kind.Group()&(GroupPriority|GroupPin) != 0 && !slices.Contains(remove, info.name) {
				remove = append(remove, info.name)
			}
			continue
		}
		if why := hints.header(s, &ids); why != taken {
			hints.Problems.add(info.kind, why)
		}
	}
	ids.settle(hints)
	h.said = nil
	return remove
}

// header reads one header that is believed.
func (h *Hints) header(s saying, ids *sessionIDs) Reason {
	switch s.header {
	case dynamoPriority:
		return h.priority(s.value, FromDynamo, 1)
	case vllmPriority: // lower first
		return h.priority(s.value, FromEngineHeader, -1)
	case sglangPriority:
		return h.priority(s.value, FromEngineHeader, 1)
	case dynamoStrictPriority:
		return h.tier(s.value)
	case llmdObjective, gatewayObjective:
		return keep(&h.Objective, s.value)
	case dynamoPolicyClass:
		return keep(&h.PolicyClass, s.value)
	case dynamoFinal:
		final, why := flag(s.value)
		h.SessionFinal = h.SessionFinal || final
		return why
	case llmdTTFT, oldTTFT:
		return keepSpan(&h.TTFT, s.value)
	case llmdTPOT, oldTPOT:
		return keepSpan(&h.TPOT, s.value)
	case llmdFairness, gatewayFairness:
		return keep(&h.Flow, s.value)
	case tenantID:
		return keep(&h.Tenant, s.value)
	case dynamoWorker:
		return keep(&h.Worker, s.value)
	case dynamoRank, engineRank, sglangRank:
		return h.rank(s.value)
	case attachePolicy:
		return h.policy(s.value)
	case llmdModel, gatewayModel:
		return keep(&h.Model, s.value)
	default:
		return ids.take(s)
	}
}

// keep takes a text unless a better source said one.
func keep(to *string, value []byte) Reason {
	if *to != "" {
		return taken
	}
	s, why := text(value)
	*to = s
	return why
}

// keepSpan takes a number of milliseconds unless a better source said one.
func keepSpan(to *time.Duration, value []byte) Reason {
	if *to != 0 {
		return taken
	}
	d, why := span(value, time.Millisecond, maxSLO)
	*to = d
	return why
}

// priority takes a priority unless a better source said one. sign is -1 where lower numbers are more urgent.
func (h *Hints) priority(value []byte, from Source, sign float64) Reason {
	if h.PriorityFrom != Nowhere {
		return taken
	}
	p, why := number(value, -maxPriority, maxPriority)
	if why != taken {
		return why
	}
	h.Priority, h.PriorityFrom = sign*p, from
	return taken
}

// tier takes a strict priority unless a better source said one.
func (h *Hints) tier(value []byte) Reason {
	if h.strict {
		return taken
	}
	n, why := whole(value, math.MaxUint32)
	if why == taken {
		h.StrictPriority, h.strict = uint32(n), true
	}
	return why
}

func (h *Hints) rank(value []byte) Reason {
	if h.Ranked {
		return taken
	}
	n, why := whole(value, maxRank)
	if why == taken {
		h.Rank, h.Ranked = int(n), true
	}
	return why
}

// policy reads "name;weight=number;…", where the name may be empty: "dynamo;router_temperature=0".
func (h *Hints) policy(value []byte) Reason {
	if h.Policy != "" {
		return taken
	}
	whole, why := text(value)
	if why != taken {
		return why
	}
	name, rest, _ := strings.Cut(whole, ";")
	h.Policy = strings.TrimSpace(name)
	for part := range strings.SplitSeq(rest, ";") {
		key, digits, _ := strings.Cut(strings.TrimSpace(part), "=")
		var to *Number
		switch key {
		case "":
			continue
		case "overlap_score_credit":
			to = &h.Weights.OverlapScoreCredit
		case "prefill_load_scale":
			to = &h.Weights.PrefillLoadScale
		case "router_temperature":
			to = &h.Weights.RouterTemperature
		default:
			h.Problems.add(Weight, Unknown)
			continue
		}
		f, why := number([]byte(digits), 0, maxWeight)
		if why != taken {
			h.Problems.add(Weight, why)
			continue
		}
		*to = Number{f, true}
	}
	return taken
}

// sessionIDs are the names that different owners give sessions. Only one owner is asked: a parent belongs to its own child.
type sessionIDs struct{ text [sessionToken + 1]string }

func (ids *sessionIDs) take(s saying) Reason {
	if s.header > sessionToken {
		return taken // a pin that is left to engines
	}
	return keep(&ids.text[s.header], s.value)
}

// settle names the session. Agents of one run have ids of their own in Claude Code, and threads in Codex: the run is the program.
func (ids *sessionIDs) settle(h *Hints) {
	t := &ids.text
	is := func(from Source, session, parent, program string) {
		h.Session, h.SessionFrom, h.ParentSession, h.Program = session, from, parent, program
		if parent == session {
			h.ParentSession = ""
		}
	}
	switch {
	case t[dynamoSession] != "":
		is(FromDynamo, t[dynamoSession], t[dynamoParent], "")
	case t[claudeAgent] != "":
		parent := t[claudeParent]
		if parent == "" {
			parent = t[claudeSession]
		}
		is(FromClaudeCode, t[claudeAgent], parent, t[claudeSession])
	case t[claudeSession] != "":
		is(FromClaudeCode, t[claudeSession], "", t[claudeSession])
	case t[codexThread] != "":
		is(FromCodex, t[codexThread], t[codexParent], cmp.Or(t[codexSession], t[codexOldSession]))
	case t[codexSession] != "" || t[codexOldSession] != "":
		session := cmp.Or(t[codexSession], t[codexOldSession])
		is(FromCodex, session, t[codexParent], session)
	case t[openCodeSession] != "":
		is(FromOpenCode, t[openCodeSession], t[plainParent], "")
	case t[plainSession] != "":
		is(FromHeader, t[plainSession], t[plainParent], "")
	case t[routingKey] != "":
		is(FromHeader, t[routingKey], "", "")
	case t[sessionToken] != "":
		is(FromToken, t[sessionToken], "", "")
	}
}
