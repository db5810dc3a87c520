package warm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"attache/internal/bubble"
	"attache/internal/field"
	"attache/internal/openai"
	"attache/internal/router"
	"attache/internal/slot"
	"attache/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "the prompt that nobody may read"

// engines answer what is sent to any of them.
type engines struct {
	mu      sync.Mutex // guards what follows
	set     *worker.Set
	status  int
	err     error
	hold    chan struct{} // nil: answers come at once
	got     []string      // bodies
	at      []time.Time
	header  http.Header
	url     string
	running int
	most    int // at the same time
}

func (e *engines) Set() *worker.Set {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.set
}

func (e *engines) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.got, e.at, e.header, e.url = append(e.got, string(body)), append(e.at, time.Now()), r.Header, r.URL.String()
	e.running++
	e.most = max(e.most, e.running)
	hold, status, err := e.hold, e.status, e.err
	e.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			err = r.Context().Err()
		}
	}
	e.mu.Lock()
	e.running--
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(`{"secret":"answer"}`)), Request: r}, nil
}

func (e *engines) sent() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.got)
}

func (e *engines) atOnce() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.most
}

func (e *engines) last() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.got[len(e.got)-1]
}

func (e *engines) become(change func(*engines)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(e)
}

func workerAt(address string, state worker.State, epoch uint64) *worker.Worker {
	w := worker.NewWorker(worker.Spec{Name: "w1", Pool: "p", Addr: netip.MustParseAddrPort(address)}, slot.Slot(1), state)
	w.Epoch = epoch
	return w
}

const home = "10.0.0.1:8000"

// world is a keeper that runs, over engines that are not there.
type world struct {
	*Keeper

	engines *engines
	log     bytes.Buffer
	held    atomic.Int64
	stop    func()
}

func begin(t *testing.T, change func(*Config)) *world {
	t.Helper()
	w := &world{engines: &engines{status: 200, set: worker.NewSet(workerAt(home, worker.Ready, 1))}}
	cfg := DefaultConfig()
	cfg.Keepalive = true
	if change != nil {
		change(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	k, err := New(Params{Config: cfg, Workers: w.engines, RankHeader: "x-rank", Now: time.Now, Log: slog.New(slog.NewTextHandler(&w.log, nil)),
		Metrics: prometheus.NewRegistry(), Transport: w.engines})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := k.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	w.Keeper = k
	w.stop = func() { cancel(); <-done }
	return w
}

func prompt(key uint64, ttl time.Duration) *router.Prompt {
	body := `{"messages":[{"role":"user","content":"` + secret + `"}]}`
	return &router.Prompt{Key: key, Kind: openai.Chat, Path: "/v1/chat/completions", Body: []byte(body), Until: time.Now().Add(ttl), Size: len(body)}
}

func (w *world) place() *router.Place {
	return &router.Place{Worker: workerAt(home, worker.Ready, 1), Rank: "3", Held: func() { w.held.Add(1) }}
}

// keep is a request that is over at once.
func (w *world) keep(key uint64, ttl time.Duration) { w.Keep(prompt(key, ttl))(w.place()) }

// bytes and prompts are what is kept.
func (w *world) bytes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.plan.bytes
}

func (w *world) prompts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.plan.order.Len()
}

// pass lets time pass, and all that is done in it.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestAPromptIsSentUntilItsTimeIsOver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := begin(t, nil)
		defer w.stop()
		w.keep(1, 5*time.Minute)
		pass(59 * time.Second)
		if n := w.engines.sent(); n != 0 {
			t.Errorf("sent %d times before its interval is over", n)
		}
		pass(time.Hour)
		if n := w.engines.sent(); n != 4 || w.held.Load() != 4 {
			t.Errorf("sent %d times in five minutes, a minute apart, and noted %d times; want 4", n, w.held.Load())
		}
		e := w.engines
		e.mu.Lock()
		defer e.mu.Unlock()
		for i := 1; i < len(e.at); i++ {
			if e.at[i].Sub(e.at[i-1]) < time.Minute {
				t.Errorf("sent %s after the time before", e.at[i].Sub(e.at[i-1]))
			}
		}
		if e.url != "http://"+home+"/v1/chat/completions" || e.header.Get("x-rank") != "3" || e.header.Get("content-type") != "application/json" || len(e.header) != 2 {
			t.Errorf("%s %v", e.url, e.header)
		}
		if want := `{"stream":false,"max_tokens":1,"messages":[{"role":"user","content":"` + secret + `"}]}`; e.got[0] != want {
			t.Errorf("sent %s\nwant %s", e.got[0], want)
		}
		if w.bytes() != 0 || testutil.ToFloat64(w.metrics.sent) != 4 {
			t.Errorf("%d bytes are kept, %v sent", w.bytes(), testutil.ToFloat64(w.metrics.sent))
		}
	})
}

// TestWhatEndsIt: nothing is sent any more, and nothing is kept.
func TestWhatEndsIt(t *testing.T) {
	gone := func(ws ...*worker.Worker) func(*world) {
		return func(w *world) { w.engines.become(func(e *engines) { e.set = worker.NewSet(ws...) }) }
	}
	for _, c := range []struct {
		name    string
		end     func(*world)
		sent    int // after the end
		skipped string
	}{
		{"its session is over", func(w *world) { w.Forget(1) }, 0, ""},
		{"its worker is gone", gone(), 0, skippedGone},
		{"its worker began anew", gone(workerAt(home, worker.Ready, 2)), 0, skippedGone},
		{"another worker has its place", gone(worker.NewWorker(worker.Spec{Addr: netip.MustParseAddrPort(home)}, 2, worker.Ready)), 0, skippedGone},
		{"the engine does not want it", func(w *world) { w.engines.become(func(e *engines) { e.status = 401 }) }, 1, ""},
		{"a later turn runs", func(w *world) { w.Keep(prompt(1, time.Minute)) }, 0, ""},
		{"a later turn came to nothing", func(w *world) { w.Keep(prompt(1, time.Hour))(nil) }, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := begin(t, nil)
				defer w.stop()
				w.keep(1, time.Hour)
				pass(90 * time.Second)
				if n := w.engines.sent(); n != 1 {
					t.Fatalf("sent %d times before", n)
				}
				c.end(w)
				pass(2 * time.Hour)
				if n := w.engines.sent() - 1; n != c.sent {
					t.Errorf("sent %d times after the end, want %d", n, c.sent)
				}
				if w.bytes() != 0 || w.prompts() != 0 {
					t.Errorf("%d bytes in %d prompts are kept", w.bytes(), w.prompts())
				}
				if c.skipped != "" && testutil.ToFloat64(w.metrics.skipped.WithLabelValues(c.skipped)) != 1 {
					t.Errorf("not counted as %s", c.skipped)
				}
			})
		})
	}
}

// TestWhatIsTriedAgain: what may pass does not end it, and nobody can read in the log what was kept.
func TestWhatIsTriedAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*engines)
		sent   int // of the two times it is due
		logged int
	}{
		{"no connection", func(e *engines) { e.err = errors.New("connection refused") }, 2, 1},
		{"an engine that is ill", func(e *engines) { e.status = 500 }, 2, 1},
		{"an engine that has too much to do", func(e *engines) { e.status = 429 }, 2, 1},
		{"an engine that does not answer", func(e *engines) { e.hold = make(chan struct{}) }, 2, 1},
		{"a worker that is not well", func(e *engines) { e.set = worker.NewSet(workerAt(home, worker.Unhealthy, 1)) }, 0, 0},
		{"a worker that drains", func(e *engines) { e.set = worker.NewSet(workerAt(home, worker.Draining, 1)) }, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := begin(t, func(c *Config) { c.Interval = 20 * time.Second })
				defer w.stop()
				w.engines.become(c.change)
				w.keep(1, time.Hour)
				pass(55 * time.Second)
				if n := w.engines.sent(); n != c.sent {
					t.Errorf("sent %d times, want %d", n, c.sent)
				}
				if n := strings.Count(w.log.String(), "\n"); n != c.logged {
					t.Errorf("%d lines in the log, want %d:\n%s", n, c.logged, &w.log)
				}
				if strings.Contains(w.log.String(), secret) || strings.Contains(w.log.String(), "answer") {
					t.Errorf("the log tells: %s", &w.log)
				}
				w.engines.become(func(e *engines) {
					if e.hold != nil {
						close(e.hold)
					}
					e.err, e.status, e.hold, e.set = nil, 200, nil, worker.NewSet(workerAt(home, worker.Ready, 1))
				})
				pass(25 * time.Second)
				if w.held.Load() == 0 {
					t.Error("not kept once it works again")
				}
			})
		})
	}
}

func TestSendingIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := begin(t, func(c *Config) { c.Concurrency, c.Timeout = 3, time.Minute })
		defer w.stop()
		w.engines.become(func(e *engines) { e.hold = make(chan struct{}) })
		for key := range uint64(20) {
			w.keep(key+1, 90*time.Second)
		}
		pass(65 * time.Second)
		if n := w.engines.sent(); n != 3 {
			t.Errorf("%d are being sent, want 3", n)
		}
		w.engines.become(func(e *engines) { close(e.hold) })
		pass(5 * time.Second)
		if n := w.engines.sent(); n != 20 || w.engines.atOnce() != 3 {
			t.Errorf("%d were sent, want 20; %d at once, want 3", n, w.engines.atOnce())
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := begin(t, func(c *Config) { c.MaxBytes, c.MaxEntries = field.MiB, 4 })
		defer w.stop()
		big := prompt(1, time.Hour)
		big.Size = int(field.MiB)
		w.Keep(big)(w.place())
		for key := range uint64(6) {
			w.keep(key+2, time.Hour)
		}
		huge := prompt(9, time.Hour)
		huge.Size = int(field.MiB) + 1
		w.Keep(huge)(w.place())
		pass(61 * time.Second)
		if n := w.engines.sent(); n != 4 || w.prompts() != 4 {
			t.Errorf("%d sent of %d, want the four youngest", n, w.prompts())
		}
		if got := testutil.ToFloat64(w.metrics.skipped.WithLabelValues(skippedRoom)); got != 4 {
			t.Errorf("%v had no room, want 4", got)
		}
	})
}

// TestTheKeyIsTheOperators: it is sent, and nowhere shown; a worker cannot send it on to somebody else.
func TestTheKeyIsTheOperators(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("open-sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var others []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { others = append(others, r.URL.Path) }))
	defer elsewhere.Close()
	var keys []string
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("authorization")+" "+r.URL.Path)
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}))
	defer engine.Close()
	at := workerAt(strings.TrimPrefix(engine.URL, "http://"), worker.Ready, 1)
	var log bytes.Buffer
	cfg := DefaultConfig()
	cfg.Keepalive, cfg.APIKeyFile = true, file
	k, err := New(Params{Config: cfg, Workers: &engines{set: worker.NewSet(at)}, Now: time.Now, Log: slog.New(slog.NewTextHandler(&log, nil)), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	defer k.client.CloseIdleConnections()
	for _, path := range []string{"/v1/chat/completions", "/pre%20fix/v1/chat/completions", "@" + strings.TrimPrefix(elsewhere.URL, "http://") + "/v1/chat/completions"} {
		p := prompt(1, time.Hour)
		p.Path = path
		e := &entry{prompt: p, place: &router.Place{Worker: at}}
		k.refresh(t.Context(), e)
	}
	if want := []string{"Bearer open-sesame /v1/chat/completions", "Bearer open-sesame /pre fix/v1/chat/completions"}; !slices.Equal(keys, want) || len(others) > 0 {
		t.Errorf("%q was sent, and to somebody else %q", keys, others)
	}
	if strings.Contains(log.String(), "sesame") || strings.Contains(log.String(), secret) || log.Len() == 0 {
		t.Errorf("the log: %s", &log)
	}
	if got := testutil.ToFloat64(k.metrics.failed); got != 3 {
		t.Errorf("%v failed, want 3", got)
	}
}

// TestTheNextTurnIsSentAtOnce, and kept where its client will come back to it.
func TestTheNextTurnIsSentAtOnce(t *testing.T) {
	const next = `{"role":"assistant","content":"well"},{"role":"user","content":""}`
	for _, ttl := range []time.Duration{0, 150 * time.Second} {
		bubble.Test(t, func(t *testing.T) {
			w := begin(t, nil)
			defer w.stop()
			p := prompt(1, ttl)
			if ttl == 0 {
				p.Until = time.Time{}
			}
			at := w.place()
			at.Next = []byte(next)
			w.Keep(p)(at)
			synctest.Wait()
			if n := w.engines.sent(); n != 1 {
				t.Fatalf("sent %d times", n)
			}
			if ttl > 0 && w.bytes() != p.Size+len(next) {
				t.Errorf("%d bytes are kept", w.bytes())
			}
			pass(time.Hour)
			want := 1 + int(ttl/time.Minute)
			if n := w.engines.sent(); n != want || w.bytes() != 0 {
				t.Errorf("sent %d times, want %d; %d bytes are kept", n, want, w.bytes())
			}
			if got, want := w.engines.last(), `{"stream":false,"max_tokens":1,"messages":[{"role":"user","content":"`+secret+`"},`+next+`]}`; got != want {
				t.Errorf("sent %s\nwant %s", got, want)
			}
		})
	}
}

// TestNoNextTurn: an answer that was not understood, and an engine that is not there, leave nothing behind.
func TestNoNextTurn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := begin(t, nil)
		defer w.stop()
		once := func(key uint64) *router.Prompt {
			p := prompt(key, 0)
			p.Until = time.Time{}
			return p
		}
		w.Keep(once(1))(w.place())
		w.engines.become(func(e *engines) { e.err = errors.New("connection refused") })
		at := w.place()
		at.Next = []byte(`{"role":"assistant","content":"well"}`)
		w.Keep(once(2))(at)
		pass(time.Hour)
		if n := w.engines.sent(); n != 1 || w.bytes() != 0 || w.held.Load() != 0 {
			t.Errorf("sent %d times, %d bytes are kept, %d noted", n, w.bytes(), w.held.Load())
		}
	})
}
