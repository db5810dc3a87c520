package join

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"attache/internal/worker"
)

// engine asks one engine about itself.
type engine struct {
	base   string // URL without a slash at its end
	kind   worker.Engine
	client *http.Client
}

// engineTimeout bounds one question to the engine.
const engineTimeout = 3 * time.Second

// maxAnswer bounds an engine's or a gateway's answer.
const maxAnswer = 4 << 20

func newEngine(base string, kind worker.Engine) *engine {
	return &engine{base: base, kind: kind, client: &http.Client{
		Timeout: engineTimeout, Transport: &http.Transport{DisableCompression: true, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// facts are what an engine tells of itself. Nothing has to be known: an engine that wants a key for it tells no models.
type facts struct {
	kind      worker.Engine
	served    worker.Served
	stats     worker.Stats
	publisher publisher
}

// publisher is where an engine publishes its KV events; the zero value is nowhere, or not known.
type publisher struct {
	port, replay int // of rank 0; those of other ranks follow
	topic        string
	ranks        int
}

func (e *engine) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, plain(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, plain(err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &status{resp.StatusCode, path}
	}
	return text, nil
}

// status is an answer that is no success.
type status struct {
	code int
	path string
}

func (s *status) Error() string { return fmt.Sprintf("status %d on GET %s", s.code, s.path) }

// plain is an error without the URL and the addresses that net/http and net repeat in it.
func plain(err error) error {
	if whole := (*url.Error)(nil); errors.As(err, &whole) {
		if whole.Timeout() {
			return errors.New("no answer in time")
		}
		err = whole.Err
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Err != nil {
		err = op.Err
	}
	return err
}

// healthy is nil when the engine answers its health check, or has none.
func (e *engine) healthy(ctx context.Context) error {
	path := "/health"
	if e.kind == worker.SGLang {
		path = "/model_info" // its /health generates a token
	}
	_, err := e.get(ctx, path)
	if s := (*status)(nil); errors.As(err, &s) && (s.code == http.StatusNotFound || s.code == http.StatusMethodNotAllowed) {
		return nil
	}
	return err
}

// stats reads the engine's metrics, where there are any.
func (e *engine) stats(ctx context.Context) (worker.Stats, error) {
	paths := []string{"/metrics", "/prometheus/metrics"}
	switch e.kind {
	case worker.TRTLLM:
		paths = paths[1:] // its /metrics is JSON, and reading empties it
	case worker.VLLM, worker.SGLang:
		paths = paths[:1]
	}
	var stats worker.Stats
	var err error
	for _, path := range paths {
		var text []byte
		if text, err = e.get(ctx, path); err != nil {
			continue
		}
		if stats, err = worker.ParseMetrics(text); err == nil {
			return stats, nil
		}
	}
	return stats, err
}

// models asks what the engine serves. The error says that it does not tell yet; that it never will is none.
func (e *engine) models(ctx context.Context) (*worker.Served, error) {
	text, err := e.get(ctx, "/v1/models")
	if s := (*status)(nil); errors.As(err, &s) && s.code >= 400 && s.code < 500 {
		return &worker.Served{}, nil
	}
	if err != nil {
		return nil, err
	}
	served, err := worker.ParseModels(text)
	if err == nil && !served.Told() {
		err = errors.New("GET /v1/models names no model")
	}
	return served, err
}

// look asks for everything. The error says that the engine does not tell its models yet.
func (e *engine) look(ctx context.Context) (*facts, error) {
	served, err := e.models(ctx)
	if err != nil {
		return nil, err
	}
	f := &facts{kind: e.kind, served: *served}
	if f.stats, err = e.stats(ctx); err == nil && (f.kind == worker.Auto || f.kind == "") {
		f.kind = cmp.Or(f.stats.Engine, worker.Auto)
	}
	e.kind = f.kind
	switch f.kind {
	case worker.SGLang:
		if text, err := e.get(ctx, "/server_info"); err == nil {
			f.served.MaxTokens = cmp.Or(f.served.MaxTokens, worker.ParseServerInfo(text))
			f.publisher = sglangPublisher(text)
		}
	case worker.VLLM:
		if text, err := e.get(ctx, "/kv_event_sources"); err == nil {
			f.publisher = vllmPublisher(text)
		}
	}
	return f, nil
}

// sglangPublisher reads kv_events of /server_info. What is odd is not told on: gateways ask engines themselves.
func sglangPublisher(text []byte) publisher {
	var info struct {
		Events *struct {
			Publisher string `json:"publisher"`
			Port      int    `json:"endpoint_port_base"`
			Topic     string `json:"topic"`
			Ranks     int    `json:"dp_size"`
		} `json:"kv_events"`
	}
	if json.Unmarshal(text, &info) != nil {
		return publisher{}
	}
	e := info.Events
	if e == nil || e.Publisher != "zmq" || e.Port < 1 || e.Ranks < 0 || e.Port+e.Ranks > 65535 {
		return publisher{}
	}
	return publisher{port: e.Port, topic: e.Topic, ranks: max(1, e.Ranks)}
}

// vllmPublisher reads /kv_event_sources, by rank: only what can be said by the port of rank 0 is.
func vllmPublisher(text []byte) publisher {
	var sources map[string]struct {
		Publisher string `json:"publisher"`
		Endpoint  string `json:"endpoint"`
		Replay    string `json:"replay_endpoint"`
		Topic     string `json:"topic"`
	}
	if json.Unmarshal(text, &sources) != nil {
		return publisher{}
	}
	first, found := sources["0"]
	p := publisher{port: boundPort(first.Endpoint), replay: boundPort(first.Replay), topic: first.Topic, ranks: len(sources)}
	if !found || p.port == 0 {
		return publisher{}
	}
	for rank := range len(sources) {
		s := sources[strconv.Itoa(rank)]
		if s.Publisher != "zmq" || boundPort(s.Endpoint) != p.port+rank || p.replay != 0 && boundPort(s.Replay) != p.replay+rank || s.Topic != p.topic {
			return publisher{}
		}
	}
	return p
}

// boundPort is the port of a socket that is bound at all addresses; 0 for any other.
func boundPort(endpoint string) int {
	rest, tcp := strings.CutPrefix(endpoint, "tcp://")
	host, text, err := net.SplitHostPort(rest)
	if !tcp || err != nil || host != "*" && host != "::" && host != "0.0.0.0" {
		return 0
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return int(port)
}
