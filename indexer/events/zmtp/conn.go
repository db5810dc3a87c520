package zmtp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// conn is one connection to one peer. One goroutine receives; any may send.
type conn struct {
	nc      net.Conn
	timeout time.Duration // of a write
	reader  reader
	pulse   pulse
	// control sends a frame that must not wait behind messages, such as a PONG. It may keep the bytes no longer than the
	// call. Pub, which must not block, has one of its own.
	control func(frame []byte) error
	// command takes in the commands that are a socket's own; nil: there are none.
	command func(name, data []byte) error
	armed   bool   // a deadline for the peer's silence is set
	scratch []byte // of the control frame in the making

	mu  sync.Mutex
	out []byte // the message being written; guarded by mu
}

func newConn(nc net.Conn, cfg Config) *conn {
	c := &conn{nc: nc, timeout: cfg.Timeout}
	c.control = c.write
	// A stranger may greet and introduce itself, no more.
	c.reader = reader{src: c, limits: limits{frame: maxCommand, frames: 1, message: maxCommand + maxHeader}}
	return c
}

// lastLook is how long a peer is listened to once more before it is given up. Reading does not even look for bytes after its
// deadline.
const lastLook = 10 * time.Millisecond

// Read makes the peer's silence an error, having asked it for life before. Only the reader calls it.
func (c *conn) Read(p []byte) (int, error) {
	for {
		wait := c.pulse.wait()
		if wait > 0 || c.armed {
			var until time.Time
			if c.armed = wait > 0; c.armed {
				until = time.Now().Add(wait)
			}
			_ = c.nc.SetReadDeadline(until) // it fails on a closed connection alone, of which Read tells more
		}
		n, err := c.nc.Read(p)
		switch {
		case n > 0:
			c.pulse.heard()
			return n, nil
		case errors.Is(err, io.EOF):
			return 0, fmt.Errorf("the peer closed the connection: %w", err)
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		case wait == 0:
			return 0, because(ErrSilent, "the handshake is not complete")
		case c.pulse.expired():
			// Perhaps it was this process that slept, and what came meanwhile waits in the kernel.
			if err := c.nc.SetReadDeadline(time.Now().Add(lastLook)); err != nil {
				return 0, err
			}
			if n, _ := c.nc.Read(p); n > 0 {
				c.pulse.heard()
				return n, nil
			}
			if !c.pulse.asked {
				return 0, because(ErrSilent, "nothing came for %s, though its own PING promised something", c.pulse.quiet)
			}
			return 0, because(ErrSilent, "nothing came for %s, nor an answer to a PING", c.pulse.quiet)
		}
		// Its time to live is 0, unlimited: the peer need not watch us.
		c.scratch = appendCommand(c.scratch[:0], cmdPing, []byte{0, 0})
		if err := c.control(c.scratch); err != nil {
			return 0, err
		}
	}
}

// watch begins to look after a peer that has shaken hands.
func (c *conn) watch(cfg Config) error {
	c.reader.limits = cfg.limits()
	c.pulse = pulse{interval: cfg.HeartbeatInterval, timeout: cfg.HeartbeatTimeout}
	return c.nc.SetDeadline(time.Time{}) // of the handshake
}

// receive returns the next message, whose frames are valid until the following call, and answers commands on the way.
func (c *conn) receive() (Message, error) {
	for {
		m, command, err := c.reader.next()
		if m != nil || err != nil {
			return m, err
		}
		if err := c.obey(command); err != nil {
			return nil, err
		}
	}
}

func (c *conn) obey(body []byte) error {
	name, data, err := cutCommand(body)
	if err != nil {
		return err
	}
	switch string(name) {
	case cmdPing:
		ttl, context, err := parsePing(data)
		if err != nil {
			return err
		}
		c.pulse.ttl = ttl
		c.scratch = appendCommand(c.scratch[:0], cmdPong, context)
		return c.control(c.scratch)
	case cmdError:
		return because(ErrMismatch, "it gave up with the error %q", parseError(data))
	default:
		if c.command != nil {
			return c.command(name, data)
		}
		return nil
	}
}

// send writes one message, waiting for a slow peer no longer than the timeout.
func (c *conn) send(frames [][]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = appendMessage(c.out[:0], frames)
	err := c.writeLocked(c.out)
	if cap(c.out) > maxKept {
		c.out = nil
	}
	return err
}

func (c *conn) write(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writeLocked(b)
}

func (c *conn) writeLocked(b []byte) error {
	if err := c.nc.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return err
	}
	_, err := c.nc.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// Half a frame may have gone, so nothing can follow it.
		_ = c.nc.Close()
		return because(ErrSilent, "it took in nothing for %s", c.timeout)
	}
	return err
}
