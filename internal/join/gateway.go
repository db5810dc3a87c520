package join

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"attache/internal/worker"
	"attache/internal/worker/register"
)

// gateway is the admin API of one attache, as far as workers need it.
type gateway struct {
	base      string // URL without a slash at its end
	tokenFile string
	client    *http.Client
}

// gatewayTimeout bounds one question to a gateway.
const gatewayTimeout = 5 * time.Second

func newGateway(base, tokenFile string) *gateway {
	return &gateway{base: base, tokenFile: tokenFile, client: &http.Client{
		Timeout: gatewayTimeout, Transport: &http.Transport{IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// refusal is what a gateway answers that does not do what it is asked for.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return fmt.Sprintf("%s (status %d)", r.text, r.status) }

// final reports whether asking again for the same will not help.
func (r *refusal) final() bool {
	switch r.status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge:
		return true
	}
	return false
}

// forgotten reports whether an error says that the gateway does not know the worker.
func forgotten(err error) bool {
	r := (*refusal)(nil)
	return errors.As(err, &r) && r.status == http.StatusNotFound
}

func (g *gateway) register(ctx context.Context, said *register.Registration) (*register.Lease, error) {
	return g.lease(ctx, http.MethodPost, "", said)
}

func (g *gateway) heartbeat(ctx context.Context, name string, said *register.Heartbeat) (*register.Lease, error) {
	return g.lease(ctx, http.MethodPut, "/"+url.PathEscape(name)+"/heartbeat", said)
}

func (g *gateway) drain(ctx context.Context, name string) (*register.Lease, error) {
	return g.lease(ctx, http.MethodDelete, "/"+url.PathEscape(name)+"?drain=true", nil)
}

func (g *gateway) deregister(ctx context.Context, name string) error {
	_, err := g.call(ctx, http.MethodDelete, "/"+url.PathEscape(name), nil)
	return err
}

func (g *gateway) lease(ctx context.Context, method, path string, said any) (*register.Lease, error) {
	text, err := g.call(ctx, method, path, said)
	if err != nil {
		return nil, err
	}
	var lease register.Lease
	if err := json.Unmarshal(text, &lease); err != nil || lease.Heartbeat <= 0 || lease.TTL <= 0 {
		return nil, &refusal{http.StatusMethodNotAllowed, "it does not answer as attache does; --gateway must be its admin.listen"}
	}
	return &lease, nil
}

func (g *gateway) call(ctx context.Context, method, path string, said any) ([]byte, error) {
	// The file may have changed, and is read too seldom for that to matter.
	token, err := worker.ReadToken(g.tokenFile)
	if err != nil {
		return nil, fmt.Errorf("--token-file %s: %w", g.tokenFile, err)
	}
	var body []byte
	if said != nil {
		if body, err = json.Marshal(said); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, g.base+"/api/v1/workers"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := g.client.Do(req)
	if err != nil {
		return nil, plain(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, plain(err)
	case resp.StatusCode == http.StatusOK:
		return text, nil
	}
	var problem struct {
		Error string            `json:"error"`
		Paths map[string]string `json:"paths"`
	}
	switch {
	case json.Unmarshal(text, &problem) != nil || problem.Error == "":
		if resp.StatusCode >= http.StatusInternalServerError {
			return nil, &refusal{resp.StatusCode, "it cannot answer now"}
		}
		return nil, &refusal{http.StatusMethodNotAllowed, fmt.Sprintf("it does not answer as attache does: status %d; --gateway must be its admin.listen", resp.StatusCode)}
	case problem.Paths != nil: // the path itself is not known there
		return nil, &refusal{http.StatusMethodNotAllowed, problem.Error + "; it seems to run an older attache"}
	}
	return nil, &refusal{resp.StatusCode, problem.Error}
}
