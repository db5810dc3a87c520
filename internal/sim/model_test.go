package sim

import (
	"testing"
	"time"

	"attache/scoring"
)

// The times are computed by hand from the formula and the figures of the first profile: 2.2 ms + max(13 ms, 55 us per
// token) + 1.75 ns per pair + 76 ns per token of context.
func TestStepTimes(t *testing.T) {
	p, _ := profileOf("")
	for _, c := range []struct {
		name string
		b    batch
		want time.Duration
	}{
		{"one answer on 1,000 tokens", batch{tokens: 1, kv: 1000}, 15_276 * time.Microsecond},
		{"a small prompt costs what the weights cost", batch{tokens: 100, pairs: 100 * 50}, 15_208_750 * time.Nanosecond},
		{"a full chunk from the start", batch{tokens: 8192, pairs: 8192 * 4096}, 511_480_256 * time.Nanosecond},
		{"a full chunk behind another", batch{tokens: 8192, pairs: 8192 * (8192 + 4096)}, 628_920_768 * time.Nanosecond},
		{"1,000 prompt tokens beside 10 answers on 2,000 tokens each", batch{tokens: 1010, pairs: 1000 * 500, kv: 20_000}, 60_145 * time.Microsecond},
	} {
		if got := p.model.step(c.b); (got - c.want).Abs() > time.Microsecond {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// A lone prompt takes what the router's model predicts for it: both have the figures of the same machine.
func TestLonePromptTakesWhatTheRouterPredicts(t *testing.T) {
	speed := scoring.DefaultSpeed()
	for _, tokens := range []int{1, 100, 3000, 8192} {
		c := NewCore(DefaultConfig())
		if err := c.Submit(0, Request{ID: 1, Prompt: tokens, Output: 1}); err != nil {
			t.Fatal(err)
		}
		took, events := c.Step(0)
		want := time.Duration(speed.Prefill(tokens, 0) * float64(time.Second))
		if len(events) != 1 || (took-want).Abs() > time.Microsecond {
			t.Errorf("%d tokens: %s and %d events, the router predicts %s", tokens, took, len(events), want)
		}
	}
}

func TestProfiles(t *testing.T) {
	for _, name := range Profiles() {
		p, ok := profileOf(name)
		if !ok || p.kvTokens < 100_000 || p.model.PerToken <= 0 {
			t.Errorf("%s: %v %+v", name, ok, p)
		}
	}
	if _, ok := profileOf("abacus"); ok {
		t.Error("an unknown profile was found")
	}
}
