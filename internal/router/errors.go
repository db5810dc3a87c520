package router

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"attache/scoring/queue"
)

// NoWorkerError says that nobody can take the request now. It becomes HTTP 503.
type NoWorkerError struct {
	Pool string
	// Why counts the pool's workers by what keeps them out, as in "1 draining, 2 outside the gateway's subset"; "no workers
	// known" when the pool is empty.
	Why string
}

func (e *NoWorkerError) Error() string {
	return fmt.Sprintf("no worker of pool %q can take the request: %s", e.Pool, e.Why)
}

// TooLongError says that prompt and answer are longer than any worker of the pool takes. It becomes HTTP 400.
type TooLongError struct {
	Pool string
	// PromptTokens is how long the prompt is, as engines count it, and AnswerTokens how long the request lets the answer be;
	// 1 when it does not say.
	PromptTokens, AnswerTokens int
	// Limit is how many tokens the worker with the longest context takes, for both together.
	Limit int
}

func (e *TooLongError) Error() string {
	if e.AnswerTokens <= 1 {
		return fmt.Sprintf("the model's context has %d tokens, and the prompt has %d, which leaves no room for an answer; "+
			"shorten the prompt", e.Limit, e.PromptTokens)
	}
	return fmt.Sprintf("the model's context has %d tokens, and the request asks for %d: %d in the prompt and up to %d in the answer; "+
		"shorten the prompt or lower max_tokens", e.Limit, e.PromptTokens+e.AnswerTokens, e.PromptTokens, e.AnswerTokens)
}

// reasonOf is the name of an error by which a request was turned away before it came to the gate, for metrics.
func reasonOf(err error) string {
	var long *TooLongError
	if errors.As(err, &long) {
		return "context_length"
	}
	return "no_worker"
}

// ShedError says that every worker is at its limit and the request was turned away, at once or after it had waited. It becomes
// HTTP 429, or 503 if this process stops.
type ShedError struct {
	Pool string
	// Limit is requests in flight per worker; 0: another limit.
	Limit int
	// Reason is what happened, in llm-d's words.
	Reason queue.Reason
	// Detail is which limit of the queue was reached; "" none.
	Detail string
	// RetryAfter is when trying again is worth it; whole seconds, at least one.
	RetryAfter time.Duration
}

// Stopping reports whether the request was turned away because this process stops: another one may serve it at once.
func (e *ShedError) Stopping() bool { return e.Reason == queue.RejectedShuttingDown }

func (e *ShedError) Error() string {
	switch {
	case e.Reason == queue.RejectedTTLExpired:
		return fmt.Sprintf("no worker of pool %q had room for the request as long as it was allowed to wait", e.Pool)
	case e.Reason == queue.EvictedPriority:
		return fmt.Sprintf("a more urgent request took the place of this one in the queue of pool %q", e.Pool)
	case e.Stopping():
		return "the gateway is shutting down"
	case e.Detail != "":
		return fmt.Sprintf("every worker of pool %q is saturated, and its queue is full: %s", e.Pool, e.Detail)
	case e.Limit > 0:
		return fmt.Sprintf("every worker of pool %q already has %d requests in flight, its limit", e.Pool, e.Limit)
	default:
		return fmt.Sprintf("every worker of pool %q is saturated", e.Pool)
	}
}

// UnknownModelError says that no pool serves the model that the request names. It becomes HTTP 404.
type UnknownModelError struct {
	Model string
	// Known are the models that are served, sorted; "llama-*" stands for all that begin so.
	Known []string
}

func (e *UnknownModelError) Error() string {
	known := "none is configured"
	if len(e.Known) > 0 {
		known = strings.Join(e.Known, ", ")
	}
	return fmt.Sprintf("the model %q does not exist; served here: %s", e.Model, known)
}
