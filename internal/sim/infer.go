package sim

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"attache/internal/openai"
)

// infer answers a chat or a completion.
func (e *Engine) infer(w http.ResponseWriter, r *http.Request, s surface) {
	raw, err := readBody(w, r)
	if err != nil {
		refuse(w, err)
		return
	}
	fault := e.faults.hit()
	switch fault.Mode {
	case Fault503, Fault500:
		refuse(w, &apiError{Message: "injected fault", Type: "InjectedFault", Code: fault.status()})
		return
	case FaultReset:
		reset(w)
		return
	default:
	}
	j, err := e.cfg.parse(raw, s)
	if err != nil {
		refuse(w, err)
		return
	}
	j.session = cmp.Or(j.session, r.Header.Get("X-Session-Id"), j.lastSession)
	l := e.current.Load()
	st, err := l.submit(j, rankOf(r))
	if err != nil {
		refuse(w, badRequest("", "%v", err))
		return
	}
	defer l.leave(st, j)
	w.Header().Set(HeaderRank, itoa(st.rank.number))
	model := e.cfg.Model
	if j.lora != "" {
		model = j.lora
	}
	a := answer{job: j, stopped: l.stopped, stream: st, cutAfter: -1, template: templateOf(j, st.id, model)}
	if fault.Mode == FaultCut {
		a.cutAfter = fault.AfterTokens
	}
	if j.stream {
		err = a.sendEvents(w, r)
	} else {
		err = a.sendWhole(w, r)
	}
	if err != nil {
		panic(http.ErrAbortHandler) // cuts the connection
	}
}

// rankOf is the data-parallel rank that a request asks for; -1: none, or nonsense.
func rankOf(r *http.Request) int {
	n, err := strconv.Atoi(r.Header.Get("X-Data-Parallel-Rank"))
	if err != nil {
		return -1
	}
	return n
}

// answer sends the tokens of one request.
type answer struct {
	*job

	stopped  <-chan struct{} // closed when no more tokens come
	stream   *stream
	cutAfter int // tokens after which the connection is cut; -1: never
	template template
}

// sendEvents streams: headers at once, the role together with the first token, an event per token, the usage if it was
// asked for, the end. The caller cuts the connection on an error.
func (a *answer) sendEvents(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	if err := out.Flush(); err != nil {
		return err
	}
	var events []byte
	for sent := 0; sent < a.output; {
		if sent == a.cutAfter {
			return errCut
		}
		n, err := a.stream.wait(r.Context(), a.stopped, sent)
		if err != nil {
			return err
		}
		if a.cutAfter >= 0 {
			n = min(n, a.cutAfter)
		}
		events = events[:0]
		if sent == 0 {
			events = a.template.appendRole(events)
		}
		for ; sent < n; sent++ {
			finish := ""
			if sent == a.output-1 {
				finish = a.finish
			}
			events = a.template.appendToken(events, a.word(sent), finish)
		}
		if sent == a.output && a.cutAfter != sent {
			events = a.appendEnd(events)
		}
		if _, err := w.Write(events); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	if a.cutAfter == a.output {
		return errCut
	}
	return nil
}

// appendEnd appends what follows the last token.
func (a *answer) appendEnd(dst []byte) []byte {
	if a.includeUsage {
		dst = a.template.appendUsage(dst, a.usageOf())
	}
	return append(dst, "data: [DONE]\n\n"...)
}

// usage is what an answer cost.
type usage struct {
	PromptTokens        int `json:"prompt_tokens"`
	TotalTokens         int `json:"total_tokens"`
	CompletionTokens    int `json:"completion_tokens"`
	PromptTokensDetails struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func (a *answer) usageOf() usage {
	u := usage{PromptTokens: a.prompt, TotalTokens: a.prompt + a.output, CompletionTokens: a.output}
	u.PromptTokensDetails.CachedTokens = a.stream.cached
	return u
}

// sendWhole answers with one JSON body when the last token is there. A cut leaves half of the body out.
func (a *answer) sendWhole(w http.ResponseWriter, r *http.Request) error {
	wanted := a.output
	if a.cutAfter >= 0 {
		wanted = min(wanted, a.cutAfter)
	}
	for n := 0; n < wanted; {
		var err error
		if n, err = a.stream.wait(r.Context(), a.stopped, n); err != nil {
			return err
		}
	}
	text, err := json.Marshal(a.template.whole(a.job, a.usageOf()))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", itoa(len(text)))
	if a.cutAfter >= 0 {
		text = text[:len(text)/2]
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	if a.cutAfter >= 0 {
		_ = http.NewResponseController(w).Flush()
		return errCut
	}
	return nil
}

// template is what all that is sent for one request has in common. Events are spliced from prepared bytes: thousands of
// streams send one per token.
type template struct {
	id, object, model string
	created           int64
	surface           surface
	head              []byte // an event up to its choices
}

func templateOf(j *job, id uint64, model string) template {
	t := template{id: "chatcmpl-", object: "chat.completion", model: model, created: time.Now().Unix(), surface: j.surface}
	chunk := "chat.completion.chunk"
	if j.surface == completions {
		t.id, t.object, chunk = "cmpl-", "text_completion", "text_completion"
	}
	t.id += strconv.FormatUint(scramble(j.words^id), 16)
	t.head = append(t.head, `data: {"id":"`+t.id+`","object":"`+chunk+`","created":`...)
	t.head = strconv.AppendInt(t.head, t.created, 10)
	t.head = append(t.head, `,"model":`...)
	t.head = openai.AppendString(t.head, model)
	t.head = append(t.head, `,"choices":[`...)
	return t
}

// whole is the answer of a request that does not stream.
func (t *template) whole(j *job, u usage) any {
	type said struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	type choice struct {
		Index        int     `json:"index"`
		Message      *said   `json:"message,omitempty"`
		Text         *string `json:"text,omitempty"`
		Logprobs     *string `json:"logprobs"`
		FinishReason string  `json:"finish_reason"`
		StopReason   *string `json:"stop_reason"`
	}
	c, text := choice{FinishReason: j.finish}, j.text()
	if t.surface == chat {
		c.Message = &said{"assistant", text}
	} else {
		c.Text = &text
	}
	return struct {
		ID                string   `json:"id"`
		Object            string   `json:"object"`
		Created           int64    `json:"created"`
		Model             string   `json:"model"`
		Choices           []choice `json:"choices"`
		SystemFingerprint string   `json:"system_fingerprint"`
		Usage             usage    `json:"usage"`
	}{t.id, t.object, t.created, t.model, []choice{c}, "sim", u}
}

// appendRole appends the first event of a chat; completions have none.
func (t *template) appendRole(dst []byte) []byte {
	if t.surface != chat {
		return dst
	}
	dst = append(dst, t.head...)
	return append(dst, `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`+"\n\n"...)
}

// appendToken appends the event of one token; finish says why it is the last one. Words need no escaping.
func (t *template) appendToken(dst []byte, word, finish string) []byte {
	dst = append(dst, t.head...)
	if t.surface == chat {
		dst = append(append(append(dst, `{"index":0,"delta":{"content":"`...), word...), `"}`...)
	} else {
		dst = append(append(append(dst, `{"index":0,"text":"`...), word...), '"')
	}
	if finish == "" {
		return append(dst, `,"logprobs":null,"finish_reason":null}]}`+"\n\n"...)
	}
	dst = append(append(append(dst, `,"logprobs":null,"finish_reason":"`...), finish...), '"')
	return append(dst, `,"stop_reason":null}]}`+"\n\n"...)
}

// appendUsage appends the event that has no choice but the usage.
func (t *template) appendUsage(dst []byte, u usage) []byte {
	text, err := json.Marshal(u)
	if err != nil {
		return dst
	}
	dst = append(append(dst, t.head...), `],"usage":`...)
	return append(append(dst, text...), `,"system_fingerprint":"sim"}`+"\n\n"...)
}
