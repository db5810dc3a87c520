package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// askCanary asks a worker that answered its health check for a token, if no request succeeded on it for a while. What it answers counts
// as its health: a process can be there, and listen, without anything coming out of it.
func (r *Registry) askCanary(ctx context.Context, spec Spec, h health, proven *proof) health {
	cfg := r.cfg.Load().Health.Canary
	if !h.ok || cfg.Interval == 0 || proven.since() < cfg.Interval {
		return h
	}
	cause, failed := r.complete(ctx, spec)
	if ctx.Err() != nil {
		return h
	}
	r.metrics.canaries.WithLabelValues(result(!failed)).Inc()
	if failed {
		return health{cause: "canary: " + cause}
	}
	proven.now()
	if cause != "" {
		h.cause = "canary: " + cause
	}
	return h
}

// maxCanary bounds what is read of an answer; nothing in it matters.
const maxCanary = 64 << 10

// complete asks for one token. An engine that refuses the request as such does not show whether it would generate.
func (r *Registry) complete(ctx context.Context, spec Spec) (cause string, failed bool) {
	cfg := r.cfg.Load().Health.Canary
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	body, err := json.Marshal(struct {
		Model     string `json:"model,omitempty"`
		Prompt    string `json:"prompt"`
		MaxTokens int    `json:"max_tokens"`
	}{r.canaryModel(spec), "ok", 1})
	if err != nil {
		return err.Error(), true
	}
	url := "http://" + spec.Addr.String() + "/v1/completions"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err.Error(), true
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxCanary))
		_ = resp.Body.Close()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("no token within %s on POST %s", cfg.Timeout, url), true
	case err != nil:
		return fmt.Sprintf("POST %s: %v", url, err), true
	case resp.StatusCode >= http.StatusInternalServerError:
		return fmt.Sprintf("status %d on POST %s", resp.StatusCode, url), true
	case resp.StatusCode >= http.StatusMultipleChoices:
		return fmt.Sprintf("status %d on POST %s, which does not show whether it generates", resp.StatusCode, url), false
	}
	return "", false
}

// canaryModel is the name to ask for; "" when nobody told one, which engines take for their own.
func (r *Registry) canaryModel(spec Spec) string {
	if r.cfg.Load().Health.Canary.Model != "" {
		return r.cfg.Load().Health.Canary.Model
	}
	w := r.Set().ByAddr(spec.Addr)
	if w == nil {
		return ""
	}
	if served := w.Served(); served != nil && len(served.Names) > 0 {
		return served.Names[0]
	}
	return w.Stats().Model
}

// proof is when a worker was seen to generate something. Safe for concurrent use.
type proof struct{ at atomic.Int64 } // in ns since 1970; 0 never

// since is how long nothing showed that the worker generates.
func (p *proof) since() time.Duration { return time.Since(time.Unix(0, p.at.Load())) }

func (p *proof) now() { p.at.Store(time.Now().UnixNano()) }
