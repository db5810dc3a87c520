package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"attache/internal/worker"
)

// advertised is what an engine says of its own publisher. A zero port: nothing.
type advertised struct{ port int }

// finder asks engines where they publish. SGLang says so in GET /server_info (since 2026-05-23, #25844); vLLM says so over the gRPC
// of its Rust front end alone, so there a port must be configured. Neither names the replay port. Every worker is asked once in each of its lives.
type finder struct {
	ledger  *Ledger
	client  *http.Client
	running sync.WaitGroup

	mu    sync.Mutex // guards known
	known map[netip.AddrPort]*inquiry
}

// inquiry is what is known of one worker.
type inquiry struct {
	epoch  uint64
	again  time.Time // when a failed one may be repeated
	asking bool
	answer *advertised
}

func newFinder(l *Ledger) *finder {
	return &finder{
		ledger: l, known: map[netip.AddrPort]*inquiry{},
		client: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
}

// find is what is known of a worker; it asks beside, and the ledger looks again.
func (d *finder) find(ctx context.Context, w *worker.Worker, source PoolConfig) *advertised {
	if source.Mode == modeOff || source.Port != 0 || w.Events.Off || w.Events.Endpoint != "" || w.Runs() != worker.SGLang || !w.Eligible() {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.known[w.Addr]
	if q == nil {
		q = &inquiry{}
		d.known[w.Addr] = q
	}
	if q.asking || q.epoch == w.Epoch+1 && (q.answer != nil || d.ledger.now().Before(q.again)) {
		return q.answer
	}
	q.asking = true
	d.running.Go(func() {
		answer, err := d.ask(ctx, w)
		d.mu.Lock()
		defer d.mu.Unlock()
		q.asking, q.epoch = false, w.Epoch+1
		if err != nil {
			q.again = d.ledger.now().Add(30 * time.Second)
			if ctx.Err() == nil {
				d.ledger.log.Warn("asking an engine where it publishes its events failed", "worker", w.Name, "error", err)
			}
			return
		}
		q.answer = &answer
		d.ledger.poke()
	})
	return q.answer
}

func (d *finder) wait() { d.running.Wait() }

// maxInfo bounds an answer: server_info has some 10 KB.
const maxInfo = 1 << 20

func (d *finder) ask(ctx context.Context, w *worker.Worker) (advertised, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.Endpoint+"/server_info", nil)
	if err != nil {
		return advertised{}, err
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return advertised{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return advertised{}, fmt.Errorf("status %d on GET /server_info", resp.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxInfo))
	if err != nil {
		return advertised{}, err
	}
	return parseInfo(text)
}

// parseInfo reads the block kv_events of SGLang's /server_info. Engines that publish nothing have none, or null.
func parseInfo(text []byte) (advertised, error) {
	var info struct {
		Events *struct {
			Publisher string `json:"publisher"`
			Port      int    `json:"endpoint_port_base"`
		} `json:"kv_events"`
	}
	if err := json.Unmarshal(text, &info); err != nil {
		return advertised{}, fmt.Errorf("/server_info: %w", err)
	}
	e := info.Events
	if e == nil || e.Publisher != "zmq" {
		return advertised{}, nil
	}
	if e.Port < 1 || e.Port > 65535 {
		return advertised{}, errors.New("/server_info: kv_events has a port out of range")
	}
	return advertised{port: e.Port}, nil
}
