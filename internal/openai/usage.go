package openai

// Usage is what an answer says it cost.
type Usage struct {
	// PromptTokens counts the whole prompt, what came from a cache included.
	PromptTokens int
	// CompletionTokens counts what was generated.
	CompletionTokens int
	// CachedTokens counts the tokens of the prompt that came from the engine's prefix cache.
	CachedTokens int
	// HasCached says that the engine told CachedTokens. Without it the cache may be off, not reported, or have given
	// nothing: engines leave the figure out in all three cases.
	HasCached bool
}

// UsageOf reads the usage of an answer or of one event of a stream: of chat completions and completions
// (prompt_tokens), of the Responses API (input_tokens, in its events inside "response"), and of Anthropic's messages
// (input_tokens, which there leaves out what was read from and written to the cache; in message_start inside "message").
// ok is false when the body holds no usage, or is not JSON.
func UsageOf(body []byte) (u Usage, ok bool) {
	s := scanner{b: body}
	if s.peek() != '{' {
		return Usage{}, false
	}
	var inner Usage
	var has, hasInner bool
	s.open('{')
	for key, more := s.member(true); more; key, more = s.member(false) {
		switch string(key) {
		case "usage":
			u, has = s.usage()
		case "response", "message":
			inner, hasInner = s.wrapped()
		default:
			s.skip()
		}
	}
	s.end()
	switch {
	case s.err != nil:
		return Usage{}, false
	case has:
		return u, true
	default:
		return inner, hasInner
	}
}

// wrapped reads the usage member of an object.
func (s *scanner) wrapped() (u Usage, ok bool) {
	if s.peek() != '{' {
		s.skip()
		return Usage{}, false
	}
	s.open('{')
	for key, more := s.member(true); more; key, more = s.member(false) {
		if string(key) == "usage" {
			u, ok = s.usage()
		} else {
			s.skip()
		}
	}
	return u, ok
}

func (s *scanner) usage() (u Usage, ok bool) {
	if s.peek() != '{' {
		s.skip()
		return Usage{}, false
	}
	var prompt, completion, details, read, written count
	s.open('{')
	for key, more := s.member(true); more; key, more = s.member(false) {
		switch string(key) {
		case "prompt_tokens", "input_tokens":
			prompt = s.count()
		case "completion_tokens", "output_tokens":
			completion = s.count()
		case "prompt_tokens_details", "input_tokens_details":
			details = s.details()
		case "cache_read_input_tokens":
			read = s.count()
		case "cache_creation_input_tokens":
			written = s.count()
		default:
			s.skip()
		}
	}
	return Usage{
		PromptTokens:     prompt.n + read.n + written.n,
		CompletionTokens: completion.n,
		CachedTokens:     details.n + read.n, // no API has both
		HasCached:        details.known || read.known,
	}, prompt.known || completion.known
}

// details reads cached_tokens of the details of a prompt, which may be null.
func (s *scanner) details() (cached count) {
	if s.peek() != '{' {
		s.skip()
		return count{}
	}
	s.open('{')
	for key, more := s.member(true); more; key, more = s.member(false) {
		if string(key) == "cached_tokens" {
			cached = s.count()
		} else {
			s.skip()
		}
	}
	return cached
}

// count is a number of tokens; null and other types are not known.
type count struct {
	n     int
	known bool
}

func (s *scanner) count() count {
	n, ok := s.integer()
	return count{max(n, 0), ok}
}

// Update takes over what a later event of the same stream knows. Anthropic's streams tell the prompt first and the answer
// last, engines that report continuously tell everything again and again.
func (u *Usage) Update(later Usage) {
	if later.PromptTokens > 0 {
		u.PromptTokens = later.PromptTokens
	}
	if later.CompletionTokens > 0 {
		u.CompletionTokens = later.CompletionTokens
	}
	if later.HasCached {
		u.CachedTokens, u.HasCached = later.CachedTokens, true
	}
}
