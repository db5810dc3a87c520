package field

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// Listen opens a checked listen address. A socket file that nobody serves any more is removed; one that is served, and a
// port that is taken, are errors that say what to do.
func Listen(address string) (net.Listener, error) {
	network, where := Network(address)
	if network == "unix" {
		if err := os.MkdirAll(filepath.Dir(where), 0o755); err != nil {
			return nil, err
		}
		if conn, err := net.Dial(network, where); err == nil {
			_ = conn.Close()
			return nil, fmt.Errorf("%s: another process serves this socket", address)
		}
		if info, err := os.Lstat(where); err == nil {
			if info.Mode().Type() != os.ModeSocket {
				return nil, fmt.Errorf("%s: there is a file which is not a socket; choose another path", address)
			}
			if err := os.Remove(where); err != nil {
				return nil, err
			}
		}
	}
	l, err := net.Listen(network, where)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w; is attache running already? Choose another address, or port 0 for a free one", err)
	}
	return l, err
}
