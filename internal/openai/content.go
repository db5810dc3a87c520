package openai

import "bytes"

// part reads a value as a part: a string as text, any other but null as raw JSON. The zero Part stands for null.
func (s *scanner) part(kind PartKind) Part {
	switch s.peek() {
	case '"':
		contents, form := s.str()
		return Part{kind, form, contents}
	case 'n':
		s.skip()
		return Part{}
	default:
		return Part{kind, Raw, s.skip()}
	}
}

// content reads the content of a message: a string, a list of content parts, or null.
func (r *Request) content(s *scanner) section {
	from := len(r.Parts)
	if s.peek() != '[' {
		p := s.part(Text)
		if p.Form == Raw {
			p.Kind = Media
		}
		r.add(p)
		return section{from, len(r.Parts)}
	}
	s.open('[')
	for more := s.element(true); more; more = s.element(false) {
		switch s.peek() {
		case '{':
			r.contentPart(s)
		case '"':
			r.add(s.part(Text))
		default:
			r.add(s.part(Media))
		}
	}
	return section{from, len(r.Parts)}
}

func (r *Request) add(p Part) {
	if p.Kind != 0 {
		r.Parts = append(r.Parts, p)
	}
}

// contentPart reads one object of a content list. Text is text in whichever API ("text", "input_text", "output_text");
// Anthropic's blocks for thinking, tool use and its result become what they are in OpenAI's messages; of everything else
// the longest member is taken for the medium. Markers such as cache_control change nothing in a prompt and move from turn
// to turn.
func (r *Request) contentPart(s *scanner) {
	from := len(r.Parts)
	var kind, text, thought, name, input, callID, medium Part
	s.open('{')
	for key, more := s.member(true); more; key, more = s.member(false) {
		switch string(key) {
		case "type":
			kind = s.part(Role)
		case "text":
			text = s.part(Text)
		case "thinking":
			thought = s.part(Reasoning)
		case keyName:
			name = s.part(ToolName)
		case keyInput:
			input = s.part(ToolArguments)
		case "tool_use_id":
			callID = s.part(CallID)
		case "content":
			r.Parts = r.Parts[:from]
			r.content(s)
		case "cache_control":
			s.skip()
		default:
			if value := s.skip(); value.Len() > medium.Span.Len() {
				medium = Part{Media, Raw, value}
			}
		}
	}
	switch word := s.word(kind); {
	case bytes.HasSuffix(word, []byte("text")), kind.Kind == 0 && text.Kind != 0:
		r.Parts = r.Parts[:from]
		r.add(text)
	case bytes.HasSuffix(word, []byte("tool_use")):
		r.add(name)
		r.add(input)
	case bytes.HasSuffix(word, []byte("tool_result")):
		r.add(callID)
	case string(word) == "thinking":
		r.add(thought)
	default:
		r.add(medium)
	}
}

// word is the text of a short string; nil when it is none. It is valid until the next key is read.
func (s *scanner) word(p Part) []byte {
	switch p.Form {
	case Plain:
		return p.Span.In(s.b)
	case Raw:
		return nil
	default:
		n, _ := unescape(s.key[:], p.Span.In(s.b))
		return s.key[:n]
	}
}

// toolCalls reads the list of calls that an assistant's message makes.
func (r *Request) toolCalls(s *scanner) section {
	from := len(r.Parts)
	if s.peek() != '[' {
		s.skip()
		return section{}
	}
	s.open('[')
	for more := s.element(true); more; more = s.element(false) {
		if s.peek() != '{' {
			s.skip()
			continue
		}
		at := len(r.Parts)
		s.open('{')
		for key, more := s.member(true); more; key, more = s.member(false) {
			if string(key) != "function" {
				s.skip()
				continue
			}
			r.Parts = r.Parts[:at]
			r.functionCall(s)
		}
	}
	return section{from, len(r.Parts)}
}

// functionCall reads what is called with which arguments. Arguments are a string of JSON; some clients send JSON itself.
func (r *Request) functionCall(s *scanner) section {
	if s.peek() != '{' {
		s.skip()
		return section{}
	}
	from := len(r.Parts)
	var name, arguments Part
	s.open('{')
	for key, more := s.member(true); more; key, more = s.member(false) {
		switch string(key) {
		case keyName:
			name = s.part(ToolName)
		case "arguments":
			arguments = s.part(ToolArguments)
		default:
			s.skip()
		}
	}
	r.add(name)
	r.add(arguments)
	return section{from, len(r.Parts)}
}
