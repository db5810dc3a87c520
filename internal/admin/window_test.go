package admin

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// list of everything that happened: the dumb twin of a Window.
type ledger struct{ events []happening }

type happening struct {
	at                                             int64
	requests, errors                               int
	prompt, available, captured, reported, deliver int
	ttft                                           float64 // 0: none
}

// sum reads the seconds from, inclusive, to, exclusive.
func (l *ledger) sum(from, to int64) (s happening, ttfts []float64) {
	for _, e := range l.events {
		if e.at < from || e.at >= to {
			continue
		}
		s.requests += e.requests
		s.errors += e.errors
		s.prompt += e.prompt
		s.available += e.available
		s.captured += e.captured
		s.reported += e.reported
		s.deliver += e.deliver
		if e.ttft > 0 {
			ttfts = append(ttfts, e.ttft)
		}
	}
	slices.Sort(ttfts)
	return s, ttfts
}

func quantileOf(sorted []float64, q float64) Figure {
	if len(sorted) == 0 {
		return Figure{}
	}
	return Known(sorted[max(int(math.Ceil(q*float64(len(sorted)))), 1)-1])
}

// near allows for the width of a bucket.
func near(t *rapid.T, what string, got, want Figure) {
	t.Helper()
	g, okG := got.Get()
	w, okW := want.Get()
	if okG != okW || okG && math.Abs(math.Log2(g/w)) > 0.5/ttftSteps+1e-9 {
		t.Fatalf("%s: %v, want about %v", what, got, want)
	}
}

func same(t *rapid.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

func TestWindowAgainstLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.IntRange(1, 20).Draw(t, "seconds")
		now := time.Unix(1_700_000_000, 0)
		w := NewWindow(seconds, func() time.Time { return now })
		var l ledger
		t.Repeat(map[string]func(*rapid.T){
			"time passes": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.SampledFrom([]int{200, 1000, 3000, 30_000, 300_000}).Draw(t, "ms")) * time.Millisecond)
			},
			"decided": func(t *rapid.T) {
				p := rapid.IntRange(0, 1000).Draw(t, "prompt")
				a := rapid.IntRange(0, p).Draw(t, "available")
				c := rapid.IntRange(0, a).Draw(t, "captured")
				w.Decided(p, a, c)
				l.events = append(l.events, happening{at: now.Unix(), requests: 1, prompt: p, available: a, captured: c})
			},
			"failed": func(*rapid.T) {
				w.Failed()
				l.events = append(l.events, happening{at: now.Unix(), errors: 1})
			},
			"first token": func(t *rapid.T) {
				ttft := time.Duration(rapid.Float64Range(1.1e6, 1e11).Draw(t, "ns"))
				w.FirstToken(ttft)
				l.events = append(l.events, happening{at: now.Unix(), ttft: ttft.Seconds()})
			},
			"delivered": func(t *rapid.T) {
				p := rapid.IntRange(0, 1000).Draw(t, "prompt")
				d := rapid.IntRange(0, p).Draw(t, "cached")
				w.Delivered(p, d)
				l.events = append(l.events, happening{at: now.Unix(), reported: p, deliver: d})
			},
			"": func(t *rapid.T) {
				span := rapid.IntRange(1, seconds).Draw(t, "span")
				got := w.Summary(time.Duration(span) * time.Second)
				want, ttfts := l.sum(now.Unix()-int64(span), now.Unix())
				recent := min(span, rateSeconds)
				last, _ := l.sum(now.Unix()-int64(recent), now.Unix())
				same(t, "requests/s", got.RequestsPerS, Share(last.requests, recent))
				same(t, "errors/s", got.ErrorsPerS, Share(last.errors, recent))
				same(t, "available", got.Reuse.Available, Share(want.available, want.prompt))
				same(t, "captured", got.Reuse.Captured, Share(want.captured, want.prompt))
				same(t, "delivered", got.Reuse.Delivered, Share(want.deliver, want.reported))
				near(t, "p50", got.TTFTP50S, quantileOf(ttfts, 0.5))
				near(t, "p99", got.TTFTP99S, quantileOf(ttfts, 0.99))

				s := w.Series()
				same(t, "start", s.Start.Unix(), now.Unix()-int64(seconds))
				same(t, "points", len(s.Requests), seconds)
				for i := range seconds {
					at := s.Start.Unix() + int64(i)
					one, _ := l.sum(at, at+1)
					same(t, "requests of a second", s.Requests[i], one.requests)
					same(t, "errors of a second", s.Errors[i], one.errors)
					five, ttfts := l.sum(max(at-smoothing+1, s.Start.Unix()), at+1)
					same(t, "captured of five", s.Captured[i], Share(five.captured, five.prompt))
					near(t, "p50 of five", s.TTFTP50S[i], quantileOf(ttfts, 0.5))
				}
			},
		})
	})
}

func TestWindowOddities(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	w := NewWindow(60, func() time.Time { return now })
	for _, ttft := range []time.Duration{-time.Second, 0, time.Microsecond, time.Hour} {
		w.FirstToken(ttft)
	}
	w.Decided(-5, -5, -5)
	now = now.Add(-3 * time.Second) // a clock set back a little: nothing is lost
	w.Failed()
	now = now.Add(4 * time.Second)
	got := w.Summary(time.Minute)
	if got.RequestsPerS != Share(1, rateSeconds) || got.ErrorsPerS != Share(1, rateSeconds) || got.Reuse.Available != (Figure{}) {
		t.Errorf("summary %+v", got)
	}
	if p99, _ := got.TTFTP99S.Get(); p99 < 100 {
		t.Errorf("an hour counts as %v s", p99)
	}
	now = now.Add(-time.Hour) // far back: it starts again
	w.Failed()
	now = now.Add(time.Second)
	if got := w.Summary(time.Minute); got.ErrorsPerS != Share(1, rateSeconds) || got.RequestsPerS != Share(0, rateSeconds) {
		t.Errorf("after a clock set back an hour: %+v", got)
	}
}

func BenchmarkWindowDecided(b *testing.B) {
	w := NewWindow(300, time.Now)
	for b.Loop() {
		w.Decided(4096, 3000, 2500)
	}
}
