package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Explainer says what would become of a request, without sending it.
type Explainer interface {
	// Explain books, remembers and counts nothing. An error that is a *RefusedError is shown as it is.
	Explain(ctx context.Context, q Question) (*Explanation, error)
}

// Question is a request as a client would send it.
type Question struct {
	Path    string
	Headers [][2]string // name, value
	Body    []byte
	// Policy is one to decide by in place of the configured one, perhaps with weights, as in the header x-attache-policy; "": none.
	Policy string
}

// RefusedError is a question that has no answer, as an HTTP answer in OpenAI's form of errors.
type RefusedError struct {
	Status int
	Body   []byte
}

// Error implements error.
func (r *RefusedError) Error() string { return fmt.Sprintf("status %d", r.Status) }

// Explanation is what would become of a request at one moment. Nothing of its prompt is in it.
type Explanation struct {
	At    time.Time `json:"at"`
	Pool  string    `json:"pool"`
	Model string    `json:"model"`
	// SentModel is the name that the worker is sent in place of Model; "" the same.
	SentModel string `json:"sent_model,omitempty"`
	Policy    string `json:"policy"`
	// Chosen is the worker that the request would go to, "" for nobody; Rank its data-parallel rank, "" when it has only one.
	Chosen string `json:"chosen"`
	Rank   string `json:"rank,omitempty"`
	// Why is one sentence for a human.
	Why string `json:"why"`
	// Refusal is what the client would be answered instead; null when a worker would be asked.
	Refusal *Refusal `json:"refusal"`
	// PromptTokens are counted on the rungs "exact" and "engine", and estimated on "approximate".
	PromptTokens int    `json:"prompt_tokens"`
	BlockTokens  int    `json:"block_tokens"`
	Rung         string `json:"rung"`
	RungReason   string `json:"rung_reason"`
	// Available are the cached tokens of the candidate that holds the most, Captured those of the chosen one.
	Available      int           `json:"available_tokens"`
	Captured       int           `json:"captured_tokens"`
	PredictedTTFTS Figure        `json:"predicted_ttft_s"`
	Queue          QueuePlace    `json:"queue"`
	Candidates     []Contender   `json:"candidates"` // the chosen one first, then by cost
	Excluded       []Excluded    `json:"excluded"`
	Others         []OtherChoice `json:"others"`
	Hints          []string      `json:"hints"` // that counted
	IgnoredHints   []IgnoredHint `json:"ignored_hints"`
}

// Refusal is an answer to the client that is not a worker's.
type Refusal struct {
	Status  int    `json:"status"`
	Message string `json:"message"`
}

// QueuePlace is whether a request would wait for a worker with room.
type QueuePlace struct {
	Waits bool   `json:"waits"`
	Class string `json:"class"` // "" where nothing limits the workers
	// Ahead is how many requests of its class wait for the same workers, Waiting how many wait in the pool in all, and Capacity
	// how many may; 0: there is no queue.
	Ahead    int `json:"ahead"`
	Waiting  int `json:"waiting"`
	Capacity int `json:"capacity"`
}

// Contender is one rank of a worker that may serve.
type Contender struct {
	Worker       string `json:"worker"`
	Address      string `json:"address"`
	Rank         string `json:"rank,omitempty"`
	CachedTokens int    `json:"cached_tokens"`
	// TierBlocks is where its engine says that they lie; Doubt is the share of them, 0 to 1, that is not counted on.
	TierBlocks Tiers   `json:"tier_blocks"`
	Doubt      float64 `json:"doubt"`
	// Evidence is how it is known what the worker holds: exact, partial or approximate.
	Evidence string `json:"evidence"`
	// InFlight, QueueS and PrefillTokens are booked there; SpeedFactor is how many times longer its prefills take than estimated.
	InFlight      int    `json:"in_flight"`
	QueueS        Figure `json:"queue_s"`
	PrefillTokens int    `json:"prefill_tokens"`
	SpeedFactor   Figure `json:"speed_factor"`
	Bound         bool   `json:"session_bound"`
	Saturated     bool   `json:"saturated"`
	// Passed says that the policy's rule passes the worker over, whatever it costs.
	Passed         bool    `json:"passed"`
	Preference     float64 `json:"preference"`
	PredictedTTFTS Figure  `json:"predicted_ttft_s"`
	Terms          []Term  `json:"terms"`
	Total          Figure  `json:"total"`
	Unit           string  `json:"unit"`
}

// Name is the worker's, with the rank if it has several.
func (c *Contender) Name() string {
	if c.Rank == "" {
		return c.Worker
	}
	return c.Worker + " rank " + c.Rank
}

// Excluded is a worker of the pool that may not serve the request. Reason is a label of attache_router_excluded_total, Text the same
// in words, and Detail what exactly is the matter.
type Excluded struct {
	Worker  string `json:"worker"`
	Address string `json:"address"`
	Reason  string `json:"reason"`
	Text    string `json:"text"`
	Detail  string `json:"detail"`
}

// OtherChoice is what another policy would choose.
type OtherChoice struct {
	Policy         string `json:"policy"`
	Worker         string `json:"worker"`
	Rank           string `json:"rank,omitempty"`
	Same           bool   `json:"same"` // as the policy that decides
	CachedTokens   int    `json:"cached_tokens"`
	PredictedTTFTS Figure `json:"predicted_ttft_s"`
	Total          Figure `json:"total"`
	Unit           string `json:"unit"`
}

// IgnoredHint is something that the client said and that does not count.
type IgnoredHint struct {
	Hint   string `json:"hint"`
	Reason string `json:"reason"`
}

// Bounds of a question.
const (
	maxQuestion  = 32 << 20 // bytes of the body
	maxAsked     = 64       // headers
	maxExplained = 2        // at the same time: making tokens takes CPU from requests
	defaultAsked = "/v1/chat/completions"
	askedPrefix  = "X-Attache-Header-"
)

func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	q, err := question(r)
	if err == nil {
		select {
		case s.explaining <- struct{}{}:
			defer func() { <-s.explaining }()
		case <-r.Context().Done():
			return
		}
		q.Body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxQuestion))
	}
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		s.refuse(w, http.StatusRequestEntityTooLarge, "request_too_large", "", fmt.Sprintf("the body exceeds %d bytes", large.Limit))
		return
	}
	if bad := (*questionError)(nil); errors.As(err, &bad) {
		s.refuse(w, http.StatusBadRequest, "malformed_question", bad.param, bad.Error())
		return
	}
	if err != nil {
		s.refuse(w, http.StatusBadRequest, "malformed_question", "", "the body ended early")
		return
	}
	x, err := s.view.src.Explain(r.Context(), q)
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(refused.Status)
		_, _ = w.Write(refused.Body) // a reader that left is not our error
		return
	}
	if err != nil {
		s.refuse(w, http.StatusInternalServerError, "", "", err.Error())
		return
	}
	s.answer(w, http.StatusOK, x.tidy())
}

// questionError says which part of a question cannot be read.
type questionError struct{ param, text string }

func (b *questionError) Error() string { return b.param + ": " + b.text }

// question reads everything but the body. Headers of the request in question come as ?h=name:value, or as headers of this one
// with a prefix before their names.
func question(r *http.Request) (Question, error) {
	query := r.URL.Query()
	q := Question{Path: query.Get("path"), Policy: query.Get("policy")}
	if q.Path == "" {
		q.Path = defaultAsked
	}
	if q.Path[0] != '/' {
		return q, &questionError{"path", fmt.Sprintf("%q: must begin with /", q.Path)}
	}
	add := func(param, name, value string) error {
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "" || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == ':' }) {
			return &questionError{param, fmt.Sprintf("%q: must be name:value, as x-session-id:7", name)}
		}
		if len(q.Headers) == maxAsked {
			return &questionError{param, fmt.Sprintf("must be at most %d headers", maxAsked)}
		}
		q.Headers = append(q.Headers, [2]string{name, strings.TrimSpace(value)})
		return nil
	}
	for _, pair := range query["h"] {
		name, value, found := strings.Cut(pair, ":")
		if !found {
			name = ""
		}
		if err := add("h", name, value); err != nil {
			return q, err
		}
	}
	for name, values := range r.Header {
		if rest, found := strings.CutPrefix(name, askedPrefix); found {
			for _, value := range values {
				if err := add(askedPrefix, rest, value); err != nil {
					return q, err
				}
			}
		}
	}
	return q, nil
}

// refuse answers with an error in OpenAI's form.
func (s *Server) refuse(w http.ResponseWriter, status int, code, param, message string) {
	type text = *string
	some := func(v string) text {
		if v == "" {
			return nil
		}
		return &v
	}
	kind := "invalid_request_error"
	if status >= http.StatusInternalServerError {
		kind = "internal_error"
	}
	var answer struct {
		Error struct {
			Message string `json:"message"`
			Type    string `json:"type"`
			Param   text   `json:"param"`
			Code    text   `json:"code"`
		} `json:"error"`
	}
	e := &answer.Error
	e.Message, e.Type, e.Param, e.Code = message, kind, some(param), some(code)
	s.answer(w, status, answer)
}

// tidy makes lists that are empty show as such.
func (x *Explanation) tidy() *Explanation {
	x.Candidates, x.Excluded, x.Others = list(x.Candidates), list(x.Excluded), list(x.Others)
	x.Hints, x.IgnoredHints = list(x.Hints), list(x.IgnoredHints)
	for i := range x.Candidates {
		x.Candidates[i].Terms = list(x.Candidates[i].Terms)
	}
	return x
}
