package extproc

import (
	"context"
	"log/slog"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/router"
	"attache/internal/slot"
	"attache/internal/worker"
)

// one is a registry of one worker.
type one struct{ set *worker.Set }

func (o one) Set() *worker.Set               { return o.set }
func (one) Report(slot.Slot, worker.Outcome) {}

// ticking is a real router with a clock that moves by a millisecond whenever somebody looks at it, and remembers what it was asked.
type ticking struct {
	*router.Router

	clock time.Time
	asked router.Request
}

func newTicking(t *testing.T) *ticking {
	t.Helper()
	return newTickingWith(t, nil)
}

// newTickingWith has a router whose prompts go to a keeper.
func newTickingWith(t *testing.T, keeper router.Keeper) *ticking {
	t.Helper()
	k := &ticking{clock: time.Unix(1_000_000, 0)}
	addr := netip.MustParseAddrPort("10.0.0.1:8000")
	set := worker.NewSet(worker.NewWorker(worker.Spec{Name: `gpu "a"`, Pool: "default", Address: addr.String(), Addr: addr}, 0, worker.Ready))
	r, err := router.New(router.Params{Config: router.DefaultConfig(), Pools: []router.PoolConfig{{Name: "default"}}, Replica: "r", Workers: one{set},
		Now: k.now, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		Keeper: keeper, Keeps: router.Keeps{Prompts: true, Next: true}})
	if err != nil {
		t.Fatal(err)
	}
	k.Router = r
	return k
}

func (k *ticking) now() time.Time {
	k.clock = k.clock.Add(time.Millisecond)
	return k.clock
}

func (k *ticking) Route(ctx context.Context, req *router.Request) (*router.Decision, error) {
	k.asked = *req
	return k.Router.Route(ctx, req)
}

// TestAnswersTell what is configured, in the mode that holds bodies back and in the one that does not.
func TestAnswersTell(t *testing.T) {
	const trace = `x-attache-trace=id="r.1", worker="gpu \"a\"", cached=0, waited=0.000`
	const timing = `server-timing=attache;dur=N, receive;dur=N, parse;dur=N, chain;dur=N, overlap;dur=N, queue;dur=0.000, pick;dur=N, reply;dur=N, worker;dur=N`
	number := regexp.MustCompile(`\d+\.\d{3}\b`)
	for _, c := range []struct {
		headers ResponseHeaders
		want    string
	}{
		{HeadersOff, "response-headers"},
		{HeadersTrace, "response-headers " + trace},
		{HeadersTiming, "response-headers " + timing},
		{HeadersBoth, "response-headers " + trace + " " + timing},
	} {
		for _, mode := range []filter.ProcessingMode_BodySendMode{filter.ProcessingMode_BUFFERED, filter.ProcessingMode_FULL_DUPLEX_STREAMED} {
			k := newTicking(t)
			s := testServer(t, k, func(cfg *Config) { cfg.ResponseHeaders = c.headers })
			s.now = k.now
			talk := converse(t, s, mode)
			talk.say("headers", "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
			talk.say("body 200 end")
			talk.say("response-headers")
			got := talk.replies[len(talk.replies)-1]
			if before, after, found := strings.Cut(got, "server-timing="); found {
				after = number.ReplaceAllStringFunc(after, func(n string) string {
					if n == "0.000" {
						return n
					}
					return "N"
				})
				got = before + "server-timing=" + after
			}
			if got != c.want {
				t.Errorf("%s, %s:\n%s\nwant\n%s", c.headers, mode, got, c.want)
			}
			at := k.asked.Timing
			if !at.Parent.Sampled() || !at.Received.Before(at.Complete) || !at.Complete.Before(at.Parsed) {
				t.Errorf("%s: the router was told %+v", mode, at)
			}
			talk.x.close()
		}
	}
}

// TestNobodyIsTold of a request that was not decided here, nor of times that nobody took.
func TestNobodyIsTold(t *testing.T) {
	k := newTicking(t)
	s := testServer(t, k, func(cfg *Config) { cfg.ResponseHeaders, cfg.Other = HeadersBoth, "pass" })
	talk := converse(t, s, filter.ProcessingMode_BUFFERED)
	talk.say("headers GET /health end")
	talk.say("response-headers")
	if got := talk.replies[len(talk.replies)-1]; got != "response-headers" {
		t.Error(got)
	}
	talk = converse(t, s, filter.ProcessingMode_BUFFERED)
	talk.say("headers")
	talk.say("body 200 end")
	talk.say("response-headers")
	if got := talk.replies[len(talk.replies)-1]; strings.Contains(got, "server-timing") || !strings.Contains(got, "x-attache-trace") {
		t.Error(got)
	}
	if k.asked.Timing != (router.Timing{}) {
		t.Errorf("timed: %+v", k.asked.Timing)
	}
	talk.x.close()
}

func TestTextInHeaders(t *testing.T) {
	for in, want := range map[string]string{"": `""`, "w1": `"w1"`, `a"b\c`: `"a\"b\\c"`, "a\r\nb": `"a??b"`, "ü": `"??"`} {
		if got := string(appendText(nil, in)); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
