package zmtp

import (
	"errors"
	"fmt"
)

// Why a peer was given up; errors.Is finds them in what sockets return and tell.
var (
	// ErrProtocol: the peer sent what ZMTP 3.0 does not allow. Mostly it is no ZeroMQ socket at all.
	ErrProtocol = errors.New("the peer breaks ZMTP 3.0")
	// ErrMismatch: the peer speaks ZMTP, but a version, a mechanism or a socket type that does not fit ours.
	ErrMismatch = errors.New("the peer does not fit")
	// ErrLimit: the peer sent more than Config allows.
	ErrLimit = errors.New("the peer exceeds a limit")
	// ErrSilent: the peer left PINGs, or the handshake, without an answer.
	ErrSilent = errors.New("the peer is silent")
)

// because puts a cause behind one of the errors above.
func because(kind error, format string, args ...any) error {
	return fmt.Errorf("%w: %s", kind, fmt.Sprintf(format, args...))
}
