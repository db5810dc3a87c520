package admin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// cache gives the fake feeds in every state, and what is remembered from them.
func (f *fake) cache() {
	add := func(worker, state, mode, reason string, rank int, ago time.Duration, held Tiers) {
		k := f.workers[slices.IndexFunc(f.workers, func(w Worker) bool { return w.Name == worker })]
		feed := Feed{
			Worker: worker, Pool: k.Pool, Rank: rank, Endpoint: fmt.Sprintf("tcp://10.0.3.11:%d", 5557+rank),
			Replay: fmt.Sprintf("tcp://10.0.3.11:%d", 5657+rank), State: state, Reason: reason, Since: noon.Add(-ago), Mode: mode,
			Epoch: 1, Complete: mode == "exact", HeldBlocks: held, Batches: 40_000, Received: 90_000, ReceivedBytes: 31_000_000, Replays: 3,
		}
		if mode != "approximate" {
			feed.Digest = "00b5e55ed0000001"
			feed.Sequence, feed.HeardAgeS, feed.LagS, feed.PageTokens = Known(39_999), Known(0.25), Known(0.0021), Known(16)
		}
		f.feeds = append(f.feeds, feed)
	}
	add("gpu-b", "live", "exact", "", 0, 76*time.Hour, Tiers{21_000, 9_000, 0, 0})
	add("gpu-a", "live", "exact", "", 0, 76*time.Hour, Tiers{24_300, 0, 0, 0})
	add("gpu-a", "gap", "exact", "batches 40000 to 40003 were lost", 1, 200*time.Millisecond, Tiers{20_100, 0, 0, 0})
	add("gpu-c", "live", "partial", "its history is not known from the start: it may hold more than it said since", 0, time.Hour,
		Tiers{11_000, 0, 40_000, 2})
	add("gpu-d", "connecting", "approximate", "dial tcp 10.0.3.14:5557: connect: connection refused", 0, 2*time.Hour, Tiers{})
	add("gpu-f", "stale", "approximate", "requests with new blocks end, but no events come: does this engine publish any?", 0, 30*time.Second, Tiers{})
	add("gpu-h", "replaying", "approximate", "", 0, 90*time.Second, Tiers{})
	f.feeds[3].Gaps, f.feeds[3].Cleared, f.feeds[3].ReplaysFailed = 2, 1, 1
	f.feeds[3].Ignored = []Tally{{"group", 420}, {"partial", 17}}
	for key, o := range Overlaps(f.feeds) {
		for i := range f.workers {
			if w := &f.workers[i]; w.Pool == key[0] && w.Name == key[1] {
				w.Overlap = o
			}
		}
	}
	for i, mode := range []string{"exact", "exact", "partial", "approximate", "approximate", "approximate", "approximate", "approximate"} {
		f.workers[i].Overlap.Mode = mode
	}
	f.indexes = []Index{
		{Pool: "chat", Index: IndexTold{Bytes: 6 << 20, MaxBytes: 1 << 30, Held: 125_402, Blocks: 90_123, Runs: 5012, Sets: 311, WaitingBlocks: 3,
			Stored: 2_100_000, Removed: 1_974_598}, Indexer: IndexerSent{Held: 118_000, MaxBlocks: 8 << 20, Prefixes: 70_000,
			Evicted: []Tally{{"capacity", 900_000}}, Corrections: []Tally{{"over", 12}}}},
		{Pool: "code", Index: IndexTold{MaxBytes: 1 << 30}, Indexer: IndexerSent{MaxBlocks: 8 << 20}},
	}
	f.held = []WorkerPrefixes{
		{Worker: "gpu-a", Pool: "chat", Prefixes: []Prefix{{"00f1c0ffee000001", 256, 4096, Known(0)}, {"9000000000000002", 12, 192, Known(61)}}},
		{Worker: "gpu-a", Pool: "chat", Rank: 1},
	}
}

func TestPrefixes(t *testing.T) {
	f := newFake()
	s := stopped(t, quiet(), f)
	for _, c := range []struct {
		query    string
		status   int
		contains string
		prefixes int // of the first rank
		ranks    int
	}{
		{"?worker=gpu-a", 200, `"hash": "00f1c0ffee000001"`, 2, 2},
		{"?worker=gpu-a&n=1", 200, `"prefixes": []`, 1, 2},
		{"?worker=gpu-b", 200, `"workers": []`, 0, 0},
		{"", 200, `"rank": 1`, 2, 2},
		{"?worker=gpu-z", 404, `"gpu-h"`, 0, 0},
		{"?worker=gpu-a&n=0", 400, `n: \"0\": must be 1 to 1000`, 0, 0},
		{"?n=1001", 400, "must be 1 to 1000", 0, 0},
		{"?n=1e9", 400, "must be 1 to 1000", 0, 0},
	} {
		w := call(s, "GET", "/api/v1/prefixes"+c.query)
		var got struct{ Workers []WorkerPrefixes }
		if w.Code == 200 {
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
		}
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.contains) || len(got.Workers) != c.ranks ||
			c.ranks > 0 && len(got.Workers[0].Prefixes) != c.prefixes {
			t.Errorf("%s: %d %s, want %d with %s", c.query, w.Code, w.Body, c.status, c.contains)
		}
	}
	for i := range 200 {
		w := f.workers[0]
		w.Name = fmt.Sprint(i)
		f.workers = append(f.workers, w)
	}
	if w := call(s, "GET", "/api/v1/prefixes?n=1000"); w.Code != 400 || !strings.Contains(w.Body.String(), "1000 prefixes of 208 workers: must be at most 100000") {
		t.Errorf("everything at once: %d %s", w.Code, w.Body)
	}
}

func TestFeedWarnings(t *testing.T) {
	f := newFake()
	f.workers[3].State = "ready" // gpu-d
	want := []string{
		"gpu-f: its feed of KV events has not been trustworthy since 2026-03-04 11:59:30 UTC (requests with new blocks end, but no events come: does this engine publish " +
			"any?); it is routed by attache's own decisions; compare what the engine publishes with prompt.block_tokens and with the worker's " +
			"events in the configuration, or turn its events off",
		"gpu-d: its feed of KV events has not been connected to tcp://10.0.3.11:5557 since 2026-03-04 10:00:00 UTC (dial tcp 10.0.3.14:5557: connect: connection refused); " +
			"it is routed by attache's own decisions; check that the engine publishes there (vLLM: --kv-events-config) and that the port is open from here",
		"gpu-h: its feed of KV events has not caught up since 2026-03-04 11:58:30 UTC; it is routed by attache's own decisions; check that the engine answers at " +
			"tcp://10.0.3.11:5657, and whether it is overloaded",
	}
	if diff := cmp.Diff(want, FeedWarnings(f.feeds, f.workers, noon)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	f.workers[3].State = "unhealthy"
	if got := FeedWarnings(f.feeds, f.workers, noon); len(got) != 2 || strings.Contains(got[1], "gpu-d") {
		t.Errorf("the feed of a worker that is down is no trouble of its own: %q", got)
	}
	if got := FeedWarnings(f.feeds[:4], f.workers, noon); len(got) != 0 {
		t.Errorf("nothing is wrong, or not for long: %q", got)
	}
	many := slices.Repeat(f.feeds[5:6], 20)
	if got := FeedWarnings(many, f.workers, noon); len(got) != maxWarnings+1 || !strings.HasPrefix(got[maxWarnings], "12 more feeds") {
		t.Errorf("many: %q", got)
	}
}

// A worker is shown by its worst feed.
func TestOverlapOfRanks(t *testing.T) {
	feed := func(state string, held int) Feed {
		return Feed{Pool: "p", Worker: "w", State: state, Reason: "it is " + state, HeldBlocks: Tiers{Device: held, Host: 1}}
	}
	for _, c := range []struct {
		feeds []Feed
		want  Overlap
	}{
		{nil, Overlap{}},
		{[]Feed{feed("live", 1)}, Overlap{State: "live", Reason: "it is live", Feeds: 1, Live: 1, HeldBlocks: Tiers{1, 1, 0, 0}}},
		{[]Feed{feed("live", 1), feed("stale", 2), feed("connecting", 4)},
			Overlap{State: "stale", Reason: "it is stale", Feeds: 3, Live: 1, HeldBlocks: Tiers{7, 3, 0, 0}}},
		{[]Feed{feed("gap", 1), feed("replaying", 2)}, Overlap{State: "gap", Reason: "it is gap", Feeds: 2, HeldBlocks: Tiers{3, 2, 0, 0}}},
		{[]Feed{feed("odd", 1), feed("live", 1)}, Overlap{State: "odd", Reason: "it is odd", Feeds: 2, Live: 1, HeldBlocks: Tiers{2, 2, 0, 0}}},
	} {
		if got := Overlaps(c.feeds)[[2]string{"p", "w"}]; got != c.want {
			t.Errorf("%v: %+v, want %+v", c.feeds, got, c.want)
		}
	}
}
