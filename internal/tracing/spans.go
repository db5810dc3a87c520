package tracing

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"attache/internal/router"
)

// step is one child span.
type step struct {
	name     string
	from, to time.Duration // from the request's first byte
}

// steps are the child spans of a request: those of the decision follow upon each other, the others begin when Envoy had the reply.
// What was not timed has none.
//
//	receive  first byte to last byte      pick     booking a worker, and the wait for one
//	parse    body understood              reply    the decision written and sent
//	chain    prompt cut into blocks       prefill  until the engine's events showed all blocks of the prompt
//	overlap  who holds how much           first_token, transfer
func steps(p *router.Phases, waited time.Duration) []step {
	decided := []step{
		{name: "receive", to: p.Complete}, {name: "parse", to: p.Parsed}, {name: "chain", to: p.Chained}, {name: "overlap", to: p.Looked},
		{name: "pick", to: p.Picked}, {name: "reply", to: p.Sent},
	}
	if waited > 0 {
		decided[4].name = "queue"
	}
	var all []step
	at := time.Duration(0)
	for _, s := range decided {
		if s.to > 0 {
			s.from = at
			all, at = append(all, s), s.to
		}
	}
	at = max(at, p.Decided)
	for _, s := range []step{{name: "prefill", to: p.Prefilled}, {name: "transfer", to: p.Transferred}, {name: "first_token", to: p.FirstToken}} {
		if s.to > 0 {
			s.from = min(at, s.to) // two clocks: Envoy's figure may be a moment early
			all = append(all, s)
		}
	}
	return all
}

// emit makes the spans of a request.
func (t *Tracer) emit(f *router.Finished) {
	ctx := context.Background()
	if f.Parent.Valid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: f.Parent.Trace, SpanID: f.Parent.Span, TraceFlags: trace.TraceFlags(f.Parent.Flags), Remote: true}))
	}
	ctx, root := t.tracer.Start(ctx, "attache "+f.Pool, trace.WithTimestamp(f.Began), trace.WithSpanKind(trace.SpanKindInternal),
		trace.WithAttributes(attributes(f)...))
	end := f.Phases.Ended
	for _, s := range steps(&f.Phases, f.Waited) {
		_, span := t.tracer.Start(ctx, s.name, trace.WithTimestamp(f.Began.Add(s.from)))
		span.End(trace.WithTimestamp(f.Began.Add(s.to)))
		end = max(end, s.to)
	}
	if f.Phases.Prefilling > 0 {
		root.AddEvent("prefill began", trace.WithTimestamp(f.Began.Add(f.Phases.Prefilling)))
	}
	if o := f.Outcome; o != nil && o.Failed() {
		root.SetStatus(codes.Error, o.Verdict())
	}
	root.End(trace.WithTimestamp(f.Began.Add(end)))
}

// attributes are what a request's span tells. Tokens of prompts are counts, never text.
func attributes(f *router.Finished) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("attache.decision", f.ID), attribute.String("attache.pool", f.Pool), text("attache.request_id", f.RequestID),
		text("attache.model", f.Model), text("url.path", path(f.Path)), text("attache.worker", f.Worker),
		attribute.String("attache.policy", f.Policy), attribute.String("attache.rung", f.Rung), attribute.String("attache.rung_reason", f.Why),
		attribute.Int("attache.prompt_tokens", f.PromptTokens), attribute.Int("attache.available_tokens", f.Available),
		attribute.Int("attache.captured_tokens", f.Captured), attribute.Float64("attache.waited_s", f.Waited.Seconds()),
		attribute.Float64("attache.predicted_ttft_s", f.PredictedTTFT.Seconds()),
	}
	o := f.Outcome
	if o == nil {
		return append(all, attribute.String("attache.outcome", "unknown"))
	}
	all = append(all, attribute.String("attache.outcome", o.Verdict()), attribute.Int("http.response.status_code", o.Status),
		attribute.Int("attache.attempts", o.Attempts), text("attache.served", f.Served))
	if o.EngineTTFT > 0 && f.Phases.FirstToken > 0 {
		all = append(all, attribute.Float64("attache.observed_ttft_s", o.EngineTTFT.Seconds()))
	}
	if o.CachedKnown {
		all = append(all, attribute.Int("attache.delivered_tokens", o.CachedTokens))
	}
	return all
}

// longest is how much of a text that clients may choose is shown, in bytes.
const longest = 256

// text is an attribute with a value that clients may choose: collectors refuse what is not UTF-8, and the whole batch with it.
func text(key, value string) attribute.KeyValue {
	return attribute.String(key, strings.ToValidUTF8(value[:min(len(value), longest)], ""))
}

// path is a request's path without its query, which may hold secrets.
func path(p string) string {
	p, _, _ = strings.Cut(p, "?")
	return p
}
