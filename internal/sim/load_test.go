package sim

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

func TestPercentilesAreExact(t *testing.T) {
	sorted := make([]float64, 100)
	for i := range sorted {
		sorted[i] = float64(i + 1)
	}
	for _, c := range []struct{ p, want float64 }{{0, 1}, {0.5, 50}, {0.99, 99}, {1, 100}} {
		if got := percentile(sorted, c.p); got != c.want {
			t.Errorf("p%v of 1..100: %v, want %v", 100*c.p, got, c.want)
		}
	}
	if got := percentile([]float64{7}, 0.99); got != 7 {
		t.Errorf("of one value: %v", got)
	}
}

func TestReport(t *testing.T) {
	ok := func(ttft time.Duration, prompt, cached int, engine string) result {
		x := result{Status: 200, Engine: engine, TTFT: ttft}
		x.Usage.PromptTokens, x.Usage.CachedTokens = prompt, cached
		return x
	}
	r := report([]result{
		ok(time.Second, 100, 80, "a"), ok(3*time.Second, 300, 20, "b"), ok(5*time.Second, 100, 0, "b"),
		{Status: 503, Engine: "a", Err: errCut},
	}, 2*time.Second)
	if r.Requests != 4 || r.Errors != 1 || r.TTFTMeanS != 3 || r.TTFTP50S != 3 || r.TTFTP99S != 3 || r.CachedShare != 0.2 || r.RequestsPerS != 2 ||
		r.Served["a"] != 2 || r.Served["b"] != 2 || r.FirstError != errCut.Error() {
		t.Errorf("%+v", r)
	}
	if empty := report(nil, 0); empty.Requests != 0 || math.IsNaN(empty.TTFTMeanS+empty.CachedShare+empty.RequestsPerS) {
		t.Errorf("of nothing: %+v", empty)
	}
}

func TestWorkload(t *testing.T) {
	w := DemoLoad().Workload
	first, again, other := w.conversation(3, false), w.conversation(3, false), w.conversation(4, false)
	text := func(c *conversation) string {
		raw, err := json.Marshal(c.messages)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	if text(first) != text(again) || text(first) == text(other) {
		t.Error("a conversation must be a function of seed and number")
	}
	turns, before := 1, text(first)
	for {
		think, ok := first.next("the answer ")
		if !ok {
			break
		}
		turns++
		if now := text(first); !strings.HasPrefix(now, strings.TrimSuffix(before, "]")) {
			t.Fatalf("turn %d does not begin with the turn before", turns)
		} else {
			before = now
		}
		if think < w.Think.From || think > w.Think.To || first.output < w.OutputTokens.From || first.output > w.OutputTokens.To {
			t.Errorf("thinks for %s, wants %d tokens", think, first.output)
		}
	}
	if turns < w.Turns.From || turns > w.Turns.To {
		t.Errorf("%d turns", turns)
	}
	prompts := map[content]int{}
	smallest, largest := math.MaxInt, 0
	for n := range 200 {
		c := w.conversation(n, true)
		prompts[c.messages[0].Content]++
		for ok := true; ok; _, ok = c.next(strings.Repeat("word", 48)) {
			smallest, largest = min(smallest, len(text(c))), max(largest, len(text(c)))
		}
	}
	if len(prompts) != w.Prompts {
		t.Errorf("%d system prompts, want %d", len(prompts), w.Prompts)
	}
	t.Logf("bodies of %d to %d bytes", smallest, largest)
}

// little is a load for one engine that is over soon.
func little(r *rig) Load {
	l := DemoLoad()
	l.URL, l.Model, l.Conversations, l.Duration = r.url(""), "sim-model", 4, 400*time.Millisecond
	l.Wave, l.Think = 20*time.Millisecond, Range[time.Duration]{0, 20 * time.Millisecond}
	return l
}

func TestRunLoad(t *testing.T) {
	r := start(t, nil)
	l := little(r)
	progress := 0
	l.ProgressEvery, l.Progress = 20*time.Millisecond, func(Report) { progress++ }
	got, err := RunLoad(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if got.Requests < 4 || got.Errors != 0 || got.Served["one"] != got.Requests || got.CachedShare <= 0 || got.TTFTMeanS <= 0 ||
		got.TTFTP99S < got.TTFTP50S || got.RequestsPerS <= 0 {
		t.Errorf("%+v", got)
	}
	if progress == 0 {
		t.Error("no progress was reported")
	}
	if s := r.Stats(); s.Running+s.Waiting != 0 {
		t.Errorf("requests are left: %+v", s)
	}
}

func TestRunLoadReportsErrors(t *testing.T) {
	r := start(t, nil)
	for _, c := range []struct{ fault, message string }{{`{"mode":"503"}`, "status 503"}, {`{"mode":"cut","after_tokens":1}`, "EOF"}} {
		r.fault(c.fault)
		got, err := RunLoad(t.Context(), little(r))
		if err != nil || got.Requests == 0 || got.Errors != got.Requests || !strings.Contains(got.FirstError, c.message) {
			t.Errorf("%s: %+v, %v", c.fault, got, err)
		}
	}
}

func TestRunLoadEndsWithItsContext(t *testing.T) {
	r := start(t, func(c *Config) { c.MinStep = 50 * time.Millisecond })
	l := little(r)
	l.Duration = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	got, err := RunLoad(ctx, l)
	if err != nil || got.Errors != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	r.eventually("what was in flight is aborted", func() bool { return r.Stats().Held == 0 })
}

func TestLoadConfig(t *testing.T) {
	l := DemoLoad()
	l.URL = "localhost:80"
	l.Turns = Range[int]{3, 2}
	_, err := RunLoad(t.Context(), l)
	for _, want := range []string{"url: \"localhost:80\": must be", "turns: {3 2}: must be a range"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

func TestAwait(t *testing.T) {
	r := start(t, nil)
	r.fault(`{"mode":"503","count":2}`)
	if err := Await(t.Context(), r.url(""), "sim-model"); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := Await(ctx, r.url(""), "nope"); err == nil || !strings.Contains(err.Error(), "status 404") {
		t.Errorf("%v, want the last answer", err)
	}
}
