package extproc

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/mem"

	"attache/internal/openai"
	"attache/internal/router"
)

// exchange is Envoy's side of one request: the state of one ext_proc stream. It has one method per phase; each sends
// what that phase is owed, whatever came before it. One goroutine uses it.
//
//	          headers            body                     trailers          response phases
//	BUFFERED  reply at once      reply with the decision  pass              pass
//	DUPLEX    hold               hold until the end, then headers reply     echo
//	                             with the decision and every byte back
//	others    reply with a       pass each                pass              pass
//	          decision by load
//
// Requests without a body are decided in the headers phase in every mode.
type exchange struct {
	server   *Server
	settings *settings // from the first message on
	ctx      context.Context
	send     func(reply) error
	// What a stream has one of at a time stands here, so that all of it is one piece of memory.
	in  message // that is being handled
	out reply   // that is being sent: SendMsg is done with it when it returns

	spoken    bool // a message was received
	protocol  protocol
	stage     stage
	headers   message // owned until the decision
	request   requestHeaders
	subset    subset
	pieces    []mem.Buffer // the body so far, in a mode where it comes in pieces
	bodyBytes int
	owed      int // body messages that wait for their reply (STREAMED, header reply withheld)

	began    time.Time // when the first message came, and
	complete time.Time // when all was there that the decision needs; zero where requests are not timed
	decision *router.Decision
	answer   *openai.Answer // what the worker answers, where that is wanted
}

// stage is how far an exchange is.
type stage uint8

const (
	fresh     stage = iota // nothing decided, body still to come
	decided                // the request went on; what follows only passes
	dismissed              // answered by us: nothing may be sent any more
)

// handle answers one message. It takes over the message's bytes where it needs them longer.
func (x *exchange) handle(m *message) error {
	if !x.spoken {
		x.spoken, x.began, x.settings = true, x.server.clock(), x.server.settings.Load()
		x.begin(m.protocol)
	}
	if x.stage == dismissed {
		return nil
	}
	if len(m.metadata) > 0 && m.phase.inRequest() {
		if hint := m.readSubset(); hint.Stated {
			x.subset = hint
		}
	}
	switch m.phase {
	case phaseRequestHeaders:
		return x.requestHeaders(m)
	case phaseRequestBody:
		return x.requestBody(m)
	case phaseRequestTrailers:
		return x.requestTrailers()
	case phaseResponseHeaders:
		return x.responseHeaders(m)
	case phaseResponseBody:
		return x.responseBody(m)
	case phaseResponseTrailers:
		return x.send(answerTrailers(m.phase))
	default:
		return nil // a message without a phase, such as a flow-control update, is owed nothing
	}
}

// begin notes what the gateway speaks. Modes that cannot steer by prefix are said loudly, once per mode.
func (x *exchange) begin(p protocol) {
	if !p.stated {
		p.request = x.settings.assumed
		p.response = modeNone
		if p.request == modeFullDuplex {
			p.response = modeFullDuplex
		}
	}
	x.protocol = p
	x.server.metrics.stream(p.request)
	if !x.buffers() && !x.withholds() {
		x.server.complain(p.request)
	}
}

// buffers: the whole body comes in one message, after the reply to the headers.
func (x *exchange) buffers() bool {
	return x.protocol.request == modeBuffered || x.protocol.request == modeBufferedPartial
}

// withholds: the body comes without a reply to the headers, which can therefore carry the decision.
func (x *exchange) withholds() bool {
	return x.protocol.request == modeFullDuplex || x.protocol.request == modeStreamed && x.protocol.bodyUnprompted
}

func (x *exchange) requestHeaders(m *message) error {
	if x.stage != fresh || x.headers.buffer != nil {
		return x.send(answer(m.phase, &change{})) // headers a second time: nothing to add
	}
	complete := m.endOfStream
	x.headers = m.take()
	x.request.read(&x.headers, &x.settings.Config, x.settings.trust)
	switch {
	case complete:
		return x.decide(phaseRequestHeaders, nil, nil)
	case x.buffers():
		return x.send(answer(phaseRequestHeaders, &change{remove: x.request.forged, clearRoute: x.request.forgedPool}))
	case x.withholds():
		return nil
	default:
		return x.decide(phaseRequestHeaders, nil, nil)
	}
}

func (x *exchange) requestBody(m *message) error {
	if x.stage == decided {
		if x.protocol.request == modeFullDuplex {
			return nil // Envoy may repeat the last chunk or its end (envoy#46237): every byte is on its way already
		}
		return x.send(answer(phaseRequestBody, &change{}))
	}
	x.bodyBytes += len(m.body)
	if int64(x.bodyBytes) > int64(x.settings.MaxBody) {
		return x.dismiss(tooLarge(x.bodyBytes, x.settings.MaxBody))
	}
	if !x.withholds() {
		// A buffered body is complete whatever its flag says: with request trailers it reads false (envoy.md 4.4).
		return x.decide(phaseRequestBody, m.body, nil)
	}
	if len(m.body) > 0 {
		x.pieces = append(x.pieces, m.buffer.Slice(m.bodyFrom, m.bodyFrom+len(m.body)))
	}
	x.owed++
	if !m.endOfStream {
		return nil
	}
	return x.decideGathered(true)
}

func (x *exchange) requestTrailers() error {
	if x.stage == fresh && x.withholds() {
		if err := x.decideGathered(false); err != nil || x.stage == dismissed {
			return err
		}
	}
	return x.send(answerTrailers(phaseRequestTrailers))
}

// decideGathered decides on a body that came in pieces.
func (x *exchange) decideGathered(endOfStream bool) error {
	switch len(x.pieces) {
	case 0:
		return x.decide(phaseRequestHeaders, nil, &endOfStream)
	case 1:
		return x.decide(phaseRequestHeaders, x.pieces[0].ReadOnlyData(), &endOfStream)
	}
	whole := mem.BufferSlice(x.pieces).MaterializeToBuffer(x.server.buffers)
	defer whole.Free()
	return x.decide(phaseRequestHeaders, whole.ReadOnlyData(), &endOfStream)
}

// waiting tells the gateway that the decision may take so long: 0 is as long as can be. Bodies in full duplex have no time limit. It
// is called while the decision is pending, by the goroutine that waits for it, so that nothing else is being sent.
func (x *exchange) waiting(most time.Duration) {
	usual, longest := x.server.gateway.MessageTimeout, x.server.gateway.MaxMessageTimeout
	if x.protocol.request == modeFullDuplex || longest <= usual {
		return
	}
	until := longest
	if most > 0 {
		until = min(most+usual, longest) // the usual time is for the reply, once the wait is over
	}
	if err := x.send(moreTime(until)); err == nil { // else the stream is over, and with it the wait
		x.server.metrics.held.Inc()
	}
}

// decide chooses the worker and sends the reply in which the decision travels. giveBack is set in modes where the body
// was held back: then every byte of it follows the reply, with an end of stream or without.
func (x *exchange) decide(in phase, body []byte, giveBack *bool) error {
	x.complete = x.server.clock()
	verdict := x.server.judge(x, body)
	if verdict.answer != nil {
		return x.dismiss(*verdict.answer)
	}
	x.stage, x.decision = decided, verdict.decision
	c := &verdict.change
	if in == phaseRequestHeaders { // else the reply to the headers removed them
		x.removeForged(c)
	}
	defer x.headers.free()
	if giveBack == nil {
		if c.replace {
			c.set = append(c.set, contentLength(len(c.body)))
		}
		return x.sendDecision(in, c)
	}
	replaced := c.replace
	c.replace = false // the body follows in messages of its own
	body, c.body = c.body, nil
	if err := x.sendDecision(in, c); err != nil {
		return err
	}
	if replaced {
		x.freePieces()
		x.pieces = append(x.pieces, mem.SliceBuffer(body))
	}
	return x.giveBack(*giveBack, replaced)
}

// sendDecision sends the reply in which the decision travels.
func (x *exchange) sendDecision(in phase, c *change) error {
	err := x.send(answer(in, c))
	if err == nil && x.decision != nil {
		x.decision.Done.Sent()
	}
	return err
}

// removeForged takes out the steering headers that the client sent, except where ours overwrite them.
func (x *exchange) removeForged(c *change) {
	for _, name := range x.request.forged {
		if !slices.ContainsFunc(c.set, func(h header) bool { return h.key == name }) {
			c.remove = append(c.remove, name)
		}
	}
	c.clearRoute = c.clearRoute || x.request.forgedPool
}

// giveBack sends the body on as it came, or as it was changed.
func (x *exchange) giveBack(endOfStream, replaced bool) error {
	if x.protocol.request == modeStreamed {
		return x.answerOwed(replaced)
	}
	pieces := x.pieces
	x.pieces = nil
	return echoPieces(x.send, phaseRequestBody, pieces, endOfStream)
}

// answerOwed replies to every body message that was held, where replies answer messages one by one. A changed body goes
// into the first reply, and the others clear theirs.
func (x *exchange) answerOwed(replaced bool) error {
	var first []byte
	if replaced {
		first = x.pieces[0].ReadOnlyData()
	}
	for i := range x.owed {
		c := change{replace: replaced}
		if i == 0 {
			c.body = first
		}
		if err := x.send(answer(phaseRequestBody, &c)); err != nil {
			return err
		}
	}
	x.freePieces()
	return nil
}

// responseBody passes a piece of the answer on. attache asks for them where the answer is wanted; foreign gateways send them anyway.
func (x *exchange) responseBody(m *message) error {
	if x.protocol.response != modeFullDuplex {
		err := x.send(answer(m.phase, &change{})) // before anything else: the client waits for it
		x.listen(m)
		return err
	}
	var pieces []mem.Buffer
	if len(m.body) > 0 {
		pieces = []mem.Buffer{m.buffer.Slice(m.bodyFrom, m.bodyFrom+len(m.body))}
	}
	return echoPieces(x.send, m.phase, pieces, m.endOfStream)
}

// maxChunk is the most that one streamed body reply carries: some gateways refuse more than 64 KiB
// (Gateway API Inference Extension), message framing included.
const maxChunk = 62_000

// echoPieces sends pieces back in chunks of at most maxChunk; the last one carries the end of stream. An empty body is
// one empty chunk. It takes over the references to the pieces, also when it fails.
func echoPieces(send func(reply) error, p phase, pieces []mem.Buffer, endOfStream bool) error {
	defer mem.BufferSlice(pieces).Free()
	if len(pieces) == 0 {
		if !endOfStream && p == phaseRequestBody {
			return nil // nothing came, and trailers say that nothing will
		}
		return send(echo(p, nil, endOfStream))
	}
	for i, piece := range pieces {
		for from := 0; from < piece.Len(); from += maxChunk {
			to := min(from+maxChunk, piece.Len())
			last := i == len(pieces)-1 && to == piece.Len()
			if err := send(echo(p, piece.Slice(from, to), last && endOfStream)); err != nil {
				return err
			}
		}
	}
	return nil
}

// dismiss answers the request ourselves; Envoy ends the stream then.
func (x *exchange) dismiss(r refusal) error {
	x.stage = dismissed
	x.server.metrics.refused(r.status)
	err := x.send(r.reply())
	x.headers.free()
	x.freePieces()
	return err
}

func (x *exchange) freePieces() {
	mem.BufferSlice(x.pieces).Free()
	x.pieces = nil
}

// close releases everything: the stream's end is the request's end, whether it finished or its client left.
func (x *exchange) close() {
	x.heard() // with trailers to come, no piece says that it is the last
	if x.decision != nil {
		x.decision.Done.End()
	}
	x.headers.free()
	x.freePieces()
}

// shape describes the exchange without its content, for a panic's record.
func (x *exchange) shape() string {
	return fmt.Sprintf("mode=%s path=%q method=%s body_bytes=%d stage=%d", x.protocol.request, x.request.path,
		x.request.method, x.bodyBytes, x.stage)
}
