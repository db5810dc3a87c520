package router

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/indexer/events"
	"attache/internal/prompt"
	"attache/internal/sim"
	"attache/internal/slot"
	"attache/internal/worker"
)

// site is some simulated engines, in front of which routers come and go.
type site struct {
	t       *testing.T
	engines []*sim.Engine
	change  func(*Config)
	pool    PoolConfig
	blobs   Blobs
	started map[int]float64 // when engines say that their processes started; by number
}

const siteEngines = 3

// newSite starts engines. With told they publish events, and prompts are cut as they cut them.
func newSite(t *testing.T, told bool, change func(*sim.Config)) *site {
	t.Helper()
	dir, err := filepath.Abs("../demo/model")
	if err != nil {
		t.Fatal(err)
	}
	at := &site{t: t, pool: PoolConfig{Name: "default"}, change: func(*Config) {}, started: map[int]float64{}}
	for i := range siteEngines {
		cfg := sim.DefaultConfig()
		cfg.Listen, cfg.Name, cfg.Model, cfg.Speed = "127.0.0.1:0", fmt.Sprint("engine ", i), "m", 1000
		if told {
			cfg.Events, cfg.Replay, cfg.ModelDir = "tcp://127.0.0.1:0", "tcp://127.0.0.1:0", dir
			at.pool.Prompt = prompt.ModelConfig{ModelDir: dir, BlockTokens: 16}
		}
		if change != nil {
			change(&cfg)
		}
		e, err := sim.New(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() {
			if err := e.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(running.Wait)
		t.Cleanup(cancel)
		at.engines, at.started[i] = append(at.engines, e), float64(1000+i)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return at
}

// instance is one router that runs.
type instance struct {
	*Router

	site *site
	stop func()
}

// open starts a replica, in which engine i has slot i+shift, and waits until it knows what it can know.
func (at *site) open(shift int) *instance {
	at.t.Helper()
	var ws []*worker.Worker
	for i, e := range at.engines {
		spec := worker.Spec{Name: fmt.Sprint("w", i), Pool: "default", Address: e.Addr().String(), Addr: e.Addr()}
		if at.pool.Prompt.ModelDir != "" {
			spec.Events.Endpoint, spec.Events.Replay = e.Endpoints(0)
		}
		w := worker.NewWorker(spec, slot.Slot((i+shift)%siteEngines), worker.Ready)
		ws = append(ws, w.WithStats(worker.Stats{ProcessStart: at.started[i], Model: "m"}))
	}
	cfg := DefaultConfig()
	at.change(&cfg)
	r, err := New(Params{Config: cfg, Pools: []PoolConfig{at.pool}, Replica: fmt.Sprint("r", shift), Workers: &fleet{set: worker.NewSet(ws...)}, Now: time.Now,
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Blobs: at.blobs})
	if err != nil {
		at.t.Fatal(err)
	}
	r.Observe(r.workers.Set())
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			at.t.Error(err)
		}
	})
	b := &instance{r, at, sync.OnceFunc(func() { cancel(); running.Wait() })}
	at.t.Cleanup(b.stop)
	until(at.t, "the prompts are cut as they will be", func() bool {
		rung, _ := b.pools[0].keyer.State()
		return at.pool.Prompt.ModelDir == "" || rung == prompt.Exact
	})
	until(at.t, "all is caught up with", func() bool { return b.PendingReplays() == 0 && !b.pools[0].memories.waiting() })
	return b
}

// ask routes a prompt and sends it there; how much of it is predicted and delivered from the cache is returned.
func (b *instance) ask(text string) (predicted, delivered int) {
	b.site.t.Helper()
	d := b.route(text)
	delivered = b.site.send(first(d), text)
	d.Done.End()
	return d.PredictedCached, delivered
}

func (b *instance) route(text string) *Decision {
	b.site.t.Helper()
	d, err := b.Route(b.site.t.Context(), chatOf(b.site.t, "m", text))
	if err != nil {
		b.site.t.Fatal(err)
	}
	return d
}

// begin routes prompts that come together, so that they are spread, and says which engines have them.
func (b *instance) begin(texts []string) (homes []int) {
	b.site.t.Helper()
	decisions := make([]*Decision, len(texts))
	for i, text := range texts {
		decisions[i] = b.route(text)
	}
	for i, d := range decisions {
		b.site.send(first(d), texts[i])
		d.Done.End()
		homes = append(homes, slices.IndexFunc(b.site.engines, func(e *sim.Engine) bool { return e.Addr().String() == first(d) }))
	}
	return homes
}

// knows is how much of a prompt would be captured, were it routed now.
func (b *instance) knows(text string) int {
	b.site.t.Helper()
	e, err := b.Explain(b.site.t.Context(), chatOf(b.site.t, "m", text), nil)
	if err != nil {
		b.site.t.Fatal(err)
	}
	return e.Captured
}

// send asks an engine; how many of the prompt's tokens it had cached is returned.
func (at *site) send(address, text string) (cached int) {
	at.t.Helper()
	body := fmt.Sprintf(`{"model":"m","max_tokens":2,"messages":[{"role":"user","content":%q}]}`, text)
	resp, err := http.Post("http://"+address+"/v1/chat/completions", "application/json", bytes.NewReader([]byte(body)))
	if err != nil {
		at.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	text2, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(text2, &answer) != nil {
		at.t.Fatalf("status %d, %v: %s", resp.StatusCode, err, text2)
	}
	return answer.Usage.Details.Cached
}

// talks are conversations: a turn of each is all that was said before, and something more.
type talks []string

func someTalks(n int) talks {
	t := make(talks, n)
	for i := range t {
		t[i] = long(fmt.Sprint("talk ", i, " begins with a story of its own"), 1500)
	}
	return t
}

func (t talks) goOn(turn int) {
	for i := range t {
		t[i] += long(fmt.Sprint("turn ", turn, " of talk ", i), 400)
	}
}

// TestRestartingWithoutForgetting: conversations go on at another replica as they would have gone on at the first.
func TestRestartingWithoutForgetting(t *testing.T) {
	for _, c := range []struct {
		name   string
		told   bool
		engine func(*sim.Config)
		shared bool
		away   bool // the engines go on while nobody listens
	}{
		{"by events", true, func(c *sim.Config) { c.BufferSteps = 16 }, false, false},
		{"by events, some of which nobody heard", true, func(c *sim.Config) { c.BufferSteps = 40 }, false, true},
		{"by events of small pages", true, func(c *sim.Config) { c.BufferSteps, c.BlockTokens = 40, 4 }, false, true},
		{"by decisions alone", false, nil, false, false},
		{"a new replica", true, func(c *sim.Config) { c.BufferSteps = 16 }, true, false},
		{"a new replica, by decisions alone", false, nil, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			site := newSite(t, c.told, c.engine)
			dir := t.TempDir()
			site.change = func(cfg *Config) { cfg.Snapshot.Dir = dir }
			if c.shared {
				site.change = func(cfg *Config) { cfg.Snapshot.Shared = true }
				site.blobs = &blobs{values: map[string][]byte{}}
			}
			a := site.open(0)
			talks := someTalks(20)
			homes := a.begin(talks)
			for turn := range 3 {
				talks.goOn(turn)
				for _, text := range talks {
					a.ask(text)
				}
			}
			talks.goOn(3)
			if slices.Min(homes) == slices.Max(homes) {
				t.Error("all talks are held by one engine: too little is shown")
			}
			if c.told {
				a.settled()
			}
			captured := 0
			for _, text := range talks {
				captured += a.knows(text)
			}
			a.stop()
			unheard := long("what was said while nobody listened", 3000)
			if c.away {
				site.send(site.engines[1].Addr().String(), unheard)
			}
			b := site.open(1)
			if got := b.knows(unheard); c.away && got < 500 {
				t.Errorf("%d tokens are known of what was said while nobody listened", got)
			}
			predicted, delivered := 0, 0
			for _, text := range talks {
				p, d := b.ask(text)
				predicted, delivered = predicted+p, delivered+d
			}
			t.Logf("captured %d tokens, after the restart %d, delivered %d", captured, predicted, delivered)
			if captured < 5000 || predicted*100 < captured*95 || delivered*100 < captured*95 {
				t.Errorf("the first replica would have captured %d tokens, the second captured %d, and %d were delivered", captured, predicted, delivered)
			}
			b.stop()
			site.change = func(*Config) {}
			talks.goOn(9)
			if cold := site.open(2); !c.told && cold.knows(talks[0]) > 0 {
				t.Error("a replica without a snapshot knows something: nothing is shown")
			}
		})
	}
}

// settled waits until all events of the engines have come.
func (b *instance) settled() {
	b.site.t.Helper()
	until(b.site.t, "all events have come", func() bool {
		for _, s := range b.Feeds() {
			i := slices.IndexFunc(b.site.engines, func(e *sim.Engine) bool {
				events, _ := e.Endpoints(0)
				return events == s.Endpoint
			})
			if c := b.site.engines[i].Contents(0); s.Mode != events.Exact || c.Pending > 0 || s.Known && s.Sequence+1 != c.Sequence {
				return false
			}
		}
		return true
	})
}

// TestAWorkerThatRestartedMeanwhile: nothing is believed of it.
func TestAWorkerThatRestartedMeanwhile(t *testing.T) {
	for _, told := range []bool{true, false} {
		site := newSite(t, told, nil)
		dir := t.TempDir()
		site.change = func(cfg *Config) { cfg.Snapshot.Dir = dir }
		if told {
			clear(site.started) // nobody says when processes started: events alone must tell
		}
		a := site.open(0)
		texts := someTalks(9)
		homes := a.begin(texts)
		if told {
			a.settled()
		}
		a.stop()
		if err := site.engines[1].Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !told {
			site.started[1]++
		}
		b := site.open(2)
		kept, gone := 0, 0
		for i, text := range texts {
			switch got := b.knows(text); {
			case homes[i] != 1 && got > 300:
				kept++
			case homes[i] == 1 && got < 100: // but for what all begin with, which others hold
				gone++
			default:
				t.Errorf("told %v: %d tokens are known of a talk that engine %d had", told, got, homes[i])
			}
		}
		if kept == 0 || gone == 0 {
			t.Errorf("told %v: %d talks are known, and %d not: too little is shown", told, kept, gone)
		}
		b.stop()
	}
}

// blobs is a store in memory.
type blobs struct {
	mu     sync.Mutex // guards the fields below
	values map[string][]byte
	saved  int
	fails  error
}

func (b *blobs) Save(_ context.Context, key string, value []byte, _ time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails != nil {
		return b.fails
	}
	b.saved++
	b.values[key] = value
	return nil
}

func (b *blobs) Load(_ context.Context, key string) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if v, ok := b.values[key]; ok {
		return v, b.fails
	}
	return nil, fs.ErrNotExist
}

func (b *blobs) Delete(_ context.Context, key string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.values, key)
	return b.fails
}
