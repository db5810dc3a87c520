package hints

import (
	"bytes"
	"cmp"
	"time"

	"attache/internal/openai"
)

// ReadBody adds what the body says to what the headers said, which wins. r is the scan of body; both may be forgotten afterwards.
func (h *Hints) ReadBody(r *openai.Request, body []byte, trust Groups) {
	if said(r, trust) {
		h.readBody(r, body, trust)
	}
}

// said reports whether anything is to be read. Who the user is counts only when it is believed: clients say it to OpenAI, and it is
// no hint then.
func said(r *openai.Request, trust Groups) bool {
	a := &r.Aside
	return !a.Extension.Empty() || !a.Arguments.Empty() || !a.Priority.Empty() || !a.Rank.Empty() || !r.PromptCacheKey.Empty() ||
		!r.SessionID.Empty() || !a.Metadata.Empty() && trust.Has(GroupSession) ||
		(!r.User.Empty() || !a.SafetyID.Empty()) && trust.Has(GroupTenant)
}

func (h *Hints) readBody(r *openai.Request, body []byte, trust Groups) {
	b := reading{trust: trust}
	a := &r.Aside
	if !a.Extension.Empty() {
		b.extension(a.Extension.In(body))
	}
	if !a.Arguments.Empty() {
		b.arguments(a.Arguments.In(body))
	}
	if !a.Metadata.Empty() {
		b.metadata(a.Metadata.In(body))
	}
	b.member(r, body)
	if b.said {
		h.fill(&b.Hints)
	}
}

// reading is what a body says. Of members that repeat the last one counts, as engines read them.
type reading struct {
	Hints

	trust Groups
	said  bool // anything at all
}

// believes reports whether a member of this kind is to be read.
func (b *reading) believes(k Kind) bool {
	b.said = true
	if b.trust.Has(k.Group()) {
		return true
	}
	b.Problems.add(k, Untrusted)
	return false
}

// note keeps why a member was not taken.
func (b *reading) note(k Kind, why Reason) {
	if why != taken {
		b.Problems.add(k, why)
	}
}

// text reads a member that is a JSON string.
func (b *reading) text(k Kind, to *string, raw []byte) {
	b.named(k, to, raw, jsonText)
}

func (b *reading) named(k Kind, to *string, raw []byte, read func([]byte) (string, Reason)) {
	if b.believes(k) {
		s, why := read(raw)
		b.note(k, why)
		*to = s
	}
}

// absent is null, which is as good as no member.
func absent(raw []byte) bool { return string(raw) == "null" }

// extension reads nvext (Dynamo's NvExt).
func (b *reading) extension(raw []byte) {
	var instance, decode string
	for key, value := range openai.Members(raw) {
		if absent(value) {
			continue
		}
		switch string(key) {
		case "agent_hints":
			b.agentHints(value)
		case "agent_context":
			b.agentContext(value)
		case "cache_control":
			if b.believes(CacheTTL) {
				b.cacheControl(value)
			}
		case "cache_salt":
			b.text(Tenant, &b.Tenant, value)
		case "backend_instance_id":
			b.named(Worker, &instance, value, name)
		case "decode_worker_id":
			b.named(Worker, &decode, value, name)
		case "dp_rank":
			b.rank(value)
		case "routing_constraints":
			if b.believes(Taints) {
				b.constraints(value)
			}
		}
	}
	b.Worker = cmp.Or(instance, decode)
}

func (b *reading) rank(raw []byte) {
	if b.believes(Rank) {
		b.Ranked = false
		b.note(Rank, b.Hints.rank(raw))
	}
}

func (b *reading) agentHints(raw []byte) {
	for key, value := range openai.Members(raw) {
		if absent(value) {
			continue
		}
		switch string(key) {
		case "priority":
			if b.believes(Priority) {
				b.PriorityFrom = Nowhere
				b.note(Priority, b.priority(value, FromExtension, 1))
			}
		case "strict_priority":
			if b.believes(StrictPriority) {
				b.strict = false
				b.note(StrictPriority, b.tier(value))
			}
		case "osl":
			b.outputTokens(value)
		case "speculative_prefill":
			if b.believes(SpeculativePrefill) {
				on, why := flag(value)
				b.SpeculativePrefill = on
				b.note(SpeculativePrefill, why)
			}
		}
	}
}

func (b *reading) outputTokens(raw []byte) {
	if b.believes(OutputTokens) {
		n, why := whole(raw, MaxOutputTokens)
		b.OutputTokens = int(n)
		b.note(OutputTokens, why)
	}
}

// agentContext reads who asks: a trajectory is one chain of reasoning in a session, which is the whole run. Without
// trajectories the session is the chain.
func (b *reading) agentContext(raw []byte) {
	var session, trajectory string
	for key, value := range openai.Members(raw) {
		if absent(value) {
			continue
		}
		switch string(key) {
		case "session_id":
			b.text(Session, &session, value)
		case "trajectory_id":
			b.text(Session, &trajectory, value)
		case "parent_trajectory_id", "parent_session_id":
			b.text(ParentSession, &b.ParentSession, value)
		case "session_type_id":
			b.text(ContextType, &b.ContextType, value)
		}
	}
	b.Session = cmp.Or(trajectory, session)
	if b.Session != "" {
		b.SessionFrom = FromExtension
	}
	if trajectory != "" {
		b.Program = session
	}
}

// cacheControl reads Anthropic's {"type":"ephemeral","ttl":"5m"}.
func (b *reading) cacheControl(raw []byte) {
	kind, keep := "", defaultTTL
	for key, value := range openai.Members(raw) {
		var why Reason
		switch string(key) {
		case "type":
			kind, why = jsonText(value)
		case "ttl":
			if !absent(value) {
				keep, why = ttl(value)
			}
		}
		b.note(CacheTTL, why)
	}
	if kind != "ephemeral" {
		b.note(CacheTTL, Unknown)
		return
	}
	b.CacheTTL = keep
}

// constraints reads taints. A list of required ones that is not understood whole is not taken at all: a part of it would
// let workers pass that the client ruled out.
func (b *reading) constraints(raw []byte) {
	for key, value := range openai.Members(raw) {
		if absent(value) {
			continue
		}
		switch string(key) {
		case "required_taints":
			b.Required = [MaxTaints]string{}
			if why := b.required(value); why != taken {
				b.Required = [MaxTaints]string{}
				b.note(Taints, why)
			}
		case "preferred_taints":
			b.Preferred = [MaxTaints]Taint{}
			b.preferred(value)
		}
	}
}

func (b *reading) required(raw []byte) Reason {
	if raw[0] != '[' {
		return WrongType
	}
	n := 0
	for value := range openai.Elements(raw) {
		taint, why := jsonText(value)
		switch {
		case why != taken:
			return why
		case taint == "":
			return Unknown
		case n == MaxTaints:
			return TooMany
		}
		b.Required[n] = taint
		n++
	}
	return taken
}

func (b *reading) preferred(raw []byte) {
	n := 0
	for key, value := range openai.Members(raw) {
		taint, why := text(key)
		weight, bad := number(value, -maxWeight, maxWeight)
		switch why = max(why, bad); {
		case why != taken:
			b.note(Taints, why)
		case n == MaxTaints:
			b.note(Taints, TooMany)
			return
		case taint != "":
			b.Preferred[n] = Taint{taint, weight}
			n++
		}
	}
}

// arguments reads vLLM's vllm_xargs: its session_id, and the agentic_context of the vLLM router. That one's priority is not read:
// its scale is not told.
func (b *reading) arguments(raw []byte) {
	for key, value := range openai.Members(raw) {
		if absent(value) {
			continue
		}
		switch string(key) {
		case "session_id":
			b.session(value, FromMember)
		case "agentic_context":
			b.agenticContext(value)
		}
	}
}

// session reads a session's name unless a better source said one.
func (b *reading) session(raw []byte, from Source) {
	if b.Session != "" {
		return
	}
	b.text(Session, &b.Session, raw)
	if b.Session != "" {
		b.SessionFrom = from
	}
}

func (b *reading) agenticContext(raw []byte) {
	for key, value := range openai.Members(raw) {
		if absent(value) {
			continue
		}
		switch string(key) {
		case "program_id":
			b.text(Program, &b.Program, value)
		case "deadline_seconds":
			if b.believes(Deadline) {
				d, why := span(value, time.Second, maxDeadline)
				b.Deadline = d
				b.note(Deadline, why)
			}
		case "expected_output_length":
			if b.OutputTokens == 0 {
				b.outputTokens(value)
			}
		case "kv_retention_ttl_seconds":
			if b.CacheTTL == 0 && b.believes(CacheTTL) {
				d, why := span(value, time.Second, maxTTL)
				b.CacheTTL = d
				b.note(CacheTTL, why)
			}
		}
	}
}

// metadata reads the session that Claude Code hides in Anthropic's user_id, and the session_id that other gateways look for here.
// Applications keep texts of their own in it: what is none of ours is no mistake.
func (b *reading) metadata(raw []byte) {
	if !b.trust.Has(GroupSession) {
		return
	}
	for key, value := range openai.Members(raw) {
		session, from := "", Nowhere
		switch string(key) {
		case "user_id":
			session, from = claudeCodeSession(value), FromClaudeCode
		case "session_id":
			session, _ = jsonText(value)
			from = FromMetadata
		}
		if session != "" && b.Session == "" {
			b.Session, b.SessionFrom, b.said = session, from, true
		}
	}
}

// claudeCodeSession takes the session out of "user_…_account_…_session_<id>", or out of JSON in the string with the member
// session_id, which later versions write. "" when there is none.
func claudeCodeSession(raw []byte) string {
	id, why := jsonText(raw)
	if why != taken {
		return ""
	}
	if len(id) > 0 && id[0] == '{' {
		session := ""
		for key, value := range openai.Members([]byte(id)) {
			if string(key) == "session_id" {
				session, _ = jsonText(value)
			}
		}
		return session
	}
	_, session, _ := bytes.Cut([]byte(id), []byte("_session_"))
	return string(session)
}

// member reads members of the body that the APIs or engines know themselves.
func (b *reading) member(r *openai.Request, body []byte) {
	if raw := r.Aside.Priority; !raw.Empty() && b.believes(Priority) {
		b.note(Priority, b.priority(raw.In(body), FromMember, 1))
	}
	if raw := r.Aside.Rank; !raw.Empty() && !b.Ranked {
		b.rank(raw.In(body))
	}
	if s := r.PromptCacheKey; !s.Empty() {
		b.named(PromptCacheKey, &b.PromptCacheKey, s.In(body), escapedText)
	}
	if s := r.SessionID; !s.Empty() {
		// What a body calls its session is plainer than what stands in metadata.
		if b.SessionFrom != FromExtension {
			b.Session, b.SessionFrom = "", Nowhere
		}
		if b.Session == "" {
			b.named(Session, &b.Session, s.In(body), escapedText)
		}
		if b.Session != "" && b.SessionFrom == Nowhere {
			b.SessionFrom = FromMember
		}
	}
	for _, s := range [...]openai.Span{r.Aside.SafetyID, r.User} {
		if !s.Empty() && b.User == "" && b.trust.Has(GroupTenant) {
			b.named(User, &b.User, s.In(body), escapedText)
		}
	}
}

// fill takes from the body what the headers left open.
func (h *Hints) fill(b *Hints) {
	if h.PriorityFrom == Nowhere {
		h.Priority, h.PriorityFrom = b.Priority, b.PriorityFrom
	}
	if !h.strict {
		h.StrictPriority, h.strict = b.StrictPriority, b.strict
	}
	if h.Session == "" {
		h.Session, h.SessionFrom, h.ParentSession = b.Session, b.SessionFrom, b.ParentSession
	}
	h.Program = cmp.Or(h.Program, b.Program)
	h.ContextType = b.ContextType
	h.PromptCacheKey = b.PromptCacheKey
	h.OutputTokens = b.OutputTokens
	h.Deadline = b.Deadline
	h.CacheTTL = b.CacheTTL
	h.SpeculativePrefill = b.SpeculativePrefill
	h.User = b.User
	h.Tenant = cmp.Or(h.Tenant, b.Tenant)
	h.Worker = cmp.Or(h.Worker, b.Worker)
	if !h.Ranked {
		h.Rank, h.Ranked = b.Rank, b.Ranked
	}
	h.Required, h.Preferred = b.Required, b.Preferred
	for _, p := range b.Problems.All() {
		h.Problems.add(p.Kind, p.Reason)
	}
}
