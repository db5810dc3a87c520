package worker

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// drained is a registry of one worker, w at addr, and what it has told of drains.
func drained(t *testing.T) (r *Registry, told *[]Drain) {
	t.Helper()
	r, err := New(DefaultConfig(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	told = new([]Drain)
	r.TellDrains(func(d Drain) { *told = append(*told, d) })
	return r, told
}

func TestTheLastWordOnAWorkerCounts(t *testing.T) {
	addr, now := netip.MustParseAddrPort("10.0.0.1:8000"), time.Now().Add(-time.Hour)
	w := Spec{Name: "w", Pool: "p", Addr: addr}
	r, told := drained(t)
	draining := func() bool {
		w := r.Set().ByAddr(addr)
		return w != nil && w.State == Draining
	}
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"it is there", func() { r.Apply("static/p", []Spec{w}) }, false},
		{"drained elsewhere", func() { r.HearDrain(Drain{addr, "p", true, now}) }, true},
		{"given back before that", func() { r.HearDrain(Drain{addr, "p", false, now.Add(-time.Second)}) }, true},
		{"given back after it", func() { r.HearDrain(Drain{addr, "p", false, now.Add(time.Millisecond)}) }, false},
		{"drained here", func() {
			if err := r.Drain("w", true); err != nil {
				t.Error(err)
			}
		}, true},
		{"what was said before comes again", func() { r.HearDrain(Drain{addr, "p", false, now.Add(time.Millisecond)}) }, true},
		{"it goes, and another one comes", func() { r.Apply("static/p", nil); r.Apply("static/p", []Spec{w}) }, false},
		{"drained before it comes", func() {
			r.Apply("static/p", nil)
			r.HearDrain(Drain{addr, "p", true, now.Add(2 * time.Hour)})
			r.Apply("static/p", []Spec{w})
		}, true},
	} {
		step.do()
		if draining() != step.want {
			t.Errorf("%s: draining is %v", step.name, draining())
		}
	}
	if len(*told) != 1 || (*told)[0].Worker != addr || !(*told)[0].On || (*told)[0].Pool != "p" {
		t.Errorf("told %+v, want what was said here, and nothing else", *told)
	}
	if got := r.Drains("p"); len(got) != 1 || !got[0].On || len(r.Drains("q")) != 0 {
		t.Errorf("the last words are %+v, and of another pool %+v", got, r.Drains("q"))
	}
	if err := r.Drain("nobody", true); err == nil {
		t.Error("nobody was drained")
	}
}
