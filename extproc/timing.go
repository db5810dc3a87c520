package extproc

import (
	"strconv"
	"strings"
	"time"

	"attache/envoy"
	"attache/internal/router"
)

// ResponseHeaders is what clients are told about the decision on their request, in headers of the answer.
type ResponseHeaders string

// What answers tell.
const (
	HeadersOff    ResponseHeaders = "off"           // nothing
	HeadersTrace  ResponseHeaders = "trace"         // x-attache-trace: who answers, and what for
	HeadersTiming ResponseHeaders = "server-timing" // server-timing: how long each step took
	HeadersBoth   ResponseHeaders = "both"
)

// Any reports whether answers must pass attache for it: then Envoy is to send their headers.
func (r ResponseHeaders) Any() bool { return r != HeadersOff }

// Timing reports whether requests must be timed for it.
func (r ResponseHeaders) Timing() bool { return r == HeadersTiming || r == HeadersBoth }

func (r ResponseHeaders) trace() bool { return r == HeadersTrace || r == HeadersBoth }

func (r ResponseHeaders) valid() bool { return r == HeadersOff || r == HeadersTiming || r.trace() }

// clock is what time it is, if requests are timed; else the zero time.
func (s *Server) clock() time.Time {
	if s.now == nil {
		return time.Time{}
	}
	return s.now()
}

// responseHeaders passes the headers of the answer on, with what is to be told.
func (x *exchange) responseHeaders(m *message) error {
	var c change
	if wanted := x.settings.ResponseHeaders; x.decision != nil && wanted.Any() {
		if wanted.trace() {
			c.set = append(c.set, header{envoy.TraceHeader, traceOf(x.decision)})
		}
		if wanted.Timing() && !x.began.IsZero() {
			c.add = append(c.add, header{envoy.TimingHeader, timingOf(x.decision, x.server.clock().Sub(x.began))})
		}
	}
	c.bodies = x.listens(m)
	return x.send(answer(m.phase, &c))
}

// traceOf tells who answers, and what for: a dictionary of RFC 8941.
//
//	id="r1.2", worker="w1", cached=1024, waited=0.000
func traceOf(d *router.Decision) string {
	b := make([]byte, 0, 96)
	b = append(b, `id=`...)
	b = appendText(b, d.ID)
	b = append(b, `, worker=`...)
	b = appendText(b, d.Worker)
	b = append(b, `, cached=`...)
	b = strconv.AppendInt(b, int64(d.PredictedCached), 10)
	b = append(b, `, waited=`...)
	return string(strconv.AppendFloat(b, d.Waited.Seconds(), 'f', 3, 64))
}

// appendText writes a string of RFC 8941; what it cannot hold becomes "?".
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c > '~':
			b = append(b, '?')
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// timingOf tells how long each step took, in milliseconds (Server-Timing, W3C). attache is all from the first byte to the reply; the
// others are its parts, and after it what the worker has done so far, when the headers of the answer come.
func timingOf(d *router.Decision, now time.Duration) string {
	p := d.Done.Phases()
	var b strings.Builder
	b.Grow(192)
	entry := func(name string, took time.Duration) {
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name)
		b.WriteString(";dur=")
		b.WriteString(strconv.FormatFloat(float64(max(took, 0))/float64(time.Millisecond), 'f', 3, 64))
	}
	entry("attache", p.Sent)
	at := time.Duration(0)
	step := func(name string, over time.Duration) {
		if over > 0 {
			entry(name, over-at)
			at = over
		}
	}
	step("receive", p.Complete)
	step("parse", p.Parsed)
	step("chain", p.Chained)
	step("overlap", p.Looked)
	if d.Waited > 0 { // the wait ends with the booking
		step("queue", p.Picked)
		entry("pick", 0)
	} else {
		entry("queue", 0)
		step("pick", p.Picked)
	}
	step("reply", p.Sent)
	if p.Prefilled > 0 {
		entry("prefill", p.Prefilled-p.Sent)
	}
	entry("worker", now-p.Sent)
	return b.String()
}
