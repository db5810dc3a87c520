package openai

import "strconv"

// Keys that are named more than once.
const (
	keyMessages = "messages"
	keyInput    = "input"
	keyName     = "name"
)

// prompt reads a member that belongs to the prompt in this kind of request, and passes all others.
func (r *Request) prompt(s *scanner, key []byte) {
	k := r.Kind
	switch string(key) {
	case keyMessages:
		switch k {
		case Chat, Messages:
			r.messages(s, keyMessages)
			return
		case Embeddings:
			r.embedded = s.peek() != 'n'
		}
	case "system":
		if k == Messages {
			r.instructions(s)
			return
		}
	case "instructions":
		if k == Responses {
			r.instructions(s)
			return
		}
	case keyInput:
		switch k {
		case Responses:
			r.input(s)
			return
		case Embeddings:
			r.prompts(s, keyInput)
			return
		}
	case "prompt":
		if k == Completions {
			r.prompts(s, "prompt")
			return
		}
	case "prompt_embeds":
		r.embedded = k == Completions && s.peek() != 'n'
	}
	s.skip()
}

// null passes a null and reports whether there was one.
func (s *scanner) null() bool {
	if s.peek() != 'n' {
		return false
	}
	s.skip()
	return true
}

// messages reads the list of messages, or of input items, which are a superset. A key that repeats replaces what was
// read before.
func (r *Request) messages(s *scanner, field string) {
	r.main, r.Turns, r.wrongPrompt, r.Template.Messages = section{}, 0, nil, Span{}
	if s.null() {
		return
	}
	if s.peek() != '[' {
		r.mistyped(s, field, "must be an array")
		return
	}
	from, raw := len(r.Parts), s.i
	s.open('[')
	for more := s.element(true); more; more = s.element(false) {
		switch {
		case s.peek() == '{':
			r.message(s)
		case r.wrongPrompt == nil:
			r.mistyped(s, field+"["+strconv.Itoa(r.Turns)+"]", "must be an object")
		default:
			s.skip()
		}
		r.Turns++
	}
	r.main = section{from, len(r.Parts)}
	if r.Kind == Chat {
		r.Template.Messages = Span{raw, s.i}
	}
}

// mistyped passes a value of the prompt that no engine takes. The error is kept until it is known that no later member
// replaces the prompt, and that the rest of the body is JSON.
func (r *Request) mistyped(s *scanner, field, want string) {
	from := s.i
	s.skip()
	if r.wrongPrompt == nil {
		r.wrongPrompt = &FieldError{Field: field, Offset: from, Want: want}
	}
}

// message reads one message of a chat, of Anthropic's or of the Responses API: they share their members. What it holds
// becomes parts in the order of PartKind. Where two members mean the same, null in one leaves the other alone: clients
// send back whole answers, and those name everything.
func (r *Request) message(s *scanner) {
	head := len(r.Parts)
	r.Parts = append(r.Parts, Part{Kind: Role})
	var content, output, calls, call section
	var role, kind, name, chatCall, itemCall, reasoning, thought, arguments Part
	s.open('{')
	for key, more := s.member(true); more; key, more = s.member(false) {
		switch string(key) {
		case "role":
			role = s.part(Role)
		case "content":
			content = r.content(s)
		case "tool_calls":
			calls = r.toolCalls(s)
		case "tool_call_id":
			chatCall = s.part(CallID)
		case keyName:
			name = s.part(Name)
		case "reasoning_content":
			reasoning = s.part(Reasoning)
		case "reasoning":
			thought = s.part(Reasoning)
		case "function_call": // before there were tools
			call = r.functionCall(s)
		case "type": // this and the rest: items of the Responses API
			kind = s.part(Role)
		case "call_id":
			itemCall = s.part(CallID)
		case "arguments":
			arguments = s.part(ToolArguments)
		case "output":
			output = r.content(s)
		default:
			s.skip()
		}
	}
	role = role.or(kind)
	role.Kind = Role
	r.Parts[head] = role
	from := len(r.Parts)
	r.add(name)
	r.add(chatCall.or(itemCall))
	r.add(reasoning.or(thought))
	to := len(r.Parts)
	r.add(arguments)
	r.arrange(head, section{head, head + 1}, section{from, to}, content, output, calls, call, section{to, len(r.Parts)})
}

// or is p, or other if p is nothing.
func (p Part) or(other Part) Part {
	if p.Kind == 0 {
		return other
	}
	return p
}

// instructions reads a system prompt that stands beside the messages.
func (r *Request) instructions(s *scanner) {
	r.lead = section{}
	if s.null() {
		return
	}
	from := len(r.Parts)
	r.Parts = append(r.Parts, Part{Kind: SystemRole})
	r.content(s)
	r.lead = section{from, len(r.Parts)}
}

// input reads the input of a Responses request: one text of the user, or a list of items.
func (r *Request) input(s *scanner) {
	if s.peek() != '"' {
		r.messages(s, keyInput)
		return
	}
	r.wrongPrompt = nil
	from := len(r.Parts)
	r.Parts = append(r.Parts, Part{Kind: UserRole}, s.part(Text))
	r.main, r.Turns = section{from, from + 2}, 1
}
