package zmtp

import (
	"encoding/binary"
	"strings"
	"time"
)

// Commands are frames whose body is a name, preceded by its length, and data: READY and ERROR of RFC 23; PING, PONG,
// SUBSCRIBE and CANCEL of RFC 37. Unknown ones are ignored, so that a later version can add some.
const (
	cmdReady     = "READY"
	cmdError     = "ERROR"
	cmdPing      = "PING"
	cmdPong      = "PONG"
	cmdSubscribe = "SUBSCRIBE"
	cmdCancel    = "CANCEL"
)

const (
	// maxCommand bounds the body of a command. READY with the longest identity takes 300 bytes; subscriptions are messages
	// in ZMTP 3.0.
	maxCommand = 8 << 10
	// maxContext is the longest context that a PONG returns, RFC 37.
	maxContext = 16
	// maxIdentity is the longest identity, RFC 23.
	maxIdentity = 255
)

// appendCommand appends the frame of a command.
func appendCommand(b []byte, name string, data []byte) []byte {
	body := make([]byte, 0, 1+len(name)+len(data))
	body = append(append(append(body, byte(len(name))), name...), data...)
	return appendFrame(b, flagCommand, body)
}

// cutCommand splits the body of a command. Both halves lie in the body.
func cutCommand(body []byte) (name, data []byte, err error) {
	if len(body) == 0 || body[0] == 0 || int(body[0]) > len(body)-1 {
		return nil, nil, because(ErrProtocol, "a command of %d bytes without a name", len(body))
	}
	n := 1 + int(body[0])
	return body[1:n], body[n:], nil
}

// ready is the metadata of a READY command.
type ready struct {
	socket   string
	identity string
}

// frame is the READY command.
func (r ready) frame() []byte {
	var data []byte
	for _, p := range [...]struct{ name, value string }{{"Socket-Type", r.socket}, {"Identity", r.identity}} {
		data = append(append(data, byte(len(p.name))), p.name...)
		data = append(binary.BigEndian.AppendUint32(data, uint32(len(p.value))), p.value...)
	}
	return appendCommand(nil, cmdReady, data)
}

// parseReady reads the metadata: each property a name, preceded by its length in one byte, and a value, preceded by its
// length in four. Names differ in case at will; unknown ones are ignored.
func parseReady(data []byte) (ready, error) {
	var r ready
	for len(data) > 0 {
		n := int(data[0])
		if n == 0 || len(data) < 1+n+4 {
			return r, because(ErrProtocol, "READY ends inside the name of a property")
		}
		name, rest := string(data[1:1+n]), data[1+n+4:]
		size := binary.BigEndian.Uint32(data[1+n:])
		if uint64(size) > uint64(len(rest)) {
			return r, because(ErrProtocol, "READY ends inside its property %q", name)
		}
		value := string(rest[:size])
		data = rest[size:]
		switch strings.ToLower(name) {
		case "socket-type":
			r.socket = value
		case "identity":
			r.identity = value
		}
	}
	if len(r.identity) > maxIdentity {
		return r, because(ErrLimit, "an identity of %d bytes; the longest is %d", len(r.identity), maxIdentity)
	}
	return r, nil
}

// parseError is the reason of an ERROR command, which is preceded by its length.
func parseError(data []byte) string {
	if len(data) == 0 {
		return ""
	}
	return string(data[1:min(len(data), 1+int(data[0]))])
}

// parsePing reads a PING: after how much more silence the peer is gone (0: it does not say), and what the PONG returns.
func parsePing(data []byte) (ttl time.Duration, context []byte, err error) {
	if len(data) < 2 {
		return 0, nil, because(ErrProtocol, "a PING of %d bytes without its time to live", len(data))
	}
	ttl = time.Duration(binary.BigEndian.Uint16(data)) * 100 * time.Millisecond
	return ttl, data[2:min(len(data), 2+maxContext)], nil
}
