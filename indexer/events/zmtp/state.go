package zmtp

import "time"

// State is where a connection stands. Every Connecting is followed by Lost, with Connected in between if the handshake
// went well; Lost also ends the connections that the socket itself closes.
type State string

// The states, as they are logged.
const (
	// Connecting: the peer is being dialled, or was accepted, and has yet to shake hands.
	Connecting State = "connecting"
	// Connected: messages flow.
	Connected State = "connected"
	// Lost: there is no connection, for the reason told.
	Lost State = "lost"
)

// Peer is one connection of a socket.
type Peer struct {
	// ID tells the connections of a socket apart. It grows from 1; a peer that comes back has a new one.
	ID uint64
	// Address is the peer's: the endpoint that is dialled, or where an accepted connection comes from.
	Address string
}

// Change is told when the state of a connection changes.
type Change struct {
	State    State
	Endpoint string // of the socket, as configured
	Peer     Peer   // its ID is 0 when the socket could not accept at all
	// Err is why the connection was lost; errors.Is finds the errors of this package, and context.Canceled when the socket
	// was stopped.
	Err error
	// Pause is how long a lost endpoint is left alone before it is dialled again. 0: it is not, or the peer dials.
	Pause time.Duration
}
