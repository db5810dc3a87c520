package openai

// Scan reads a request body of the given kind into r. The whole body is checked: what Scan accepts is one JSON object
// that a strict parser accepts too, but for nesting deeper than 128, and bytes in strings that are not UTF-8 are let
// through. Errors are *SyntaxError, or *FieldError when the model or the prompt has a type that no engine takes; r is
// then not to be used.
func Scan(r *Request, kind Kind, body []byte) error {
	r.reset(kind)
	s := scanner{b: body}
	if s.peek() != '{' {
		s.unexpected("'{' at the beginning of a JSON object")
	}
	s.open('{')
	r.edits.top = object{inside: s.i, empty: true}
	for key, more := s.member(true); more; key, more = s.member(false) {
		r.edits.top.empty = false
		r.field(&s, key)
	}
	s.end()
	if s.err != nil {
		return s.err
	}
	return r.finish()
}

const (
	// ExtensionKey is the member that some clients send and some engines refuse.
	ExtensionKey = "nvext"
	// PriorityKey is the member by which engines order their queue, each by its own scale.
	PriorityKey = "priority"
	// RankKey chooses SGLang's data-parallel rank; OldRankKey is what it was called.
	RankKey    = "routed_dp_rank"
	OldRankKey = "data_parallel_rank"
)

// field reads one member of the body. Members whose type is wrong count as absent where engines may differ.
func (r *Request) field(s *scanner, key []byte) {
	switch string(key) {
	case "model":
		r.model(s)
	case "stream":
		r.Stream = s.flag()
	case "stream_options":
		r.edits.options.scan(s)
	case "max_tokens", "max_output_tokens":
		r.MaxTokens = s.limit()
	case "max_completion_tokens":
		r.maxNew = s.limit()
	case PriorityKey:
		r.Aside.Priority = s.given()
		r.Priority, _ = integer(r.Aside.Priority.In(s.b))
	case RankKey:
		r.Aside.Rank = s.given()
	case OldRankKey:
		r.oldRank = s.given()
	case "user":
		r.User = s.text()
	case "prompt_cache_key":
		r.PromptCacheKey = s.text()
	case "session_id":
		r.SessionID = s.text()
	case "cache_salt":
		r.CacheSalt = s.salt()
	case "tools":
		r.Tools = s.array()
	case "tool_choice":
		r.Template.ToolChoice = s.skip()
	case ExtensionKey:
		r.Extended = true
		r.Aside.Extension = s.object()
	case "metadata":
		r.Aside.Metadata = s.object()
	case "vllm_xargs":
		r.Aside.Arguments = s.object()
	case "safety_identifier":
		r.Aside.SafetyID = s.text()
	case "documents":
		r.Template.Documents = s.array()
	case "chat_template_kwargs":
		r.Template.Kwargs = s.object()
	case "chat_template":
		r.Template.Own = s.text()
	case "reasoning_effort":
		r.Template.ReasoningEffort = s.text()
	case "add_generation_prompt":
		r.Template.GenerationPrompt = s.choice()
	case "continue_final_message":
		r.Template.ContinueFinal = s.choice()
	case "add_special_tokens":
		r.Template.SpecialTokens = s.choice()
	case "truncate_prompt_tokens":
		n, ok := s.integer()
		r.Template.Truncated = ok && n != 0
	default:
		r.prompt(s, key)
	}
}

// object reads an object as raw JSON; every other value is passed and counts as absent.
func (s *scanner) object() Span {
	c := s.peek()
	raw := s.skip()
	if c != '{' || s.err != nil {
		return Span{}
	}
	return raw
}

// given reads a value of any type as raw JSON; null counts as absent.
func (s *scanner) given() Span {
	c := s.peek()
	raw := s.skip()
	if c == 'n' || s.err != nil {
		return Span{}
	}
	return raw
}

// choice reads true or false; every other value is passed and counts as left open.
func (s *scanner) choice() Choice {
	switch string(s.skip().In(s.b)) {
	case literalTrue:
		return Yes
	case "false":
		return No
	default:
		return Open
	}
}

// model reads the model's name; null is as good as absent.
func (r *Request) model(s *scanner) {
	c, from := s.peek(), s.i
	r.Model, r.wrongModel = s.text(), nil
	r.edits.model = Span{from, s.i}
	if c != '"' && c != 'n' {
		r.wrongModel = &FieldError{Field: "model", Offset: from, Want: "must be a string"}
	}
}

// limit reads a number of tokens; 0 for what is none.
func (s *scanner) limit() int {
	n, _ := s.integer()
	return max(n, 0)
}

// salt reads a string, or any other value but null as raw JSON.
func (s *scanner) salt() Span {
	switch s.peek() {
	case '"':
		contents, _ := s.str()
		return contents
	case 'n':
		s.skip()
		return Span{}
	default:
		return s.skip()
	}
}

// array reads an array as raw JSON; an empty one and every other value are passed and count as absent.
func (s *scanner) array() Span {
	c := s.peek()
	raw := s.skip()
	if c != '[' || s.err != nil {
		return Span{}
	}
	inside := scanner{b: s.b, i: raw.From}
	inside.open('[')
	if inside.take(']') {
		return Span{}
	}
	return raw
}

// finish settles what depends on several members.
func (r *Request) finish() error {
	switch {
	case r.wrongModel != nil:
		return r.wrongModel
	case r.wrongPrompt != nil:
		return r.wrongPrompt
	}
	if r.maxNew > 0 {
		r.MaxTokens = r.maxNew
	}
	if r.Aside.Rank.Empty() {
		r.Aside.Rank = r.oldRank
	}
	r.IncludeUsage = r.edits.options.usage == usageOn
	if r.Kind == Responses || r.Kind == Messages {
		r.IncludeUsage = true
	}
	r.arrange(0, r.lead, r.main)
	return nil
}

// arrange makes the parts from index from on those of the sections, in their order. Members of a body may stand in any
// order and may be repeated, so sections may be in another order or have dead parts between them; usually not.
func (r *Request) arrange(from int, sections ...section) {
	at, orderly := from, true
	for _, sec := range sections {
		if sec.from != sec.to {
			orderly = orderly && sec.from == at
			at = sec.to
		}
	}
	if orderly {
		r.Parts = r.Parts[:at]
		return
	}
	r.spare = r.spare[:0]
	for _, sec := range sections {
		r.spare = append(r.spare, r.Parts[sec.from:sec.to]...)
	}
	r.Parts = append(r.Parts[:from], r.spare...)
}
