package direct

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// caller follows the replica at one address, for one pool. One goroutine runs it; its state is the follower's.
type caller struct {
	follower *follower
	target   target

	// Guarded by the follower.
	state    state
	err      error // of the last try
	greeting greeting
}

// Pauses between two tries.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 2 * time.Second
	steady       = 5 * time.Second  // a connection that lasted so long was a good one
	otherPause   = 10 * time.Second // for addresses of this process, and of replicas that are followed under another
)

// run calls again and again, until ctx ends or the address is no longer listed. Each try has a connection of its own: files of
// certificates are read anew, and nobody else's pauses count.
func (c *caller) run(ctx context.Context) {
	pause := time.Duration(0)
	for c.follower.wanted(c) {
		begun := time.Now()
		err := c.call(ctx)
		if ctx.Err() != nil {
			return
		}
		c.follower.failed(c, err)
		switch {
		case errors.Is(err, errItself), errors.Is(err, errTwice):
			pause = otherPause
		case time.Since(begun) >= steady:
			pause = firstPause
		default:
			pause = min(max(2*pause, firstPause), longestPause)
		}
		rest(ctx, jitter(pause))
		if ctx.Err() != nil {
			return
		}
	}
}

// call connects once and delivers what it is told. It returns why that has ended.
func (c *caller) call(ctx context.Context) error {
	n := c.follower.node
	secure, err := n.cfg.TLS.client(c.target.host)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+c.target.address.String(),
		grpc.WithTransportCredentials(secure),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return n.dial(ctx, address) }),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxFrame)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout}),
		grpc.WithReadBufferSize(socketBuffer), grpc.WithWriteBufferSize(0),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
	)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(handshakeTimeout, cancel)
	var m incoming
	defer m.free()
	stream, err := c.greet(ctx, conn, &m)
	if !late.Stop() && err != nil {
		return fmt.Errorf("no answer within %v", handshakeTimeout)
	}
	if err != nil {
		return err
	}
	c.follower.joined(c)
	for {
		if err := stream.RecvMsg(&m); errors.Is(err, io.EOF) {
			return errLeft
		} else if err != nil {
			return plain(err)
		}
		if err := c.follower.deliver(m.bytes()); err != nil {
			return err
		}
	}
}

// greet begins a stream, as handshake.go draws it.
func (c *caller) greet(ctx context.Context, conn *grpc.ClientConn, m *incoming) (grpc.ClientStream, error) {
	n := c.follower.node
	token, err := readToken(n.cfg.TokenFile)
	if err != nil {
		return nil, err
	}
	stream, err := conn.NewStream(ctx, &followDesc, followMethod)
	if err != nil {
		return nil, plain(err)
	}
	own := greeting{pool: c.follower.pool, name: n.name, process: n.process, nonce: newRandom()}
	var other greeting
	if err := exchange(stream, own.append(nil), m); err != nil {
		return nil, err
	}
	proof, err := other.decodeProven(m.bytes())
	switch {
	case err != nil:
		return nil, err
	case other.process == n.process:
		return nil, errItself
	case !proven(proof, token, ofFollowed, &own, &other):
		return nil, errToken
	}
	if err := c.follower.claim(c, &other); err != nil {
		return nil, err
	}
	err = exchange(stream, prove(token, ofFollower, &own, &other), m)
	switch {
	case status.Code(err) == codes.NotFound: // from one that has proved who it is
		return nil, errElsewhere
	case err != nil:
		return nil, err
	}
	if len(m.bytes()) > 0 {
		return nil, errGreeting
	}
	return stream, nil
}

// exchange sends a message and receives the answer to it.
func exchange(stream grpc.ClientStream, text []byte, m *incoming) error {
	if err := stream.SendMsg(text); err != nil && !errors.Is(err, io.EOF) { // EOF: receiving tells why
		return plain(err)
	}
	return plain(stream.RecvMsg(m))
}

// plain leaves out of an error of gRPC that it is one; its code stays.
func plain(err error) error {
	if s, is := status.FromError(err); is && err != nil {
		return &callError{s}
	}
	return err
}

// callError is why a call failed, in the words of the other end or of the connection.
type callError struct{ status *status.Status }

func (e *callError) Error() string { return e.status.Message() }

// GRPCStatus lets status.Code find the code.
func (e *callError) GRPCStatus() *status.Status { return e.status }
