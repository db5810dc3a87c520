package extproc

import (
	"bytes"

	"attache/internal/openai"
)

// maxHeard is how many bytes of an answer's text are gathered; longer ones are passed over.
const maxHeard = 1 << 20

// listens begins to gather the answer whose headers these are, if it is wanted and can be understood, and reports whether the gateway is
// to send it. In full duplex a gateway does not change its mode.
func (x *exchange) listens(m *message) bool {
	if x.decision == nil || !x.decision.Ahead || x.protocol.request != modeBuffered || m.endOfStream {
		return false
	}
	ok, plain, kind := false, true, []byte(nil)
	m.eachHeader(func(key, value []byte) {
		switch string(key) {
		case ":status":
			ok = string(value) == "200"
		case "content-encoding":
			plain = len(value) == 0 || string(value) == "identity"
		case "content-type":
			kind = value
		}
	})
	stream := bytes.HasPrefix(kind, []byte("text/event-stream"))
	if !ok || !plain || !stream && !bytes.HasPrefix(kind, []byte("application/json")) {
		return false
	}
	x.answer = openai.NewAnswer(stream, maxHeard)
	return true
}

// listen gathers a piece of the answer.
func (x *exchange) listen(m *message) {
	if x.answer == nil {
		return
	}
	if x.answer.Add(m.body); m.endOfStream {
		x.heard()
	}
}

// heard hands over what was gathered, if the answer is complete.
func (x *exchange) heard() {
	if x.answer == nil {
		return
	}
	if next, ok := x.answer.NextTurn(); ok {
		x.decision.Done.Answered(next)
	}
	x.answer = nil
}
