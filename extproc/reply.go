package extproc

import (
	"time"

	"google.golang.org/grpc/mem"

	"attache/envoy"
)

// reply is one ProcessingResponse on its way out: its bytes, and perhaps a piece of the request body that is sent back
// as it came.
type reply struct {
	head []byte
	tail mem.Buffer // nil, or the end of the message; the reply owns a reference
}

// header is one header to set on the request; what was there is overwritten.
type header struct{ key, value string }

// change is what a reply asks the gateway to change: only headers that differ are named, nothing else is touched.
type change struct {
	set        []header
	add        []header // what is there stays
	remove     []string
	clearRoute bool // choose the route again: needed when a header that routes are matched by was set or removed
	body       []byte
	replace    bool // body replaces the request's body

	bodies       bool   // the gateway is to send the answer's body, too, in pieces
	destinations string // ordered "ip:port,ip:port"; empty: no choice, the gateway's own policy applies
	note         note
}

// note is what the decision tells itself through Envoy: it comes back in the access log, on whatever replica the log
// arrives (namespace "attache").
type note struct {
	decision, replica, pool string
	predictedCached         int // tokens
}

// overwrite is HeaderValueOption.HeaderAppendAction OVERWRITE_IF_EXISTS_OR_ADD.
const overwrite = 2

// answer builds the reply to a headers or body phase: ProcessingResponse{N: {response: CommonResponse}}. A phase
// is answered in the field one below its own: the oneof of the reply counts from 1, that of the request from 2.
func answer(p phase, c *change) reply {
	e := newEncoder(256+3*len(c.destinations)+len(c.body), 0)
	if c.replace {
		e.data(1, c.body) // BodyMutation.body
		e.nest(3, 0)      // CommonResponse.body_mutation
	}
	if c.clearRoute {
		e.number(5, 1)
	}
	if len(c.set)+len(c.add)+len(c.remove) > 0 {
		e.headerMutation(2, c.set, c.add, c.remove)
	}
	e.nest(1, 0)           // HeadersResponse.response, BodyResponse.response
	e.nest(uint64(p)-1, 0) // ProcessingResponse.request_headers, …
	if c.bodies {
		e.bodiesToo()
	}
	if c.destinations != "" || c.note.decision != "" {
		e.dynamicMetadata(c)
	}
	return reply{head: e.bytes()}
}

// bodiesToo writes ProcessingResponse.mode_override, which Envoy heeds in replies to headers, with allow_mode_override. It takes the
// place of the whole mode, so that it says again what holds anyway.
func (e *encoder) bodiesToo() {
	const sent, buffered, streamed = 1, 2, 1 // HeaderSendMode SEND, BodySendMode BUFFERED and STREAMED
	mark := e.size()
	e.number(4, streamed) // response_body_mode
	e.number(3, buffered) // request_body_mode
	e.number(2, sent)     // response_header_mode
	e.number(1, sent)     // request_header_mode
	e.nest(9, mark)
}

func (e *encoder) headerMutation(number uint64, set, add []header, remove []string) {
	mark := e.size()
	for i := len(remove) - 1; i >= 0; i-- {
		e.text(2, remove[i])
	}
	e.headerOptions(add, true)
	e.headerOptions(set, false)
	e.nest(number, mark)
}

// headerOptions writes headers that are added to those that are there, or replace them. For ext_proc the action APPEND_IF_EXISTS_OR_ADD
// (0) is the same as none, and replaces; the older field append, a BoolValue, says it.
func (e *encoder) headerOptions(headers []header, add bool) {
	for i := len(headers) - 1; i >= 0; i-- {
		option := e.size()
		if add {
			wrapped := e.size()
			e.number(1, 1)
			e.nest(2, wrapped)
		} else {
			e.number(3, overwrite)
		}
		value := e.size()
		e.text(3, headers[i].value) // raw_value
		e.text(1, headers[i].key)
		e.nest(1, value)
		e.nest(1, option)
	}
}

// dynamicMetadata writes {"envoy.lb": {destination}, "attache": {decision, replica, pool, predicted_cached}} as field 8.
func (e *encoder) dynamicMetadata(c *change) {
	mark := e.size()
	if c.note.decision != "" {
		entry := e.size()
		fields := e.size()
		e.structNumber(envoy.NoteCached, float64(c.note.predictedCached))
		e.structText(envoy.NotePool, c.note.pool)
		e.structText(envoy.NoteReplica, c.note.replica)
		e.structText(envoy.NoteDecision, c.note.decision)
		e.nest(5, fields) // Value.struct_value
		e.nest(2, entry)
		e.text(1, envoy.NoteNamespace)
		e.nest(1, entry)
	}
	if c.destinations != "" {
		entry := e.size()
		fields := e.size()
		e.structText(envoy.DestinationKey, c.destinations)
		e.nest(5, fields)
		e.nest(2, entry)
		e.text(1, envoy.SteerNamespace)
		e.nest(1, entry)
	}
	e.nest(8, mark)
}

// structText writes one entry of a Struct with a string_value.
func (e *encoder) structText(key, value string) {
	entry := e.size()
	e.text(3, value)
	e.nest(2, entry)
	e.text(1, key)
	e.nest(1, entry)
}

// structNumber writes one entry of a Struct with a number_value.
func (e *encoder) structNumber(key string, value float64) {
	entry := e.size()
	e.double(2, value)
	e.nest(2, entry)
	e.text(1, key)
	e.nest(1, entry)
}

// echo sends a piece of a body back as StreamedBodyResponse, without copying it: the piece is the end of the message.
// The reply takes over the reference to piece; nil stands for no bytes.
func echo(p phase, piece mem.Buffer, endOfStream bool) reply {
	tail := 0
	if piece != nil {
		tail = piece.Len()
	}
	e := newEncoder(48, tail)
	if tail > 0 {
		e.uvarint(uint64(tail))
		e.uvarint(tag(1, wireBytes)) // StreamedBodyResponse.body
	}
	if endOfStream {
		e.number(2, 1)
	}
	e.nest(3, 0) // BodyMutation.streamed_response
	e.nest(3, 0) // CommonResponse.body_mutation
	e.nest(1, 0) // BodyResponse.response
	e.nest(uint64(p)-1, 0)
	return reply{head: e.bytes(), tail: piece}
}

// answerTrailers lets trailers pass as they are.
func answerTrailers(p phase) reply {
	e := newEncoder(8, 0)
	e.nest(uint64(p)-1, 0)
	return reply{head: e.bytes()}
}

// moreTime asks the gateway to wait longer for the reply to the phase it is in. Envoy takes one such message per phase, of at least
// 1 ms and at most its max_message_timeout, and nothing else of it (ProcessingResponse.override_message_timeout).
func moreTime(d time.Duration) reply {
	e := newEncoder(16, 0)
	if nanos := d % time.Second; nanos > 0 {
		e.number(2, uint64(nanos))
	}
	e.number(1, uint64(d/time.Second))
	e.nest(10, 0)
	return reply{head: e.bytes()}
}

// immediate ends the request with an answer of our own. details shows in Envoy's access log as response code details.
func immediate(status int, headers []header, body []byte, details string) reply {
	e := newEncoder(256+len(body), 0)
	e.text(5, details)
	e.data(3, body)
	e.headerMutation(2, headers, nil, nil)
	code := e.size()
	e.number(1, uint64(status))
	e.nest(1, code)
	e.nest(7, 0)
	return reply{head: e.bytes()}
}
