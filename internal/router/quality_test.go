package router

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"attache/internal/slot"
	"attache/internal/worker"
)

// series are the samples of a metric by their labels, "a=b,c=d"; histograms show their sum and count.
func series(t *testing.T, reg prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "attache_router_"+name {
			continue
		}
		if f.GetHelp() == "" {
			t.Errorf("%s has no help", f.GetName())
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			key := strings.Join(labels, ",")
			switch f.GetType().String() {
			case "COUNTER":
				found[key] = m.GetCounter().GetValue()
			case "GAUGE":
				found[key] = m.GetGauge().GetValue()
			default:
				found[key+" sum"] = m.GetHistogram().GetSampleSum()
				found[key+" count"] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return found
}

func TestTenantsAreBounded(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Tenants = 3 }, nil, workers("default", 1, worker.Ready)...)
	text := long("a prompt", 4000)
	tokens := 0
	for _, tenant := range []string{"alice", "bob", "", "carol", "dave", "erin", "alice", "other", "\xff", strings.Repeat("x", 129)} {
		req := chatOf(t, "m", text)
		req.Tenant = tenant
		d, err := w.Route(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		tokens = d.Done.rec.promptTokens
		d.Done.End()
		w.Report(d.ID, Outcome{Status: 200, Served: addr(1), Attempts: 1, PromptTokens: 100, CachedTokens: 40, CachedKnown: true})
	}
	want := map[string]float64{"alice": 2, "bob": 1, "carol": 1, "other": 5}
	prompts, measured := series(t, w.reg, "tenant_prompt_tokens_total"), series(t, w.reg, "tenant_measured_prompt_tokens_total")
	cached := series(t, w.reg, "tenant_cached_tokens_total")
	if len(prompts) != len(want) || len(measured) != len(want) || len(cached) != 3*len(want) {
		t.Errorf("%v\n%v\n%v", prompts, measured, cached)
	}
	for tenant, requests := range want {
		key := "pool=default,tenant=" + tenant
		if got := prompts[key]; got != requests*float64(tokens) {
			t.Errorf("%s: %v prompt tokens, want %v requests of %d", tenant, got, requests, tokens)
		}
		if measured[key] != 100*requests || cached["pool=default,stage=delivered,tenant="+tenant] != 40*requests {
			t.Errorf("%s: %v delivered of %v, want 40 and 100 a request", tenant, cached, measured)
		}
	}
	if a, b := cached["pool=default,stage=available,tenant=alice"], cached["pool=default,stage=captured,tenant=alice"]; a == 0 || a != b {
		t.Errorf("alice: available %v, captured %v: the one worker held all of her second prompt", a, b)
	}
}

func TestNobodyIsCountedByTenant(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Tenants = 0 }, nil, workers("default", 1, worker.Ready)...)
	req := chatOf(t, "m", "x")
	req.Tenant = "alice"
	if _, err := w.Route(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if got := series(t, w.reg, "tenant_prompt_tokens_total"); len(got) != 0 {
		t.Error(got)
	}
}

// TestHowFarPredictionsWereOff: only streams that the chosen worker answered at once are compared.
func TestHowFarPredictionsWereOff(t *testing.T) {
	w := newWorld(t, nil, nil, workers("default", 1, worker.Ready, worker.Ready)...)
	const count, median = "pool=default count", "pool=default,quantile=0.5"
	for _, c := range []struct {
		name    string
		change  func(*Outcome)
		timed   float64 // 1: the time is compared
		regrets float64
	}{
		{"as it should be", func(*Outcome) {}, 1, 1},
		{"a retry", func(o *Outcome) { o.Attempts = 2 }, 0, 0},
		{"another worker", func(o *Outcome) { o.Served = addr(9) }, 0, 0},
		{"an error", func(o *Outcome) { o.Status = 500 }, 0, 0},
		{"it broke off", func(o *Outcome) { o.Broken = true }, 0, 0},
		{"no time", func(o *Outcome) { o.EngineTTFT = 0 }, 0, 1},
		{"no usage", func(o *Outcome) { o.CachedKnown = false }, 1, 1},
		{"usage without a length", func(o *Outcome) { o.PromptTokens = 0 }, 1, 1},
		{"neither", func(o *Outcome) { o.EngineTTFT, o.CachedKnown = 0, false }, 0, 0},
	} {
		timed, regrets := series(t, w.reg, "ttft_error")[count], series(t, w.reg, "regret_seconds")[count]
		d := w.route(t, "m", long(c.name, 4000))
		d.Done.End()
		o := Outcome{Status: 200, Attempts: 1, Served: d.Done.rec.named[0].Addr, TTFT: time.Second, EngineTTFT: 2 * d.Done.rec.booking.PredictedTTFT,
			PromptTokens: 1000, CachedKnown: true}
		c.change(&o)
		w.Report(d.ID, o)
		timed, regrets = series(t, w.reg, "ttft_error")[count]-timed, series(t, w.reg, "regret_seconds")[count]-regrets
		if timed != c.timed || regrets != c.regrets {
			t.Errorf("%s: %v times and %v regrets, want %v and %v", c.name, timed, regrets, c.timed, c.regrets)
		}
	}
	if got := series(t, w.reg, "ttft_error_recent")[median]; math.Abs(got-.5) > 1e-6 {
		t.Errorf("median miss %v, all were half of what was observed", got)
	}
	w.clock = w.clock.Add(missesFor + time.Second)
	if got := series(t, w.reg, "ttft_error_recent"); len(got) != 0 {
		t.Errorf("still there after the window: %v", got)
	}
}

func TestQuantilesOfMisses(t *testing.T) {
	var m misses
	now := time.Unix(1000, 0)
	if q := m.quantiles(now, .5); q != nil {
		t.Error("quantiles of nothing")
	}
	m.add(now.Add(-missesFor-1), 100) // too old
	for i := range 10 {
		m.add(now, float64((i*7)%10)) // 0 to 9 in some order
	}
	if q := m.quantiles(now, 0, .5, .9, 1); fmt.Sprint(q) != "[0 5 9 9]" {
		t.Error(q)
	}
	for range len(m.ring) {
		m.add(now, 3)
	}
	if q := m.quantiles(now, 0, 1); fmt.Sprint(q) != "[3 3]" {
		t.Errorf("%v after a whole ring of threes", q)
	}
}

// TestHeatAgainstItsTwin: the twin keeps everything that ever happened.
func TestHeatAgainstItsTwin(t *testing.T) {
	type booked struct {
		worker, tokens int
		span           int64
	}
	rapid.Check(t, func(t *rapid.T) {
		ws := []*worker.Worker{}
		for i := range rapid.IntRange(1, 4).Draw(t, "workers") {
			state := rapid.SampledFrom([]worker.State{worker.Ready, worker.Unhealthy}).Draw(t, "state")
			ws = append(ws, worker.NewWorker(worker.Spec{Name: fmt.Sprint(i), Addr: addr(i + 1)}, slot.Slot(2*i), state, slot.Slot(2*i+1)))
		}
		var h heat
		var all []booked
		now := time.Unix(1_000_003, 0)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "seconds")) * time.Second)
			i := rapid.IntRange(0, len(ws)-1).Draw(t, "worker")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				for _, s := range ws[i].Slots() {
					h.forget(s)
				}
				kept := all[:0]
				for _, b := range all {
					if b.worker != i {
						kept = append(kept, b)
					}
				}
				all = kept
			default:
				tokens := rapid.IntRange(0, 1000).Draw(t, "tokens")
				h.add(rapid.SampledFrom(ws[i].Slots()).Draw(t, "slot"), tokens, now)
				all = append(all, booked{i, tokens, now.Unix() / spanSeconds})
			}
			had := make([]float64, len(ws))
			for _, b := range all {
				if b.span > now.Unix()/spanSeconds-int64(len(h.spans)) {
					had[b.worker] += float64(b.tokens)
				}
			}
			most, sum, n := 0.0, 0.0, 0.0
			for j, w := range ws {
				if had[j] > 0 || w.Eligible() {
					most, sum, n = max(most, had[j]), sum+had[j], n+1
				}
			}
			got, ok := h.factor(ws, now)
			if ok != (sum > 0) || ok && math.Abs(got-most*n/sum) > 1e-9 {
				t.Fatalf("factor %v, %v; want %v of %v over %v", got, ok, most, sum, n)
			}
		}
	})
}

func TestHotSpot(t *testing.T) {
	w := newWorld(t, nil, nil, workers("default", 1, worker.Ready, worker.Ready, worker.Ready, worker.Ready)...)
	const key = "pool=default"
	if got := series(t, w.reg, "hot_spot_factor"); len(got) != 0 {
		t.Errorf("a hot spot before the first request: %v", got)
	}
	w.route(t, "m", long("a prompt", 4000))
	if got := series(t, w.reg, "hot_spot_factor")[key]; got != 4 {
		t.Errorf("%v, one of four workers had all", got)
	}
	for i := range 3 { // the others are idle, so that they come first
		w.route(t, "m", long(fmt.Sprint("prompt ", i), 4000))
	}
	if got := series(t, w.reg, "hot_spot_factor")[key]; got < 1 || got > 1.1 {
		t.Errorf("%v, every worker had one prompt of about the same length", got)
	}
	w.clock = w.clock.Add(time.Minute)
	if got := series(t, w.reg, "hot_spot_factor"); len(got) != 0 {
		t.Errorf("still hot after a minute: %v", got)
	}
}
