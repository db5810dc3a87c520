// Package warm keeps prompts in the caches of engines after their requests are over, for clients that say how long they will come back
// to them.
//
// An engine's cache throws away what was used longest ago. So a kept prompt is sent to its worker again, at an interval, for one token
// of an answer that nobody reads: the engine finds it in its cache, and has used it last. The schedule says what is due; the Keeper sends
// it, past Envoy. No engine has a released interface by which blocks could be held instead.
//
// Where clients want the next turn's prompt computed ahead, the first time comes at once, and what is sent is the conversation with the
// answer that it got.
//
// Bodies are in memory only, for as long as their clients said, within a bound, and never in a log or an error. Nothing of a client's
// headers is kept.
package warm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/field"
	"attache/internal/router"
	"attache/internal/worker"
)

// Workers is who serves.
type Workers interface{ Set() *worker.Set }

// Keeper keeps prompts; it is the router's Keeper. Safe for concurrent use.
type Keeper struct {
	cfg        Config
	key        string // that engines demand; "" none
	rankHeader string
	workers    Workers
	now        func() time.Time
	log        *slog.Logger
	metrics    *metrics
	client     *http.Client
	hurry      chan struct{} // something is due at once

	mu     sync.Mutex // guards what follows, and the entries of plan
	plan   *schedule
	warned time.Time // of a failure
}

// Params are the collaborators of a Keeper.
type Params struct {
	Config  Config
	Workers Workers
	// RankHeader is the request header that tells engines which data-parallel rank is to answer.
	RankHeader string
	Now        func() time.Time
	Log        *slog.Logger
	Metrics    prometheus.Registerer
	// Transport takes requests to engines; nil: over TCP.
	Transport http.RoundTripper
}

// New makes a keeper; Run sends what is due. The configuration must have been validated.
func New(p Params) (*Keeper, error) {
	k := &Keeper{cfg: p.Config, rankHeader: p.RankHeader, workers: p.Workers, now: p.Now, log: p.Log, plan: newSchedule(p.Config), hurry: make(chan struct{}, 1)}
	if p.Config.APIKeyFile != "" {
		var err error
		if k.key, err = field.ReadKey(p.Config.APIKeyFile); err != nil {
			return nil, fmt.Errorf("warm.api_key_file: %s: %w", p.Config.APIKeyFile, err)
		}
	}
	if p.Transport == nil {
		p.Transport = &http.Transport{ // without a proxy: prompts and the key go to workers and nowhere else
			MaxIdleConnsPerHost: p.Config.Concurrency, IdleConnTimeout: idle, DisableCompression: true, MaxResponseHeaderBytes: maxAnswer,
		}
	}
	k.client = &http.Client{Transport: p.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	k.metrics = newMetrics(p.Metrics, k)
	return k, nil
}

const (
	idle      = 30 * time.Second // that a connection is kept open for the next prompt
	maxAnswer = 64 << 10         // bytes of an answer that are read, so that its connection can be used again
	tick      = time.Second      // how often it is looked what is due
)

// Keep implements router.Keeper.
func (k *Keeper) Keep(p *router.Prompt) (ended func(*router.Place)) {
	k.mu.Lock()
	e, crowded := k.plan.add(p)
	k.mu.Unlock()
	k.metrics.skipped.WithLabelValues(skippedRoom).Add(float64(crowded))
	return func(at *router.Place) {
		k.mu.Lock()
		crowded := k.plan.ended(e, at, k.now())
		k.mu.Unlock()
		k.metrics.skipped.WithLabelValues(skippedRoom).Add(float64(crowded))
		if at != nil && len(at.Next) > 0 {
			select {
			case k.hurry <- struct{}{}:
			default: // it is looked soon anyway
			}
		}
	}
}

// Forget implements router.Keeper.
func (k *Keeper) Forget(key uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plan.forget(key)
}

// Run sends what is due until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	var sending sync.WaitGroup
	defer k.client.CloseIdleConnections()
	defer sending.Wait()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	free, done := k.cfg.Concurrency, make(chan struct{}, k.cfg.Concurrency)
	var due []*entry
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-k.hurry:
		case <-done:
			free++
		}
		due = k.take(due[:0], free)
		for _, e := range due {
			free--
			sending.Go(func() {
				k.refresh(ctx, e)
				done <- struct{}{} // there is room: no more are sent than it holds
			})
		}
		clear(due)
	}
}

func (k *Keeper) take(due []*entry, most int) []*entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.plan.take(due, k.now(), most)
}

// refresh sends one prompt, if its worker is there to take it.
func (k *Keeper) refresh(ctx context.Context, e *entry) {
	k.mu.Lock()
	p, at := e.prompt, e.place
	k.mu.Unlock()
	again := true
	switch state, same := k.look(at); {
	case !same:
		k.metrics.skipped.WithLabelValues(skippedGone).Inc()
		again = false
	case state != worker.Ready:
		k.metrics.skipped.WithLabelValues(skippedWorker).Inc()
	default:
		status, err := k.send(ctx, p, at)
		again = ctx.Err() != nil || k.tell(at, status, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plan.sent(e, k.now(), again)
}

// look is the state of the worker now; same is false when it cannot hold the prompt any more.
func (k *Keeper) look(at *router.Place) (state worker.State, same bool) {
	w := k.workers.Set().ByAddr(at.Worker.Addr)
	if w == nil || w.Slot != at.Worker.Slot || w.Epoch != at.Worker.Epoch {
		return "", false
	}
	return w.State, true
}

// warnEvery is how often failures are written to the log at most.
const warnEvery = time.Minute

// tell counts what became of a prompt that was sent, and reports whether it is of use to send it again.
func (k *Keeper) tell(at *router.Place, status int, err error) (again bool) {
	if err == nil && status == http.StatusOK {
		k.metrics.sent.Inc()
		if _, same := k.look(at); same && at.Held != nil {
			at.Held()
		}
		return true
	}
	k.metrics.failed.Inc()
	if k.warns() {
		k.log.Warn("a prompt could not be kept warm", "worker", at.Worker.Name, "status", status, "error", err)
	}
	refused := status >= 400 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests
	return !refused // it would be again
}

// warns reports whether a failure is to be written to the log.
func (k *Keeper) warns() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if !k.warned.IsZero() && now.Sub(k.warned) < warnEvery {
		return false
	}
	k.warned = now
	return true
}

// send asks the worker for one token after the prompt, or after the next turn's as far as that is known. status is 0 with an error, which does not hold the request.
func (k *Keeper) send(ctx context.Context, p *router.Prompt, at *router.Place) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.Timeout)
	defer cancel()
	to, err := url.ParseRequestURI(p.Path)
	if err != nil {
		return 0, err
	}
	body := oneToken(p.Kind, p.Body)
	if len(at.Next) > 0 {
		body = nextTurn(body, at.Next)
	}
	to = &url.URL{Scheme: "http", Host: at.Worker.Endpoint, Path: to.Path, RawPath: to.RawPath} // whatever the path says
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	if k.key != "" {
		req.Header.Set("Authorization", "Bearer "+k.key)
	}
	if at.Rank != "" {
		req.Header.Set(k.rankHeader, at.Rank)
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
	return resp.StatusCode, nil
}
