package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"attache/internal/bubble"
)

// addr0 is the address of all workers of a table.
var addr0 = netip.MustParseAddrPort("10.0.0.1:8000")

func TestMerging(t *testing.T) {
	events := EventSource{Endpoint: "tcp://10.0.0.1:5557", Ranks: 2}
	for _, c := range []struct {
		name  string
		lists map[string]Spec // what each source says of the one worker
		want  Spec
	}{
		{"the highest says who it is", map[string]Spec{
			"kubernetes/p/engines": {Name: "models/vllm-0", Pool: "p"}, "dns/p/engines": {Name: "engines:8000#10.0.0.1", Pool: "p"},
			"file/p": {Name: "gpu-a", Pool: "p"}},
			Spec{Name: "gpu-a", Pool: "p"}},
		{"the configuration stands above everything", map[string]Spec{
			"registered": {Name: "r", Pool: "p"}, "file/p": {Name: "f", Pool: "p"}, "static/p": {Name: "s", Pool: "p"}},
			Spec{Name: "s", Pool: "p"}},
		{"what registers itself stands above what is found", map[string]Spec{
			"registered": {Name: "r", Pool: "p"}, "dns/p/a": {Name: "d", Pool: "p"}, "kubernetes/p/a": {Name: "k", Pool: "p"}},
			Spec{Name: "r", Pool: "p"}},
		{"a kind that nobody knows stands below all", map[string]Spec{"kubernetes/p/a": {Name: "k", Pool: "p"}, "a": {Name: "x", Pool: "p"}},
			Spec{Name: "k", Pool: "p"}},
		{"of one kind the first by name", map[string]Spec{"dns/p/b": {Name: "b", Pool: "p"}, "dns/p/a": {Name: "a", Pool: "p"}},
			Spec{Name: "a", Pool: "p"}},
		{"gaps are filled from below, the nearest first", map[string]Spec{
			"static/p": {Name: "s", Pool: "p", Engine: Auto}, "file/p": {Name: "f", Pool: "p", Engine: SGLang, Events: events},
			"registered": {Name: "r", Pool: "p", Engine: VLLM, Events: EventSource{Off: true}}},
			Spec{Name: "s", Pool: "p", Engine: SGLang, Events: events}},
		{"what is said is not overruled", map[string]Spec{
			"static/p": {Name: "s", Pool: "p", Engine: VLLM, Events: EventSource{Off: true}},
			"file/p":   {Name: "f", Pool: "p", Engine: SGLang, Events: events}},
			Spec{Name: "s", Pool: "p", Engine: VLLM, Events: EventSource{Off: true}}},
		{"an engine that nobody knows stays auto", map[string]Spec{"static/p": {Name: "s", Pool: "p", Engine: Auto}, "file/p": {Name: "f", Pool: "p"}},
			Spec{Name: "s", Pool: "p", Engine: Auto}},
		{"labels are filled one by one", map[string]Spec{
			"file/p":         {Name: "f", Pool: "p", Labels: map[string]string{"zone": "a", "rack": "r1"}},
			"kubernetes/p/x": {Name: "k", Pool: "p", Labels: map[string]string{"zone": "b", "role": "prefill"}}},
			Spec{Name: "f", Pool: "p", Labels: map[string]string{"zone": "a", "rack": "r1", "role": "prefill"}}},
		{"any source drains", map[string]Spec{"static/p": {Name: "s", Pool: "p"}, "kubernetes/p/x": {Name: "k", Pool: "p", Drain: true}},
			Spec{Name: "s", Pool: "p", Drain: true}},
		{"another pool's source fills nothing", map[string]Spec{
			"static/p": {Name: "s", Pool: "p"}, "kubernetes/q/x": {Name: "k", Pool: "q", Drain: true, Engine: VLLM, Labels: map[string]string{"a": "b"}}},
			Spec{Name: "s", Pool: "p"}},
	} {
		c.want.Addr = addr0
		names := slices.Sorted(maps.Keys(c.lists))
		for turn := range len(names) { // whatever the order of arrival
			var s sources
			for i := range names {
				name := names[(turn+i)%len(names)]
				spec := c.lists[name]
				spec.Addr = addr0
				s.open(name).specs = []Spec{spec}
			}
			all, order := s.merged()
			c.want.Source = s[0].name
			if diff := cmp.Diff(c.want, all[addr0], cmpopts.EquateComparable(netip.AddrPort{})); diff != "" || len(order) != 1 {
				t.Errorf("%s: %d addresses; (-want +got)\n%s", c.name, len(order), diff)
			}
		}
	}
}

// TestMergingAgainstTheRuleInPlainWords draws what sources say, and in which order they come.
func TestMergingAgainstTheRuleInPlainWords(t *testing.T) {
	names := []string{"static/p", "static/q", "file/p", "registered", "dns/p/a", "dns/p/b", "kubernetes/q/a", "test"} // the highest first
	rapid.Check(t, func(t *rapid.T) {
		word := func(what string, words ...string) string { return rapid.SampledFrom(words).Draw(t, what) }
		lists := map[string][]Spec{}
		for _, name := range names {
			for i := range rapid.IntRange(0, 4).Draw(t, "workers of "+name) {
				s := Spec{Name: fmt.Sprint(name, i), Pool: word("pool", "p", "q"), Engine: Engine(word("engine", "", "auto", "vllm", "sglang")),
					Addr:  netip.AddrPortFrom(addr0.Addr(), rapid.Uint16Range(1, 5).Draw(t, "port")),
					Drain: rapid.Bool().Draw(t, "drain")}
				if word("events", "said", "open") == "said" {
					s.Events.Ranks = rapid.IntRange(1, 3).Draw(t, "ranks")
				}
				for _, key := range []string{"a", "b"} {
					if value := word("label", "", "1", "2"); value != "" {
						if s.Labels == nil {
							s.Labels = map[string]string{}
						}
						s.Labels[key] = value
					}
				}
				lists[name] = append(lists[name], s)
			}
		}
		var s sources
		for _, name := range rapid.Permutation(names).Draw(t, "arrival") {
			e := s.open(name)
			for _, spec := range lists[name] {
				spec.Labels = maps.Clone(spec.Labels)
				e.specs = append(e.specs, spec)
			}
		}
		got, _ := s.merged()
		want := map[netip.AddrPort]Spec{}
		for port := uint16(1); port <= 5; port++ {
			addr := netip.AddrPortFrom(addr0.Addr(), port)
			var said []Spec // of this address, the highest first
			for _, name := range names {
				for _, spec := range lists[name] {
					if spec.Addr == addr && (len(said) == 0 || spec.Pool == said[0].Pool) {
						spec.Source = name
						said = append(said, spec)
					}
				}
			}
			if len(said) > 0 {
				want[addr] = inPlainWords(said)
			}
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
		for _, e := range s {
			if diff := cmp.Diff(lists[e.name], e.specs, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
				t.Fatalf("what %s said was changed: (-want +got)\n%s", e.name, diff)
			}
		}
	})
}

// inPlainWords is the rule of Source, one sentence per loop.
func inPlainWords(said []Spec) Spec {
	s := said[0]
	s.Labels = map[string]string{}
	for _, lower := range slices.Backward(said) {
		maps.Copy(s.Labels, lower.Labels)
		s.Drain = s.Drain || lower.Drain
		if lower.Events != (EventSource{}) {
			s.Events = lower.Events
		}
		if lower.Engine != "" && lower.Engine != Auto {
			s.Engine = lower.Engine
		}
	}
	if s.Engine == "" && slices.ContainsFunc(said, func(l Spec) bool { return l.Engine == Auto }) {
		s.Engine = Auto
	}
	return s
}

// TestASourceThatFails tells its figures, and is told of once.
func TestASourceThatFails(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var text strings.Builder
		reg := prometheus.NewRegistry()
		r, err := New(DefaultConfig(), slog.New(slog.NewTextHandler(&text, nil)), reg)
		if err != nil {
			t.Fatal(err)
		}
		r.Apply("static/p", specs("p/a"))
		s := r.Source("dns/p/engines")
		s.Apply(specs("p/a", "p/b"))
		time.Sleep(time.Minute)
		s.Failed(errors.New("no answer from 127.0.0.1:1234"))
		s.Failed(errors.New("no answer from 127.0.0.1:1235"))
		if n := len(r.Set().Pool("p")); n != 2 {
			t.Errorf("%d workers, want 2: the last list is kept", n)
		}
		status := r.Sources()
		if got := fmt.Sprintf("%s %s %d, %s %s %d: %s", status[0].Pool, status[0].Name, status[0].Workers, status[1].Pool, status[1].Name,
			status[1].Workers, status[1].Err); got != "p static 1, p dns/engines 2: no answer from 127.0.0.1:1235" {
			t.Error(got)
		}
		if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP attache_discovery_age_seconds Time since a source of discovery was last read with success; its workers are those of that time.
# TYPE attache_discovery_age_seconds gauge
attache_discovery_age_seconds{pool="p",source="dns/engines"} 60
# HELP attache_discovery_errors_total Times that a source of discovery could not be read and its last list was kept.
# TYPE attache_discovery_errors_total counter
attache_discovery_errors_total{pool="p",source="dns/engines"} 2
# HELP attache_discovery_workers Workers that a source of discovery named last.
# TYPE attache_discovery_workers gauge
attache_discovery_workers{pool="p",source="dns/engines"} 2
attache_discovery_workers{pool="p",source="static"} 1
`), "attache_discovery_age_seconds", "attache_discovery_errors_total", "attache_discovery_workers"); err != nil {
			t.Error(err)
		}
		s.Apply(specs("p/a", "p/b"))
		if s := r.Sources()[1]; s.Err == "" {
			t.Error("a list alone does not end the failure")
		}
		s.Confirm()
		s.Confirm()
		if s := r.Sources()[1]; s.Err != "" || !s.Good.Equal(time.Now()) {
			t.Errorf("%+v, want it good now", s)
		}
		if fails, works := strings.Count(text.String(), "discovery fails"), strings.Count(text.String(), "discovery works again"); fails != 1 || works != 1 {
			t.Errorf("%d failures and %d recoveries are told, want one of each:\n%s", fails, works, text.String())
		}
	})
}

// TestAWorkerIsRenamed leaves no figure behind under the old name.
func TestAWorkerIsRenamed(t *testing.T) {
	reg := prometheus.NewRegistry()
	r, err := New(DefaultConfig(), slog.New(slog.DiscardHandler), reg)
	if err != nil {
		t.Fatal(err)
	}
	r.Apply("dns/p/x", []Spec{{Name: "found", Pool: "p", Addr: addr0}})
	r.Apply("file/p", []Spec{{Name: "written", Pool: "p", Addr: addr0}})
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP attache_worker_state 1 for the state that a worker is in.
# TYPE attache_worker_state gauge
attache_worker_state{pool="p",state="starting",worker="written"} 1
`), "attache_worker_state"); err != nil {
		t.Error(err)
	}
}
