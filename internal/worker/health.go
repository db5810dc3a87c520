package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"syscall"
	"time"
)

// checkHealth asks one worker for its health until ctx ends: at once, then at intervals, and whenever a request met a
// failure.
func (r *Registry) checkHealth(ctx context.Context, spec Spec, probe <-chan struct{}, proven *proof) {
	for {
		h := r.askCanary(ctx, spec, r.askHealth(ctx, spec), proven)
		if ctx.Err() != nil {
			return
		}
		r.metrics.checks.WithLabelValues(result(h.ok)).Inc()
		cfg := &r.cfg.Load().Health
		r.change(spec.Addr, func(e *entry, _ time.Time) { e.check(h, *cfg) })
		// A little chance keeps a thousand checks from falling on one moment.
		pause := time.NewTimer(cfg.Interval + rand.N(cfg.Interval/10+1))
		select {
		case <-pause.C:
		case <-probe:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

// maxHealthBody bounds what is read of an answer; nothing in it matters.
const maxHealthBody = 64 << 10

func (r *Registry) askHealth(ctx context.Context, spec Spec) health {
	timeout := r.cfg.Load().Health.Timeout
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	url := "http://" + spec.Addr.String() + r.healthPath(spec)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return health{cause: err.Error()}
	}
	resp, err := r.client.Do(req)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return health{refused: true, cause: "connection refused on GET " + url}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return health{cause: fmt.Sprintf("no answer within %s on GET %s", timeout, url)}
	case err != nil:
		return health{cause: fmt.Sprintf("GET %s: %v", url, errors.Unwrap(err))}
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxHealthBody))
	switch {
	case resp.StatusCode < 300:
		return health{ok: true}
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed:
		return health{ok: true, cause: fmt.Sprintf("it answers, but has no health check: status %d on GET %s", resp.StatusCode, url)}
	default:
		return health{cause: fmt.Sprintf("status %d on GET %s", resp.StatusCode, url)}
	}
}

// healthPath is what is asked. SGLang's /health generates a token; its /model_info answers when the server is up.
func (r *Registry) healthPath(spec Spec) string {
	if path := r.cfg.Load().Health.Path; path != "" {
		return path
	}
	if w := r.Set().ByAddr(spec.Addr); w != nil && w.Runs() == SGLang {
		return "/model_info"
	}
	return "/health"
}
