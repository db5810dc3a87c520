package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"attache/internal/block"
)

// defaultOutput is the length of an answer, in tokens, when the request does not say.
const defaultOutput = 64

// Why an answer ends, and a request that did not get one.
const (
	finishStop   = "stop" // by itself
	finishLength = "length"
	finishAbort  = "abort"
)

// body is what the simulator reads of a request: chat completions, completions and tokenize in one.
type body struct {
	Model               string          `json:"model"`
	Messages            []message       `json:"messages"`
	Prompt              prompt          `json:"prompt"`
	Tools               json.RawMessage `json:"tools"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	CacheSalt           string          `json:"cache_salt"`
	Stream              bool            `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	AddGenerationPrompt *bool           `json:"add_generation_prompt"`
	SessionID           json.RawMessage `json:"session_id"`
	PromptLogprobs      json.RawMessage `json:"prompt_logprobs"`
	VLLM                json.RawMessage `json:"vllm_xargs"`
}

type message struct {
	Role      string          `json:"role"`
	Content   content         `json:"content"`
	ToolCalls json.RawMessage `json:"tool_calls,omitempty"`
}

// content is the text of a message: a string, nothing, or a list of parts that count as one text. Parts that are not text
// count with their JSON.
type content string

// UnmarshalJSON reads any of the forms.
func (c *content) UnmarshalJSON(raw []byte) error {
	if !bytes.HasPrefix(raw, []byte("[")) {
		return json.Unmarshal(raw, (*string)(c))
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	var text strings.Builder
	for _, raw := range parts {
		var part struct {
			Type string  `json:"type"`
			Text *string `json:"text"`
		}
		if err := json.Unmarshal(raw, &part); err != nil {
			return err
		}
		if part.Type == "text" && part.Text != nil {
			text.WriteString(*part.Text)
		} else {
			text.Write(raw)
		}
	}
	*c = content(text.String())
	return nil
}

// prompt is the prompt of a completion: one text, or the token ids of one. A list of one of them is the same.
type prompt struct {
	text  string
	ids   []uint32
	given bool
}

// UnmarshalJSON reads any of the forms.
func (p *prompt) UnmarshalJSON(raw []byte) error {
	var (
		text  string
		texts []string
		ids   []uint32
		lists [][]uint32
	)
	switch {
	case string(raw) == "null":
		return nil
	case json.Unmarshal(raw, &text) == nil:
		*p = prompt{text: text}
	case json.Unmarshal(raw, &ids) == nil:
		*p = prompt{ids: ids}
	case json.Unmarshal(raw, &texts) == nil && len(texts) == 1:
		*p = prompt{text: texts[0]}
	case json.Unmarshal(raw, &lists) == nil && len(lists) == 1:
		*p = prompt{ids: lists[0]}
	default:
		return errors.New("prompt: must be a string, a list of token ids, or a list of one of them")
	}
	p.given = true
	return nil
}

// apiError is an answer that refuses a request, in vLLM's form: {"error":{"message","type","param","code"}}.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    int     `json:"code"`
}

// Error is the message.
func (e *apiError) Error() string { return e.Message }

func badRequest(param, format string, args ...any) *apiError {
	e := &apiError{Message: fmt.Sprintf(format, args...), Type: "BadRequestError", Code: http.StatusBadRequest}
	if param != "" {
		e.Param = &param
	}
	return e
}

// surface is one of the APIs that take a prompt.
type surface uint8

const (
	chat surface = iota
	completions
	tokenize // either kind of prompt
)

// job is an inference request as it is understood.
type job struct {
	surface      surface
	stream       bool
	includeUsage bool
	prompt       int    // tokens
	output       int    // tokens
	finish       string // why the answer ends there
	words        uint64 // seed of the answer
	chain        []block.Hash
	tokens       []uint32 // of prompt and output, only when they are wanted
	lora, salt   string
	session      string      // as the body says
	lastSession  string      // if neither body nor header do
	report       bool        // what is found in the cache is told of again
	bypass       bool        // nothing of the cache is used
	vocabulary   *vocabulary // of a real model; nil: words are those of the lexicon
}

// readExtras reads what matters to KV events alone. What is not as agreed counts as absent.
func (j *job) readExtras(b *body) {
	text := func(raw json.RawMessage) (s string) {
		_ = json.Unmarshal(raw, &s)
		return s
	}
	var more struct {
		ReportMode json.RawMessage `json:"kv_cache_report_mode"`
		SessionID  json.RawMessage `json:"session_id"`
	}
	_ = json.Unmarshal(b.VLLM, &more)
	j.session, j.lastSession = text(b.SessionID), text(more.SessionID)
	j.report = text(more.ReportMode) == "full"
	j.bypass = len(b.PromptLogprobs) > 0 && string(b.PromptLogprobs) != "null"
}

// word is the nth token of the answer.
func (j *job) word(n int) string {
	if j.vocabulary == nil {
		return word(j.words, n)
	}
	text, _ := j.vocabulary.word(j.words, n)
	return text
}

// lora is the adapter that a request asks for; empty: the model itself.
func (c *Config) lora(b *body) string {
	if b.Model == c.Model {
		return ""
	}
	return b.Model
}

// parseBody reads a request for one surface.
func (c *Config) parseBody(raw []byte, s surface) (*body, error) {
	var b body
	if err := json.Unmarshal(raw, &b); err != nil {
		return nil, badRequest("", "invalid JSON body: %v", err)
	}
	switch {
	case b.Model != "" && b.Model != c.Model && !slices.Contains(c.LoRAs, b.Model):
		param := "model"
		return nil, &apiError{
			Message: fmt.Sprintf("The model `%s` does not exist. It is `%s` that is served here.", b.Model, c.Model),
			Type:    "NotFoundError", Param: &param, Code: http.StatusNotFound,
		}
	case s == chat && len(b.Messages) == 0:
		return nil, badRequest("messages", "messages: must be a list of at least one message")
	case s == completions && !b.Prompt.given:
		return nil, badRequest("prompt", "prompt: is missing")
	case s == tokenize && !b.Prompt.given && len(b.Messages) == 0:
		return nil, badRequest("prompt", "prompt or messages: one of them must be given")
	}
	for i, m := range b.Messages {
		if m.Role == "" {
			return nil, badRequest("messages", "messages[%d].role: must not be empty", i)
		}
	}
	return &b, nil
}

// tokens renders the prompt of a request and returns its tokens, at most limit of them.
func (c *Config) tokens(raw []byte, b *body, limit int, keep bool) (*tokenizer, error) {
	model := c.Model
	if b.Model != "" {
		model = b.Model
	}
	t := newTokenizer(c.BlockTokens, block.Seed(model, b.CacheSalt), limit)
	t.keep = keep
	if c.vocabulary != nil {
		ids, err := c.vocabulary.tokens(raw, b)
		if err != nil {
			return nil, err
		}
		b.Prompt.ids, b.Messages = ids, nil
	}
	switch {
	case len(b.Messages) > 0:
		t.conversation(string(b.Tools), b.Messages, b.AddGenerationPrompt == nil || *b.AddGenerationPrompt)
	case len(b.Prompt.ids) > 0:
		for _, id := range b.Prompt.ids {
			t.add(id)
		}
	default:
		t.text(b.Prompt.text)
	}
	return t, nil
}

// parse understands an inference request.
func (c *Config) parse(raw []byte, s surface) (*job, error) {
	b, err := c.parseBody(raw, s)
	if err != nil {
		return nil, err
	}
	j := &job{surface: s, lora: c.lora(b), salt: b.CacheSalt, stream: b.Stream, includeUsage: b.StreamOptions.IncludeUsage, output: defaultOutput, finish: finishStop,
		vocabulary: c.vocabulary}
	j.readExtras(b)
	for _, limit := range []*int{b.MaxTokens, b.MaxCompletionTokens} {
		if limit != nil {
			j.output, j.finish = *limit, finishLength
		}
	}
	if j.output < 1 {
		return nil, badRequest("max_tokens", "max_tokens: %d: must be at least 1", j.output)
	}
	window := c.window()
	t, err := c.tokens(raw, b, window-1, c.records())
	if err != nil {
		return nil, err
	}
	if t.n == 0 {
		return nil, badRequest("prompt", "prompt: must not be empty")
	}
	j.prompt = t.n
	if room := window - j.prompt; j.output > room {
		j.output, j.finish = room, finishLength
	}
	j.words = scramble(t.mix ^ c.Seed)
	t.limit = j.prompt + j.output
	for i := range j.output {
		if c.vocabulary == nil {
			t.text(word(j.words, i))
			continue
		}
		_, id := c.vocabulary.word(j.words, i)
		t.add(id)
	}
	j.chain, j.tokens = t.chain.Sum(), t.ids
	return j, nil
}

// text is the answer as a whole.
func (j *job) text() string {
	var b strings.Builder
	b.Grow(wordBytes * j.output)
	for i := range j.output {
		b.WriteString(j.word(i))
	}
	return b.String()
}
