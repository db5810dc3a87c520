package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// describe writes what a request says, one thing a line, in words that do not depend on how the body spells it.
func describe(r *Request, body []byte) []string {
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	text := func(name string, s Span) {
		if !s.Empty() {
			say("%s %s", name, AppendUnescaped(nil, body, s))
		}
	}
	if m := r.ModelText(body); m != "" {
		say("model %s", m)
	}
	if r.Stream {
		say("stream")
	}
	if r.IncludeUsage {
		say("usage")
	}
	if r.MaxTokens != 0 {
		say("max %d", r.MaxTokens)
	}
	if r.Priority != 0 {
		say("priority %d", r.Priority)
	}
	text("salt", r.CacheSalt)
	text("user", r.User)
	text("cache key", r.PromptCacheKey)
	text("session", r.SessionID)
	text("safety", r.Aside.SafetyID)
	for _, raw := range []struct {
		name string
		span Span
	}{{"extension", r.Aside.Extension}, {"metadata", r.Aside.Metadata}, {"arguments", r.Aside.Arguments}, {"given priority", r.Aside.Priority},
		{"given rank", r.Aside.Rank}} {
		if !raw.span.Empty() {
			say("%s %s", raw.name, compact(raw.span.In(body)))
		}
	}
	if !r.Tools.Empty() {
		say("tools %s", compact(r.Tools.In(body)))
	}
	for _, raw := range []struct {
		name string
		span Span
	}{{"documents", r.Template.Documents}, {"kwargs", r.Template.Kwargs}} {
		if !raw.span.Empty() {
			say("%s %s", raw.name, compact(raw.span.In(body)))
		}
	}
	text("template", r.Template.Own)
	text("effort", r.Template.ReasoningEffort)
	if choices := [3]Choice{r.Template.GenerationPrompt, r.Template.ContinueFinal, r.Template.SpecialTokens}; choices != [3]Choice{} {
		say("choices %d", choices)
	}
	if r.Template.Truncated {
		say("truncated")
	}
	if r.Turns != 0 {
		say("turns %d", r.Turns)
	}
	for _, p := range r.Parts {
		say("%s", describePart(p, body))
	}
	return lines
}

var partNames = map[PartKind]string{
	Role: "role", SystemRole: "system role", UserRole: "user role", Name: "name", CallID: "call", Reasoning: "reasoning",
	Text: "text", Media: "media", ToolName: "tool", ToolArguments: "arguments", Prompt: "prompt", TokenIDs: "ids",
}

func describePart(p Part, body []byte) string {
	line := partNames[p.Kind]
	switch {
	case p.Kind == Media && p.Form == Raw:
		// Which member of an object is the medium depends on the spelling.
	case p.Form == Raw:
		line += " raw " + compact(p.Span.In(body))
	case p.Kind != SystemRole && p.Kind != UserRole:
		line += " " + string(AppendUnescaped(nil, body, p.Span))
	}
	return line
}

func compact(raw []byte) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return "not JSON: " + err.Error()
	}
	return b.String()
}
