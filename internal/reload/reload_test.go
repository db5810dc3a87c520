package reload

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"attache/internal/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTake plays one file after another: what is in effect then, and what is told.
func TestTake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "attache.yaml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start := config.Default()
	start.Replica = "test"
	now := time.Unix(1_000_000, 0)
	r, err := New(Params{Config: &start, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		File: &File{Path: path, Parse: func(text []byte) (*config.Config, error) { return config.Parse("a.yaml", text) }}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.watched.Close()
	var refused error
	committed := 0
	r.OnChange(func(cfg *config.Config) (func(), error) {
		if refused != nil {
			return nil, refused
		}
		return func() {
			committed = cfg.Router.Alternatives
			if r.Config() == cfg {
				t.Error("the configuration is said to be in effect before it is")
			}
		}, nil
	})
	for _, c := range []struct {
		name, text   string
		refused      error
		wrong        string // of the error; "" none
		alternatives int
		waiting      string
	}{
		{"something live", "router: {alternatives: 2}", nil, "", 2, ""},
		{"a mistake", "router: {alternatives: 99}", nil, "a.yaml:1: router.alternatives: 99", 2, ""},
		{"and something that needs a restart", "router: {alternatives: 4}\nreplica: other\nlog: {format: json}", nil, "", 4, "replica, log.format"},
		{"components refuse", "router: {alternatives: 5}", errors.New("no such worker"), path + ": no such worker", 4, "replica, log.format"},
		{"it does not go together", "router: {queue: {limits: {requests: 1, max_wait: 30m}}}\nxds: {gateway: {max_message_timeout: 1h, idle_timeout: 2h}}", nil,
			path + ": nothing is changed, because this does not go together with what needs a restart: router.queue.limits.max_wait", 4, "replica, log.format"},
		{"too long", "#" + strings.Repeat(" ", maxFile), nil, path + ": must be at most 4 MiB", 4, "replica, log.format"},
		{"as it was", "", nil, "", 3, ""},
	} {
		refused = c.refused
		now = now.Add(time.Minute)
		at := testutil.ToFloat64(r.metrics.at)
		err := r.take([]byte(c.text))
		r.told(err)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.HasPrefix(err.Error(), c.wrong) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.wrong)
		}
		s := r.State()
		if s.Config.Router.Alternatives != c.alternatives || committed != c.alternatives || s.Config.Replica != "test" ||
			strings.Join(config.Restarts(s.Waiting), ", ") != c.waiting || !errors.Is(s.Mistake, err) {
			t.Errorf("%s: alternatives %d and %d, replica %q, waiting %v, mistake %v", c.name, s.Config.Router.Alternatives, committed, s.Config.Replica,
				s.Waiting, s.Mistake)
		}
		good, waits := testutil.ToFloat64(r.metrics.good) == 1, testutil.ToFloat64(r.metrics.restart) == 1
		if moved := testutil.ToFloat64(r.metrics.at) != at; good != (err == nil) || waits != (c.waiting != "") || moved != (err == nil) {
			t.Errorf("%s: metrics say good %v, restart needed %v, taken in now %v", c.name, good, waits, moved)
		}
	}
	for result, want := range map[string]float64{resultApplied: 4, resultRefused: 4} {
		if got := testutil.ToFloat64(r.metrics.reloads.WithLabelValues(result)); got != want {
			t.Errorf("%v reloads %s, want %v", got, result, want)
		}
	}
	if start.Router.Alternatives != 3 || start.Log.Format != "text" {
		t.Error("the configuration of the start was changed")
	}
}

func TestWithoutAFile(t *testing.T) {
	start := config.Default()
	r, err := New(Params{Config: &start, Now: time.Now, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Error(err)
	}
	if r.File() != "" || r.Config() != &start {
		t.Errorf("file %q", r.File())
	}
}
