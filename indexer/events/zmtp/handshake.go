package zmtp

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// greetingSize is the size of a greeting, RFC 23 "Greeting":
//
//	byte   0  1…8  9   10     11     12…31      32         33…63
//	       ff   0  7f  major  minor  mechanism  as-server  filler
const greetingSize = 64

// greeting is what we send: version 3.0, for then libzmq subscribes by messages and expects no more of us than RFC 23.
func greeting() []byte {
	g := make([]byte, greetingSize)
	g[0], g[9], g[10] = 0xff, 0x7f, 3
	copy(g[12:], mechanism)
	return g
}

const mechanism = "NULL"

// The socket types, as READY spells them, and which of them each of ours talks to (RFC 23 "Socket types").
const (
	typeSub    = "SUB"
	typeDealer = "DEALER"
	typePub    = "PUB"
	typeRouter = "ROUTER"
)

var fits = map[string][]string{
	typeSub:    {"PUB", "XPUB"},
	typeDealer: {"ROUTER", "REP", "DEALER"},
	typePub:    {"SUB", "XSUB"},
	typeRouter: {"DEALER", "REQ", "ROUTER"},
}

// handshake greets the peer, checks its greeting and exchanges READY, all until a moment. It returns the peer's identity.
func (c *conn) handshake(socket string, until time.Time) (identity string, err error) {
	if err := c.nc.SetDeadline(until); err != nil {
		return "", err
	}
	// Writes set a deadline of their own, but sockets take in as little as this at once.
	if err := c.write(greeting()); err != nil {
		return "", err
	}
	if err := c.checkGreeting(); err != nil {
		return "", err
	}
	if err := c.write(ready{socket: socket}.frame()); err != nil {
		return "", err
	}
	r, err := c.awaitReady()
	if err != nil {
		return "", err
	}
	for _, fit := range fits[socket] {
		if r.socket == fit {
			return r.identity, nil
		}
	}
	return "", because(ErrMismatch, "its socket type is %q; a %s needs %s", r.socket, socket, strings.Join(fits[socket], " or "))
}

// checkGreeting reads no further than it must: an older peer sends less, and waits.
func (c *conn) checkGreeting() error {
	g, err := c.reader.peek(1)
	if err != nil {
		return fmt.Errorf("greeting: %w", err)
	}
	if g[0] != 0xff {
		return c.badSignature()
	}
	if g, err = c.reader.peek(10); err != nil {
		return fmt.Errorf("greeting: %w", err)
	}
	if g[9] != 0x7f {
		return c.badSignature()
	}
	if g, err = c.reader.peek(11); err != nil {
		return fmt.Errorf("greeting: %w", err)
	}
	if g[10] < 3 {
		// The byte is a revision before ZMTP 3: 0 is ZMTP 1.0 and 1 is ZMTP 2.0, of libzmq 2 and 3.
		return because(ErrMismatch, "its version byte is %d; version 3 is needed, as of libzmq 4", g[10])
	}
	if g, err = c.reader.peek(greetingSize); err != nil {
		return fmt.Errorf("greeting: %w", err)
	}
	if name := bytes.TrimRight(g[12:32], "\x00"); string(name) != mechanism {
		return because(ErrMismatch, "its mechanism is %q; only %s is spoken here, without authentication", name, mechanism)
	}
	c.reader.skip(greetingSize)
	return nil
}

func (c *conn) badSignature() error {
	begin := c.reader.buf[c.reader.pos:c.reader.end]
	return because(ErrProtocol, "it begins with %q, but a greeting has ff first and 7f ninth after it; is it a ZeroMQ socket?",
		begin[:min(16, len(begin))])
}

// awaitReady reads the peer's introduction.
func (c *conn) awaitReady() (ready, error) {
	_, command, err := c.reader.next()
	switch {
	case err != nil:
		return ready{}, fmt.Errorf("READY: %w", err)
	case command == nil:
		return ready{}, because(ErrProtocol, "a message came where READY was due")
	}
	name, data, err := cutCommand(command)
	switch {
	case err != nil:
		return ready{}, err
	case string(name) == cmdError:
		return ready{}, because(ErrMismatch, "it refuses us with the error %q", parseError(data))
	case string(name) != cmdReady:
		return ready{}, because(ErrProtocol, "the command %q came where READY was due", name)
	}
	return parseReady(data)
}
