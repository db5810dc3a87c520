package prompt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"attache/internal/openai"
)

// Bounds of asking. An engine that is busy answers late, and a request must not wait for its tokens longer than a long
// prefill takes.
const (
	askTimeout  = 500 * time.Millisecond
	askAtOnce   = 16
	askPause    = time.Second // after a failure nobody is asked for so long
	askAnswer   = 32 << 20    // bytes
	askMemory   = 32 << 20    // bytes of remembered tokens
	askRetained = 200         // bytes that an entry takes besides its tokens
)

var (
	errAskBusy   = errors.New("too many prompts are being asked about")
	errAskPaused = errors.New("the engine failed to tell a moment ago")
)

// asker asks engines for the tokens of prompts (POST /tokenize of vLLM and SGLang) and remembers the answers. Safe for
// concurrent use.
type asker struct {
	client *http.Client
	slots  chan struct{}

	mu     sync.Mutex
	paused time.Time // until when nobody is asked; guarded by mu
	memory tokenMemory
}

func newAsker() *asker {
	return &asker{
		client: &http.Client{Timeout: askTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: askAtOnce, IdleConnTimeout: 4 * time.Second}},
		slots:  make(chan struct{}, askAtOnce),
		memory: tokenMemory{tokens: map[xxh3.Uint128][]uint32{}},
	}
}

// askable tells the reasons for which an engine knows better: it has the model, or the template, that is missing here.
func askable(why Reason) bool {
	switch why {
	case NoModel, Loading, NoTemplate, TemplateFailed, TokenizerFailed, Mismatch:
		return true
	default:
		return false
	}
}

// tokens are the tokens of a chat or of a completion's prompt. They must not be changed.
func (a *asker) tokens(ctx context.Context, q *Query) ([]uint32, error) {
	question, err := questionOf(q)
	if err != nil {
		return nil, err
	}
	key := xxh3.Hash128(question)
	a.mu.Lock()
	ids, known := a.memory.tokens[key]
	paused := time.Now().Before(a.paused)
	a.mu.Unlock()
	switch {
	case known:
		return ids, nil
	case paused:
		return nil, errAskPaused
	}
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	default:
		return nil, errAskBusy
	}
	ids, err = a.post(ctx, q.Engine, question)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			a.paused = time.Now().Add(askPause)
		}
		return nil, err
	}
	a.memory.put(key, ids)
	return ids, nil
}

func (a *asker) post(ctx context.Context, engine string, question []byte) ([]uint32, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+engine+"/tokenize", bytes.NewReader(question))
	if err != nil {
		return nil, err
	}
	req.Header.Set("content-type", "application/json")
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, askAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("POST http://%s/tokenize answered %s", engine, resp.Status)
	case len(text) > askAnswer:
		return nil, fmt.Errorf("POST http://%s/tokenize answered more than %d bytes", engine, askAnswer)
	}
	var answer struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("POST http://%s/tokenize: %w", engine, err)
	}
	if len(answer.Tokens) == 0 {
		return nil, fmt.Errorf("POST http://%s/tokenize named no tokens", engine)
	}
	return answer.Tokens, nil
}

// questionOf is the body of a /tokenize request. What is in the request goes into it as it stands there.
func questionOf(q *Query) ([]byte, error) {
	t := &q.Scan.Template
	out := []byte{'{'}
	member := func(key string, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(append(out, '"'), key...), `":`...), value...)
	}
	raw := func(key string, at openai.Span) {
		if !at.Empty() {
			member(key, at.In(q.Body))
		}
	}
	choice := func(key string, c openai.Choice) {
		if c != openai.Open {
			member(key, strconv.AppendBool(nil, c == openai.Yes))
		}
	}
	if q.Model != "" {
		member("model", openai.AppendString(nil, q.Model))
	}
	switch {
	case t.Truncated:
		return nil, errors.New("the request has its prompt truncated")
	case q.Scan.Kind == openai.Chat && !t.Messages.Empty():
		raw("messages", t.Messages)
		raw("tools", q.Scan.Tools)
		raw("chat_template_kwargs", t.Kwargs)
		choice("add_generation_prompt", t.GenerationPrompt)
		choice("continue_final_message", t.ContinueFinal)
	case q.Scan.Kind == openai.Completions && q.Scan.Parts[0].Kind == openai.Prompt:
		p := q.Scan.Parts[0].Span
		raw("prompt", openai.Span{From: p.From - 1, To: p.To + 1}) // with its quotes
	default:
		return nil, errors.New("engines tell the tokens of chats and completions only")
	}
	choice("add_special_tokens", t.SpecialTokens)
	return append(out, '}'), nil
}

// tokenMemory remembers answers, the latest ones, in bounded memory.
type tokenMemory struct {
	tokens map[xxh3.Uint128][]uint32
	order  []xxh3.Uint128 // oldest first
	bytes  int
}

func (m *tokenMemory) put(key xxh3.Uint128, ids []uint32) {
	size := func(ids []uint32) int { return askRetained + 4*cap(ids) }
	if m.tokens[key] != nil || size(ids) > askMemory {
		return
	}
	m.tokens[key] = ids
	m.order = append(m.order, key)
	m.bytes += size(ids)
	for m.bytes > askMemory {
		m.bytes -= size(m.tokens[m.order[0]])
		delete(m.tokens, m.order[0])
		m.order = m.order[1:]
	}
}
