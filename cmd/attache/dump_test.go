package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"attache/internal/admin"
)

// running is an attache with two workers at half past three in the morning, as its admin API answers.
func running(t *testing.T) string {
	t.Helper()
	start := time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)
	night := start.Add(3*time.Hour + 30*time.Minute)
	workers := []admin.Worker{
		{Name: "gpu-a", Pool: "chat", State: "ready", Since: night.Add(-75 * time.Hour), InFlight: 12, KVUsage: admin.Known(.815),
			CachedBlocksKnown: admin.Known(24_300), Overlap: admin.Overlap{Mode: "exact", State: "live", Feeds: 1, Live: 1}},
		{Name: "gpu-b", Pool: "code", State: "suspect", Cause: "3 of the last\x1b[2J 10 requests failed", Since: night.Add(-42 * time.Second),
			Overlap: admin.Overlap{Mode: "approximate", State: "connecting", Feeds: 1}},
	}
	answers := map[string]any{
		"/api/v1/status": admin.Status{Version: "1.2.3", StartedAt: start, UptimeS: admin.Seconds(night.Sub(start)), InFlight: 12,
			Warnings: []string{"gpu-b (10.0.0.2:8000) is suspect: 3 of the last 10 requests failed"}},
		"/api/v1/workers": map[string]any{"workers": workers},
		"/api/v1/feeds": map[string]any{"feeds": []admin.Feed{
			{Worker: "gpu-a", Pool: "chat", State: "live", Mode: "exact", Since: night.Add(-75 * time.Hour), Sequence: admin.Known(39_999),
				LagS: admin.Known(.0021), HeardAgeS: admin.Known(.3), Gaps: 2, GapsClosed: 2, Replays: 3,
				HeldBlocks: admin.Tiers{Device: 24_300, Host: 1200}},
			{Worker: "gpu-b", Pool: "code", Rank: 3, State: "connecting", Reason: "connection refused", Mode: "approximate",
				Since: night.Add(-90 * time.Minute), ReplaysFailed: 1, Replays: 1, Cleared: 1},
		}},
		"/api/v1/index": map[string]any{"pools": []admin.Index{
			{Pool: "chat", Index: admin.IndexTold{Bytes: 600 << 20, MaxBytes: 1 << 30, Held: 25_500, Blocks: 20_000, Runs: 1100, WaitingBlocks: 3},
				Indexer: admin.IndexerSent{Held: 4_000_000, MaxBlocks: 8 << 20, Prefixes: 3_000_000}},
			{Pool: "code", Index: admin.IndexTold{Bytes: 5000, MaxBytes: 1 << 30}, Indexer: admin.IndexerSent{MaxBlocks: 8 << 20}},
		}},
	}
	ranks := []admin.WorkerPrefixes{{Worker: "gpu-a", Pool: "chat", Prefixes: []admin.Prefix{
		{Hash: "00f1c0ffee000001", Blocks: 256, Tokens: 4096, AgeS: admin.Known(0)}, {Hash: "9000000000000002", Blocks: 12, Tokens: 192, AgeS: admin.Known(61)}}}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, known := answers[r.URL.Path]
		if r.URL.Path == "/api/v1/prefixes" && r.URL.Query().Get("worker") == "gpu-a" {
			answer, known = map[string]any{"workers": ranks}, r.URL.Query().Get("n") == "20"
		}
		if !known {
			w.WriteHeader(http.StatusNotFound)
			answer = map[string]any{"error": "no such worker: \"gpu-z\"", "workers": []string{"gpu-a", "gpu-b"}}
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestDump(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"everything", nil, `attache 1.2.3, up 3h30m, 12 requests in flight
! gpu-b (10.0.0.2:8000) is suspect: 3 of the last 10 requests failed

Workers
  WORKER  POOL  STATE    FOR    OVERLAP      IN FLIGHT  KV USED  KNOWN BLOCKS  CAUSE
  gpu-a   chat  ready    3d03h  exact               12      82%        24,300  -
  gpu-b   code  suspect  42s    approximate          0        -             -  3 of the last?[2J 10 requests failed

Feeds of KV events, blocks by tier
  FEED   RANK  STATE       FOR    MODE         SEQUENCE     LAG   HEARD  GAPS  CLOSED  REPLAYS  FAILED  CLEARED  DEVICE   HOST  DISK  REMOTE  REASON
  gpu-a     0  live        3d03h  exact          39,999  2.1 ms  0s ago     2       2        3       0        0  24,300  1,200     0       0  -
  gpu-b     3  connecting  1h30m  approximate         -       -       -     0       0        1       1        1       0      0     0       0  connection refused

Index of KV events
  POOL   MEMORY       OF  USED  BLOCKS HELD  DIFFERENT   RUNS  WAITING  EVICTED  REFUSED
  chat  600 MiB  1.0 GiB   59%       25,500     20,000  1,100        3        0        0
  code  4.9 KiB  1.0 GiB    0%            0          0      0        0        0        0

Index of attache's own decisions
  POOL  BLOCKS HELD         OF  USED  DIFFERENT
  chat    4,000,000  8,388,608   48%  3,000,000
  code            0  8,388,608    0%          0
`},
		{"one worker", []string{"--worker", "gpu-a"}, `attache 1.2.3, up 3h30m, 12 requests in flight
! gpu-b (10.0.0.2:8000) is suspect: 3 of the last 10 requests failed

Workers
  WORKER  POOL  STATE  FOR    OVERLAP  IN FLIGHT  KV USED  KNOWN BLOCKS  CAUSE
  gpu-a   chat  ready  3d03h  exact           12      82%        24,300  -

Feeds of KV events, blocks by tier
  FEED   RANK  STATE  FOR    MODE   SEQUENCE     LAG   HEARD  GAPS  CLOSED  REPLAYS  FAILED  CLEARED  DEVICE   HOST  DISK  REMOTE  REASON
  gpu-a     0  live   3d03h  exact    39,999  2.1 ms  0s ago     2       2        3       0        0  24,300  1,200     0       0  -

Index of KV events
  POOL   MEMORY       OF  USED  BLOCKS HELD  DIFFERENT   RUNS  WAITING  EVICTED  REFUSED
  chat  600 MiB  1.0 GiB   59%       25,500     20,000  1,100        3        0        0

Index of attache's own decisions
  POOL  BLOCKS HELD         OF  USED  DIFFERENT
  chat    4,000,000  8,388,608   48%  3,000,000

Prefixes of gpu-a, pool chat, rank 0, the most recently used first
  SEQUENCE HASH     BLOCKS  TOKENS       USED
  00f1c0ffee000001     256   4,096     0s ago
  9000000000000002      12     192  1m01s ago
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if status := run(t.Context(), append([]string{"dump", "--admin", running(t) + "/"}, c.args...), &out, &errs); status != 0 {
				t.Fatalf("status %d: %s", status, errs.String())
			}
			if diff := cmp.Diff(c.want, out.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// As JSON it has what the API has, in the same words.
func TestDumpAsJSON(t *testing.T) {
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"dump", "--json", "--worker=gpu-a", "--admin", running(t)}, &out, &errs); status != 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	var got dumped
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Workers) != 1 || len(got.Feeds) != 1 || got.Feeds[0].Sequence != admin.Known(39_999) || len(got.Index) != 1 ||
		len(got.Prefixes) != 1 || len(got.Prefixes[0].Prefixes) != 2 || got.Status.Version != "1.2.3" {
		t.Errorf("%s", out.String())
	}
	if !strings.Contains(out.String(), `"replays_failed_total": 0`) {
		t.Errorf("other names than the API's: %s", out.String())
	}
}

func TestDumpOfNobody(t *testing.T) {
	answering := func(status int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, c := range []struct {
		name, url, worker string
		errs              string // ADMIN is the URL
	}{
		{"nobody listens", gone.URL, "", "attache: no attache at ADMIN: connect: connection refused; is it running? Where its dashboard listens is logged " +
			"at its start (admin.listen): give that with --admin\n"},
		{"no URL", "ftp://here", "", "attache: --admin: \"ADMIN\": must be a URL, such as http://127.0.0.1:9902\n"},
		{"no host", "http://", "", "attache: --admin: \"ADMIN\": must be a URL, such as http://127.0.0.1:9902\n"},
		{"somebody else", answering(200, "<html>"), "", "attache: ADMIN does not answer as attache does: /api/v1/status: invalid character '<' looking for " +
			"beginning of value; --admin must be its admin.listen\n"},
		{"somebody else refuses", answering(403, "no"), "", "attache: ADMIN does not answer as attache does: /api/v1/status: status 403; --admin must be its " +
			"admin.listen\n"},
		{"an attache without the route", answering(404, `{"error":"no such path: /api/v1/feeds","paths":{"/":"dashboard"}}`), "",
			"attache: ADMIN: no such path: /api/v1/feeds; it seems to run another version of attache\n"},
		{"no such worker", running(t), "gpu-z", "attache: no such worker: \"gpu-z\"; there are gpu-a, gpu-b\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			status := run(t.Context(), []string{"dump", "--admin", c.url, "--worker", c.worker}, &out, &errs)
			if want := strings.ReplaceAll(c.errs, "ADMIN", c.url); status != 1 || errs.String() != want || out.Len() != 0 {
				t.Errorf("status %d, %q, want %q; printed %q", status, errs.String(), want, out.String())
			}
		})
	}
}
