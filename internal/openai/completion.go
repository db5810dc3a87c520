package openai

const wantPrompt = "must be a string, an array of strings, of token ids, or of arrays of token ids"

// prompts reads the prompt of a completion, or the input of an embedding, in any of its four forms. Embeddings also take
// forms that are not known here (of media): they count as no text.
func (r *Request) prompts(s *scanner, field string) {
	r.wrongPrompt = nil
	from := len(r.Parts)
	switch s.peek() {
	case '"':
		r.Parts = append(r.Parts, s.part(Prompt))
	case '[':
		r.promptList(s, field)
	case 'n':
		s.skip()
	default:
		r.notAPrompt(s, field)
	}
	r.main = section{from, len(r.Parts)}
	r.Turns = len(r.Parts) - from
}

func (r *Request) promptList(s *scanner, field string) {
	at, from := s.i, len(r.Parts)
	ids := false // the list itself is token ids
	s.open('[')
	for more := s.element(true); more; more = s.element(false) {
		switch c := s.peek(); {
		case c == '"' && !ids:
			r.Parts = append(r.Parts, s.part(Prompt))
		case c == '[' && !ids:
			r.Parts = append(r.Parts, Part{TokenIDs, Raw, r.tokenIDs(s, field)})
		case c >= '0' && c <= '9' && len(r.Parts) == from:
			ids = true
			r.tokenID(s, field)
		default:
			r.notAPrompt(s, field)
		}
	}
	if ids && s.err == nil {
		r.Parts = append(r.Parts, Part{TokenIDs, Raw, Span{at, s.i}})
	}
}

func (r *Request) tokenIDs(s *scanner, field string) Span {
	at := s.i
	s.open('[')
	for more := s.element(true); more; more = s.element(false) {
		if c := s.peek(); c >= '0' && c <= '9' {
			r.tokenID(s, field)
		} else {
			r.notAPrompt(s, field)
		}
	}
	return Span{at, s.i}
}

// tokenID passes an unsigned integer.
func (r *Request) tokenID(s *scanner, field string) {
	from := s.i
	if s.b[s.i] == '0' {
		s.i++
	} else {
		s.digits()
	}
	if s.i < len(s.b) && (s.b[s.i] == '.' || s.b[s.i]|0x20 == 'e') {
		s.i = from
		r.notAPrompt(s, field)
	}
}

func (r *Request) notAPrompt(s *scanner, field string) {
	if r.Kind == Embeddings {
		r.embedded = true
		s.skip()
		return
	}
	r.mistyped(s, field, wantPrompt)
}
