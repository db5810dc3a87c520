package admin

import (
	"math"
	"sync"
	"time"
)

// Window counts what happened in each of the last seconds: requests, errors, prompt tokens and where they were cached,
// and a histogram of times to first token. It answers with rates and quantiles (Summary) and with the curve (Series).
//
// Every call adds to the current second in a fixed ring, so that counting costs the same however many requests there
// are and nothing has to tick while nothing happens. Answers leave the current, unfinished second out. A window of n
// seconds takes about 340 n bytes. Safe for concurrent use.
type Window struct {
	now func() time.Time

	mu   sync.Mutex // guards ring and head
	ring []second
	head int64 // the newest second that was written, in Unix seconds
}

// second is one second of a Window. It belongs to the Unix second at; an older one is stale and counts as empty.
type second struct {
	at               int64
	requests, errors uint32
	prompt           uint64 // tokens of decided requests, with what was available and captured of them
	available        uint64
	captured         uint64
	reported         uint64 // prompt tokens of requests whose engine reported what it reused
	delivered        uint64
	ttft             [ttftBuckets]uint32
}

// TTFT buckets grow by a quarter octave from 1 ms to 131 s, so that a quantile is off by at most 9 %.
const (
	ttftFirst   = 0.001 // s, upper end of the first bucket
	ttftSteps   = 4     // buckets per octave
	ttftBuckets = 17*ttftSteps + 2
)

// rateSeconds is what rates cover: they are read as what happens now, and a minute's average would lag behind that.
const rateSeconds = 10

// Summary is what happened within a span of time; rates are those of its last ten seconds.
type Summary struct {
	RequestsPerS, ErrorsPerS Figure
	TTFTP50S, TTFTP99S       Figure
	Reuse                    Reuse
}

// NewWindow makes a window of this many finished seconds. Five minutes (300) fill the dashboard's charts.
func NewWindow(seconds int, now func() time.Time) *Window {
	return &Window{now: now, ring: make([]second, max(seconds, 1)+1)}
}

// Decided counts a routed request: its prompt, the most any eligible worker held of it, and what the chosen one holds.
func (w *Window) Decided(promptTokens, available, captured int) {
	w.add(func(s *second) {
		s.requests++
		s.prompt += uint64(max(promptTokens, 0))
		s.available += uint64(max(available, 0))
		s.captured += uint64(max(captured, 0))
	})
}

// Failed counts a request that got no answer or an error.
func (w *Window) Failed() { w.add(func(s *second) { s.errors++ }) }

// FirstToken counts a measured time to first token.
func (w *Window) FirstToken(ttft time.Duration) {
	b := ttftBucket(ttft.Seconds())
	w.add(func(s *second) { s.ttft[b]++ })
}

// Delivered counts what an engine reported: the prompt's tokens and how many of them came from its cache.
func (w *Window) Delivered(promptTokens, cachedTokens int) {
	w.add(func(s *second) {
		s.reported += uint64(max(promptTokens, 0))
		s.delivered += uint64(max(cachedTokens, 0))
	})
}

func (w *Window) add(count func(*second)) {
	at := w.now().Unix()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.head-at < int64(len(w.ring)) {
		at = max(at, w.head) // a clock set back a little counts into the newest second, one set back far starts again
	} else {
		clear(w.ring)
	}
	w.head = at
	s := w.slotLocked(at)
	if s.at != at {
		*s = second{at: at}
	}
	count(s)
}

func (w *Window) slotLocked(at int64) *second {
	n := int64(len(w.ring))
	return &w.ring[((at%n)+n)%n]
}

// Summary is the last span, at most the length of the window, in finished seconds.
func (w *Window) Summary(span time.Duration) Summary {
	n := min(max(int64(span/time.Second), 1), int64(len(w.ring)-1))
	recent := min(n, rateSeconds)
	now := w.now().Unix()
	var sum, last second
	w.mu.Lock()
	for at := now - n; at < now; at++ {
		if s := w.slotLocked(at); s.at == at {
			sum.add(s)
			if at >= now-recent {
				last.add(s)
			}
		}
	}
	w.mu.Unlock()
	return Summary{
		RequestsPerS: Share(uint64(last.requests), uint64(recent)),
		ErrorsPerS:   Share(uint64(last.errors), uint64(recent)),
		TTFTP50S:     sum.quantile(0.5),
		TTFTP99S:     sum.quantile(0.99),
		Reuse:        sum.reuse(),
	}
}

// smoothing is how many seconds a quantile or share of a point covers: of one second with few requests it is noise.
const smoothing = 5

// Series is the whole window, a point per finished second: its requests and errors, and quantiles and shares of the
// five seconds that end with it.
func (w *Window) Series() Series {
	n := len(w.ring) - 1
	now := w.now().Unix()
	s := Series{
		Start: time.Unix(now-int64(n), 0).UTC(), StepS: 1,
		Requests: make([]int, n), Errors: make([]int, n),
		TTFTP50S: make([]Figure, n), TTFTP99S: make([]Figure, n),
		Available: make([]Figure, n), Captured: make([]Figure, n), Delivered: make([]Figure, n),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range n {
		at := now - int64(n) + int64(i)
		var sum second
		for back := at - smoothing + 1; back <= at; back++ {
			if sec := w.slotLocked(back); sec.at == back && back >= now-int64(n) {
				sum.add(sec)
			}
		}
		if sec := w.slotLocked(at); sec.at == at {
			s.Requests[i], s.Errors[i] = int(sec.requests), int(sec.errors)
		}
		s.TTFTP50S[i], s.TTFTP99S[i] = sum.quantile(0.5), sum.quantile(0.99)
		reuse := sum.reuse()
		s.Available[i], s.Captured[i], s.Delivered[i] = reuse.Available, reuse.Captured, reuse.Delivered
	}
	return s
}

func (s *second) add(o *second) {
	s.requests += o.requests
	s.errors += o.errors
	s.prompt += o.prompt
	s.available += o.available
	s.captured += o.captured
	s.reported += o.reported
	s.delivered += o.delivered
	for i, n := range o.ttft {
		s.ttft[i] += n
	}
}

func (s *second) reuse() Reuse {
	return Reuse{
		Available: Share(s.available, s.prompt),
		Captured:  Share(s.captured, s.prompt),
		Delivered: Share(s.delivered, s.reported),
	}
}

// quantile is the middle (geometric) of the bucket that holds the q-th of all times, unknown without any.
func (s *second) quantile(q float64) Figure {
	var total uint64
	for _, n := range s.ttft {
		total += uint64(n)
	}
	if total == 0 {
		return Figure{}
	}
	rank := max(uint64(math.Ceil(q*float64(total))), 1)
	for i, n := range s.ttft {
		if uint64(n) >= rank {
			return Known(ttftFirst * math.Exp2((float64(i)-0.5)/ttftSteps))
		}
		rank -= uint64(n)
	}
	return Figure{}
}

// ttftBucket is 0 up to ttftFirst, then one more per quarter octave, the last one open to the top.
func ttftBucket(seconds float64) int {
	if seconds <= ttftFirst {
		return 0
	}
	return min(int(math.Ceil(math.Log2(seconds/ttftFirst)*ttftSteps)), ttftBuckets-1)
}
