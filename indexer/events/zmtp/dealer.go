package zmtp

import (
	"context"
	"fmt"
	"net"
	"time"
)

// Dealer is a DEALER socket with one connection: it asks a ROUTER something and takes in as many answers as come. It does
// not reconnect; who asked knows best whether to ask again. One goroutine at a time may receive, any may send or close.
type Dealer struct {
	ctx  context.Context
	stop func() bool
	at   string
	c    *conn
}

// DialDealer connects and shakes hands. ctx bounds the whole life of the Dealer: when it ends, whatever is going on returns
// its error. Replays need a deadline in it, for engines leave requests that they do not understand without an answer.
func DialDealer(ctx context.Context, at string, cfg Config) (*Dealer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	e, err := parseEndpoint(at, false)
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(cfg.Timeout)
	dialing, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	nc, err := e.dial(dialing)
	if err != nil {
		return nil, fmt.Errorf("dialling %s: %w", at, err)
	}
	return newDealer(ctx, at, nc, cfg, until)
}

func newDealer(ctx context.Context, at string, nc net.Conn, cfg Config, until time.Time) (*Dealer, error) {
	d := &Dealer{ctx: ctx, at: at, c: newConn(nc, cfg)}
	d.stop = context.AfterFunc(ctx, func() { _ = nc.Close() })
	_, err := d.c.handshake(typeDealer, until)
	if err == nil {
		err = d.c.watch(cfg)
	}
	if err != nil {
		d.Close()
		return nil, d.explain("shaking hands with", err)
	}
	return d, nil
}

// Send sends one message. A ROUTER that serves REQ sockets, too, wants an empty frame first.
func (d *Dealer) Send(frames ...[]byte) error {
	if len(frames) == 0 {
		return nil
	}
	return d.explain("sending to", d.c.send(frames))
}

// Receive waits for the next message, which is valid until the following call. An error is final.
func (d *Dealer) Receive() (Message, error) {
	m, err := d.c.receive()
	return m, d.explain("receiving from", err)
}

// Close ends the connection. It may be called more than once.
func (d *Dealer) Close() {
	d.stop()
	_ = d.c.nc.Close()
}

func (d *Dealer) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	if d.ctx.Err() != nil {
		err = context.Cause(d.ctx)
	}
	return fmt.Errorf("%s %s: %w", doing, d.at, err)
}
