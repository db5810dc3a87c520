package direct

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"attache/internal/field"
)

// Node is this process among the replicas: it listens for all pools. Safe for concurrent use.
type Node struct {
	cfg       Config
	name      string
	process   random
	log       *slog.Logger
	metrics   *metrics
	directory *directory
	listener  net.Listener
	grpc      *grpc.Server
	dial      func(ctx context.Context, address string) (net.Conn, error)
	streams   atomic.Int64 // open, whether let in or not
	refused   atomic.Int64 // when it was last told, in Unix nanoseconds

	mu    sync.Mutex // guards what follows
	pools map[string]*Link
}

// Params are what a Node needs.
type Params struct {
	Config  Config
	Name    string // of this replica, at most 255 bytes
	Lookup  Lookup // nil: as the machine does
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// The one method, and what both ends of a connection agree on.
const (
	serviceName  = "attache.replica.v1.Replica"
	methodName   = "Follow"
	followMethod = "/" + serviceName + "/" + methodName
	pingEvery    = 10 * time.Second // when nothing is heard
	pingTimeout  = 5 * time.Second
	mostStreams  = 256 // of subscribers, all pools together
	socketBuffer = 64 << 10
	window       = 1 << 20 // what may be on its way to one replica
)

var followDesc = grpc.StreamDesc{StreamName: methodName, ServerStreams: true, ClientStreams: true}

// New opens the listener; Run serves it. The configuration must be valid and enabled.
func New(p Params) (*Node, error) {
	listener, err := field.Listen(p.Config.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	n, err := newNode(p, listener, (&net.Dialer{}).DialContext)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return n, nil
}

// newNode makes a node on an open listener, which it owns unless there is an error.
func newNode(p Params, listener net.Listener, dial func(ctx context.Context, network, address string) (net.Conn, error)) (*Node, error) {
	if len(p.Name) > mostText {
		return nil, fmt.Errorf("the replica's name has %d bytes: must be at most %d", len(p.Name), mostText)
	}
	if p.Lookup == nil {
		p.Lookup = net.DefaultResolver
	}
	where, err := newDirectory(p.Config, p.Lookup, p.Log)
	if err != nil {
		return nil, err
	}
	n := &Node{
		cfg: p.Config, name: p.Name, process: newRandom(), log: p.Log, directory: where, listener: listener, pools: map[string]*Link{},
		dial: func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) },
	}
	if n.metrics, err = newMetrics(p.Metrics, n); err != nil {
		return nil, err
	}
	n.grpc = grpc.NewServer(
		grpc.Creds(p.Config.TLS.server()),
		grpc.ForceServerCodecV2(codec{}),
		grpc.MaxRecvMsgSize(maxHello),
		grpc.MaxConcurrentStreams(4), // of one connection; a replica needs one
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.ReadBufferSize(4<<10), grpc.WriteBufferSize(socketBuffer),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingEvery / 2}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingEvery, Timeout: pingTimeout, MaxConnectionIdle: time.Minute}),
	)
	desc := followDesc
	desc.Handler = func(_ any, stream grpc.ServerStream) error { return n.serve(stream) }
	n.grpc.RegisterService(&grpc.ServiceDesc{ServiceName: serviceName, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{desc}}, n)
	return n, nil
}

// Addr is where the node listens.
func (n *Node) Addr() net.Addr { return n.listener.Addr() }

// Link is how the replicas of a pool tell each other; the same for every call with the same name, of at most 255 bytes.
func (n *Node) Link(pool string) *Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.pools[pool]
	if l == nil {
		figures := n.metrics.of(pool)
		l = &Link{node: n, pool: pool, figures: figures, hub: hub{buffer: int(n.cfg.Buffer), figures: figures, subscribers: map[*subscriber]bool{}}}
		n.pools[pool] = l
	}
	return l
}

// links are those of all pools.
func (n *Node) links() []*Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]*Link, 0, len(n.pools))
	for _, l := range n.pools {
		all = append(all, l)
	}
	return all
}

// lastWords is how long subscribers may take to be told what waits when the node stops.
const lastWords = time.Second

// Run listens and looks names up until ctx ends; then subscribers are told what was published until then. End it after whatever
// publishes.
func (n *Node) Run(ctx context.Context) error {
	looking, done := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { n.directory.run(looking) })
	defer running.Wait()
	defer done()
	failed := make(chan error, 1)
	go func() { failed <- n.grpc.Serve(n.listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("replicas cannot connect: %w", err)
	case <-ctx.Done():
	}
	for _, l := range n.links() {
		l.hub.close()
	}
	stopped := make(chan struct{})
	go func() { n.grpc.GracefulStop(); close(stopped) }()
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-timer.C:
	}
	n.grpc.Stop()
	<-stopped
	if err := <-failed; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before it began is stopped, too
		return fmt.Errorf("replicas cannot connect: %w", err)
	}
	return nil
}

// serve tells one follower what its pool publishes.
func (n *Node) serve(stream grpc.ServerStream) error {
	defer n.streams.Add(-1)
	if n.streams.Add(1) > mostStreams {
		return n.refuse(status.Errorf(codes.ResourceExhausted, "there are %d streams already", mostStreams))
	}
	by, err := n.greeted(stream)
	if err != nil {
		return n.refuse(err)
	}
	n.mu.Lock()
	l := n.pools[by.pool]
	n.mu.Unlock()
	if l == nil {
		return status.Error(codes.NotFound, "this replica has no such pool")
	}
	s := newSubscriber(by.process, by.name)
	if err := l.hub.subscribe(s); err != nil { // before it is told that it is: what comes after that must not be missed
		return err
	}
	if f := l.following.Load(); f != nil {
		f.joinedBy(by.process)
	}
	sent := make(chan error, 1)
	go func() { // ends with the stream, even where the other end takes nothing
		err := stream.SendMsg([]byte(nil))
		if err == nil {
			err = l.hub.send(stream.Context(), s, stream.SendMsg)
		}
		sent <- err
	}()
	select {
	case err = <-sent:
	case <-s.over:
	}
	if why := l.hub.leave(s); why != nil {
		n.log.Warn("a replica was cut off", "replica", s.name, "pool", l.pool, "error", plain(why))
		return why
	}
	return err
}

// greeted receives a greeting and proves, as handshake.go draws it, within the time for that.
func (n *Node) greeted(stream grpc.ServerStream) (*greeting, error) {
	type result struct {
		by  *greeting
		err error
	}
	done := make(chan result, 1)
	go func() { // ends with the stream
		by, err := n.greet(stream)
		done <- result{by, err}
	}()
	timer := time.NewTimer(handshakeTimeout)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.by, r.err
	case <-timer.C:
		return nil, status.Error(codes.DeadlineExceeded, "the handshake takes too long")
	}
}

func (n *Node) greet(stream grpc.ServerStream) (*greeting, error) {
	token, err := readToken(n.cfg.TokenFile)
	if err != nil {
		n.log.Error("no replica can connect", "error", err)
		return nil, status.Error(codes.Unavailable, "this replica cannot read its token")
	}
	var m incoming
	defer m.free()
	var by greeting
	if err := stream.RecvMsg(&m); err != nil {
		return nil, err
	}
	if rest, err := by.decode(m.bytes()); err != nil || len(rest) > 0 {
		return nil, status.Error(codes.InvalidArgument, errGreeting.Error())
	}
	own := greeting{pool: by.pool, name: n.name, process: n.process, nonce: newRandom()}
	if err := stream.SendMsg(append(own.append(nil), prove(token, ofFollowed, &by, &own)...)); err != nil {
		return nil, err
	}
	if err := stream.RecvMsg(&m); err != nil {
		return nil, err
	}
	if !proven(m.bytes(), token, ofFollower, &by, &own) {
		return nil, status.Error(codes.Unauthenticated, errToken.Error())
	}
	return &by, nil
}

// refuse counts one who was not let in, and tells of it once a minute. Who ends a stream before it has proved anything is no matter:
// replicas that find themselves do so.
func (n *Node) refuse(err error) error {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.Unauthenticated, codes.DeadlineExceeded, codes.ResourceExhausted:
	default:
		return err
	}
	n.metrics.refused.Inc()
	now := time.Now().UnixNano()
	if last := n.refused.Load(); now-last > int64(time.Minute) && n.refused.CompareAndSwap(last, now) {
		n.log.Warn("somebody who wanted to follow this replica was not let in", "error", plain(err))
	}
	return err
}
