package worker

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

const (
	listA  = "workers: [{name: a, address: 10.0.0.1:8000}]\n"
	listAB = "workers: [{name: a, address: 10.0.0.1:8000}, {name: b, address: 10.0.0.2:8000}]\n"
	listC  = "workers: [{name: c, address: 10.0.0.3:8000}]\n"
)

// sourced is a registry and what its sources say, in a folder with the files a.yaml, ab.yaml, c.yaml and bad.yaml.
type sourced struct {
	*Registry

	sources *Configured
	dir     string
}

func newSourced(t *testing.T) *sourced {
	t.Helper()
	r, err := New(DefaultConfig(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	s := &sourced{Registry: r, sources: NewConfigured(r, slog.New(slog.DiscardHandler)), dir: t.TempDir()}
	for name, text := range map[string]string{"a": listA, "ab": listAB, "c": listC, "bad": "workers:\n- addr: 10.0.0.1:8000\n"} {
		replace(t, s.path(name), text)
	}
	return s
}

func (s *sourced) path(name string) string { return filepath.Join(s.dir, name+".yaml") }

// run follows the files until the test, or what is returned, ends.
func (s *sourced) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.sources.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("following ended with %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// say commits what the configuration says of one pool.
func (s *sourced) say(t *testing.T, src ConfiguredPool) {
	t.Helper()
	src.Pool = "main"
	if src.Engine == "" {
		src.Engine = VLLM
	}
	commit, err := s.sources.Prepare([]ConfiguredPool{src})
	if err != nil {
		t.Fatal(err)
	}
	commit()
}

func (s *sourced) names() string {
	var names []string
	for _, w := range s.Set().All() {
		names = append(names, w.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// until waits for workers with these names: a change of a file takes a moment to be seen.
func (s *sourced) until(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); s.names() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the workers are %q, never %q", s.names(), want)
		}
	}
}

func replace(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestSources(t *testing.T) {
	for _, running := range []bool{false, true} {
		s := newSourced(t)
		stop := func() {}
		if running {
			stop = s.run(t)
		}
		a := netip.MustParseAddrPort("10.0.0.1:8000")
		for _, step := range []struct {
			name string
			src  ConfiguredPool
			want string
		}{
			{"nobody", ConfiguredPool{}, ""},
			{"an address", ConfiguredPool{Addresses: []string{"10.0.0.1:8000"}}, "10.0.0.1:8000"},
			{"an address more", ConfiguredPool{Addresses: []string{"10.0.0.1:8000", "10.0.0.9:8000"}}, "10.0.0.1:8000 10.0.0.9:8000"},
			{"it moves into a file", ConfiguredPool{File: s.path("a")}, "a"},
			{"another file", ConfiguredPool{File: s.path("ab")}, "a b"},
			{"the same file, and an address", ConfiguredPool{File: s.path("ab"), Addresses: []string{"10.0.0.9:8000"}}, "10.0.0.9:8000 a b"},
			{"it is in both", ConfiguredPool{File: s.path("ab"), Addresses: []string{"10.0.0.1:8000"}}, "10.0.0.1:8000 b"},
			{"another engine", ConfiguredPool{File: s.path("ab"), Engine: SGLang}, "a b"},
			{"no file", ConfiguredPool{Addresses: []string{"10.0.0.1:8000"}}, "10.0.0.1:8000"},
		} {
			before := s.Set().ByAddr(a)
			s.say(t, step.src)
			after := s.Set().ByAddr(a)
			if s.names() != step.want {
				t.Errorf("%s: the workers are %q, want %q", step.name, s.names(), step.want)
			}
			if before != nil && after != nil && before.Slot != after.Slot {
				t.Errorf("%s: a worker that stays became another one", step.name)
			}
			if after != nil && after.Engine != cmp.Or(step.src.Engine, VLLM) {
				t.Errorf("%s: its engine is %q", step.name, after.Engine)
			}
		}
		stop()
		s.say(t, ConfiguredPool{File: s.path("c")}) // late, while the process ends: nothing may be left open
		s.sources.followed["main"].file.Close()
	}
}

func TestSourcesRefuse(t *testing.T) {
	s := newSourced(t)
	stop := s.run(t)
	s.say(t, ConfiguredPool{File: s.path("ab")})
	for _, c := range []struct {
		name string
		src  []ConfiguredPool
		want string
	}{
		{"a bad address", []ConfiguredPool{{Pool: "main", Addresses: []string{"nine"}}}, `pool main: "nine": must be host:port, such as 10.0.0.1:8000 or [fd00::1]:8000`},
		{"an address twice", []ConfiguredPool{{Pool: "main", Addresses: []string{"10.0.0.1:1", "10.0.0.1:1"}}},
			`pool main: two workers are called "10.0.0.1:1"; every worker needs a name of its own`},
		{"no such file", []ConfiguredPool{{Pool: "main", File: s.path("none")}},
			"workers file " + s.path("none") + ": open " + s.path("none") + ": no such file or directory"},
		{"a bad file beside a good one", []ConfiguredPool{{Pool: "other", Engine: VLLM, File: s.path("c")}, {Pool: "main", Engine: VLLM, File: s.path("bad")}},
			"workers file " + s.path("bad") + `: line 2: unknown field "addr"`},
	} {
		if commit, err := s.sources.Prepare(c.src); commit != nil || err == nil || err.Error() != c.want {
			t.Errorf("%s: error\n%v\nwant\n%s", c.name, err, c.want)
		}
		if s.names() != "a b" {
			t.Errorf("%s: the workers became %q", c.name, s.names())
		}
	}
	stop()
}

// TestSourcesFollow: files are followed from when they are named until they are not, bad ones keep the last good list.
func TestSourcesFollow(t *testing.T) {
	s := newSourced(t)
	s.say(t, ConfiguredPool{File: s.path("a")}) // before Run, as at the start
	s.run(t)
	replace(t, s.path("a"), listAB)
	s.until(t, "a b")
	for _, harm := range []func(){
		func() { replace(t, s.path("a"), "workers:\n- addr: 10.0.0.1:8000\n") },
		func() {
			replace(t, s.path("a"), "workers: [{name: a, address: 10.0.0.1:8000}, {name: b, address: 10.0.0.1:8000}]")
		},
		func() {
			if err := os.Remove(s.path("a")); err != nil {
				t.Error(err)
			}
		},
	} {
		before := testutil.ToFloat64(s.metrics.badFiles)
		harm()
		for end := time.Now().Add(10 * time.Second); testutil.ToFloat64(s.metrics.badFiles) == before; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the bad file is not counted")
			}
		}
		if s.names() != "a b" {
			t.Errorf("a bad file made the workers %q", s.names())
		}
	}
	replace(t, s.path("a"), listC)
	s.until(t, "c")

	s.say(t, ConfiguredPool{File: s.path("ab")})
	s.until(t, "a b")
	replace(t, s.path("a"), listA)
	replace(t, s.path("ab"), listC)
	s.until(t, "c") // and a change of the file that is followed no more is none
}

// TestATakenPlaceIsNotTakenBack: what a file says comes too late when another one has taken its place.
func TestATakenPlaceIsNotTakenBack(t *testing.T) {
	s := newSourced(t)
	s.say(t, ConfiguredPool{File: s.path("a")})
	late := s.sources.followed["main"]
	s.say(t, ConfiguredPool{File: s.path("c")})
	if err := s.sources.take(late, []byte(listAB)); err != nil {
		t.Fatal(err)
	}
	if s.names() != "c" {
		t.Errorf("the workers are %q", s.names())
	}
	s.sources.followed["main"].file.Close()
}

// TestReconfigureHealth: other health checks are made at once, whatever pause was being waited for.
func TestReconfigureHealth(t *testing.T) {
	e := newFakeEngine(t)
	cfg := DefaultConfig()
	cfg.Health.Interval = time.Hour
	r, err := New(cfg, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	specs, err := Static("main", VLLM, []string{e.Listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	r.Apply("test", specs)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	asked := func(path string) (was bool) {
		e.set(func(e *fakeEngine) { was = slices.Contains(e.asked, path) })
		return was
	}
	until := func(what string, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("never: %s", what)
			}
		}
	}
	until("the first check", func() bool { return asked("/health") })
	bad := cfg
	bad.Health.Failures = 0
	if err := r.Reconfigure(bad); err == nil {
		t.Error("a bad configuration is taken")
	}
	cfg.Health.Path = "/ping"
	if err := r.Reconfigure(cfg); err != nil {
		t.Fatal(err)
	}
	until("a check of the other path", func() bool { return asked("/ping") })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
