package state

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// longestCommand is the longest that a command may take, whatever its context says.
const longestCommand = time.Minute

var errClosed = errors.New("the store is closed")

// Redis is the store that replicas share. Calls are refused when their arguments break a bound, and fail when Redis does not answer in the
// time they have; errors say which address was asked, and never hold a password. When a connection breaks, a call is repeated, as far as its
// time allows, for that changes nothing; only Append never is. Safe for concurrent use.
type Redis struct {
	cfg     Config
	keys    keys
	limits  limits
	where   string
	scripts scripts
	watch   *watch
	metrics *metrics
	connect func() redis.UniversalClient
	client  redis.UniversalClient

	mu      sync.Mutex // guards what follows
	closed  bool
	readers map[redis.UniversalClient]bool // those of Read, and whether one is in use

	apart sync.WaitGroup // what aside runs; added to under mu, while the store is open
}

var _ Store = (*Redis)(nil)

// Params are the collaborators of a store.
type Params struct {
	Config  Config
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// New makes the store that the configuration wants: Memory without addresses, else Redis. It connects to nobody: a Redis that is away makes
// calls fail, and not the start.
func New(p Params) (Store, error) {
	if !p.Config.Enabled() {
		return NewMemory(p.Config), nil
	}
	return NewRedis(p)
}

// NewRedis makes a store in Redis.
func NewRedis(p Params) (*Redis, error) {
	if err := p.Config.Validate(); err != nil {
		return nil, err
	}
	connect, err := connector(p.Config)
	if err != nil {
		return nil, err
	}
	r := &Redis{cfg: p.Config, keys: keys{p.Config.Prefix}, limits: p.Config.limits(), where: strings.Join(p.Config.Addresses, ","),
		connect: connect, readers: map[redis.UniversalClient]bool{}}
	if r.scripts, err = loadScripts(); err != nil {
		return nil, err
	}
	r.watch = &watch{interval: p.Config.PingInterval, timeout: p.Config.Timeout, ping: r.ping, where: r.where, log: p.Log,
		health: Health{Since: time.Now(), Err: errNotAsked}}
	r.metrics = newMetrics(p.Metrics, r.watch)
	r.client = connect()
	return r, nil
}

// Health implements Store.
func (r *Redis) Health() Health { return r.watch.now() }

// Run implements Store.
func (r *Redis) Run(ctx context.Context) error {
	r.watch.run(ctx)
	return nil
}

func (r *Redis) ping(ctx context.Context) error {
	return r.do(ctx, opPing, "", func(ctx context.Context) error { return r.client.Ping(ctx).Err() })
}

// Close implements Store. It takes as long as a connection that is being made.
func (r *Redis) Close() error {
	r.mu.Lock()
	readers, closed := r.readers, r.closed
	r.readers, r.closed = nil, true
	r.mu.Unlock()
	if closed {
		return nil
	}
	err := r.client.Close()
	for reader := range readers {
		_ = reader.Close() // which discard may have done
	}
	r.apart.Wait()
	return err
}

// aside runs something that Close waits for, unless the store is closed.
func (r *Redis) aside(run func()) (open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.apart.Go(run)
	}
	return !r.closed
}

// do makes one call: it gives it a deadline, counts it, and says in its error what was asked of whom.
func (r *Redis) do(ctx context.Context, op, name string, call func(context.Context) error) error {
	ctx, cancel := r.limit(ctx)
	defer cancel()
	start := time.Now()
	err := r.explain(ctx, op, name, call(ctx))
	if errors.Is(err, ErrNone) || errors.Is(err, ErrFull) {
		r.metrics.observe(op, time.Since(start), nil)
		return err
	}
	r.metrics.observe(op, time.Since(start), err)
	return err
}

// limit gives a call a deadline, unless it has one.
func (r *Redis) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, r.cfg.Timeout)
}

// explain says what failed. An error that comes of the call's end is one of its context.
func (r *Redis) explain(ctx context.Context, op, name string, err error) error {
	if err == nil || errors.Is(err, ErrNone) || errors.Is(err, ErrFull) {
		return err
	}
	why := ""
	switch ended := ctx.Err(); {
	case ended != nil:
		err = ended
	case errors.Is(err, os.ErrDeadlineExceeded): // the socket's deadline is the context's, and may come just before it
		err = context.DeadlineExceeded
	case errors.Is(err, redis.ErrClosed), errors.Is(err, net.ErrClosed):
		err = errClosed
	case strings.HasPrefix(err.Error(), "MOVED "):
		why = ` (this is a cluster: redis.mode must be "cluster")`
	}
	if name != "" {
		op += fmt.Sprintf(" %q", name)
	}
	return fmt.Errorf("redis %s: %s: %w%s", r.where, op, err, why)
}

// run calls a script by its hash, and gives it to a server that does not know it.
func (r *Redis) run(ctx context.Context, s *script, keys []string, args ...any) *redis.Cmd {
	return s.known.Run(ctx, r.client, keys, args...)
}
