package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"attache/internal/worker"
)

// advertised is what an engine says of its own publishers, one for each data-parallel rank. Ports of 0: it says none.
type advertised struct{ ranks []ports }

type ports struct {
	events, replay int
	topic          string
}

// of is what is said of one rank; ok is false for nothing.
func (a *advertised) of(rank int) (p ports, ok bool) {
	if a == nil || rank >= len(a.ranks) || a.ranks[rank].events == 0 {
		return ports{}, false
	}
	return a.ranks[rank], true
}

// finder asks engines where they publish. vLLM says so in GET /kv_event_sources (in 0.32), SGLang in GET /server_info (since
// 2026-05-23, #25844) without its replay port; others do not, and need ports in the configuration. Every worker is asked once in
// each of its lives.
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
	if source.Mode == modeOff || source.Port != 0 || w.Events.Off || source.Bind != "" || source.Pull || w.Events.Endpoint != "" || !w.Eligible() ||
		w.Runs() != worker.SGLang && w.Runs() != worker.VLLM {
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
	path, parse := "/kv_event_sources", parseSources
	if w.Runs() == worker.SGLang {
		path, parse = "/server_info", parseInfo
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.Endpoint+path, nil)
	if err != nil {
		return advertised{}, err
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return advertised{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == http.StatusNotFound: // an older version
		return advertised{}, nil
	case resp.StatusCode != http.StatusOK:
		return advertised{}, fmt.Errorf("status %d on GET %s", resp.StatusCode, path)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxInfo))
	if err != nil {
		return advertised{}, err
	}
	found, err := parse(text)
	if err != nil {
		return advertised{}, fmt.Errorf("GET %s: %w", path, err)
	}
	return found, nil
}

// maxRanks bounds the ranks that an engine may claim.
const maxRanks = 256

// parseInfo reads the block kv_events of SGLang's /server_info. Engines that publish nothing have none, or null.
func parseInfo(text []byte) (a advertised, err error) {
	var info struct {
		Events *struct {
			Publisher string `json:"publisher"`
			Port      int    `json:"endpoint_port_base"`
			Topic     string `json:"topic"`
			Ranks     int    `json:"dp_size"`
		} `json:"kv_events"`
	}
	if err := json.Unmarshal(text, &info); err != nil {
		return a, err
	}
	e := info.Events
	if e == nil || e.Publisher != "zmq" {
		return a, nil
	}
	if e.Port < 1 || e.Ranks < 0 || e.Ranks > maxRanks || e.Port+e.Ranks > 65535 {
		return a, errors.New("kv_events has a port or dp_size out of range")
	}
	for rank := range max(1, e.Ranks) {
		a.ranks = append(a.ranks, ports{events: e.Port + rank, topic: e.Topic})
	}
	return a, nil
}

// parseSources reads vLLM's /kv_event_sources: by rank, what --kv-events-config became.
func parseSources(text []byte) (a advertised, err error) {
	var sources map[string]struct {
		Publisher string `json:"publisher"`
		Endpoint  string `json:"endpoint"`
		Replay    string `json:"replay_endpoint"`
		Topic     string `json:"topic"`
	}
	if err := json.Unmarshal(text, &sources); err != nil {
		return a, err
	}
	for key, s := range sources {
		rank, err := strconv.Atoi(key)
		if err != nil || rank < 0 || rank >= maxRanks {
			return advertised{}, fmt.Errorf("%q is no rank", key)
		}
		if s.Publisher != "zmq" {
			continue
		}
		for rank >= len(a.ranks) {
			a.ranks = append(a.ranks, ports{})
		}
		a.ranks[rank] = ports{events: portOf(s.Endpoint), replay: portOf(s.Replay), topic: s.Topic}
	}
	return a, nil
}

// portOf is the port of a tcp endpoint that is bound at all addresses; 0 for any other: vLLM dials where a host is named.
func portOf(endpoint string) int {
	rest, ok := strings.CutPrefix(endpoint, "tcp://")
	host, text, err := net.SplitHostPort(rest)
	if !ok || err != nil || host != "*" && host != "::" {
		return 0
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return int(port)
}
