package extproc

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// steps is a log that stops the server at what it says, so that a test can look around there.
type steps struct {
	mu   sync.Mutex // guards what follows
	at   map[string]func()
	seen []string
}

func (s *steps) Enabled(context.Context, slog.Level) bool { return true }
func (s *steps) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s *steps) WithGroup(string) slog.Handler            { return s }

func (s *steps) Handle(_ context.Context, r slog.Record) error {
	s.mu.Lock()
	s.seen = append(s.seen, r.Message)
	look := s.at[r.Message]
	s.mu.Unlock()
	if look != nil {
		look()
	}
	return nil
}

const (
	saysNotReady = "ext_proc is not ready any more, and goes on to take requests"
	saysNoMore   = "ext_proc takes no more requests, and lets those that run finish"
	saysCut      = "ext_proc cuts requests that still run"
)

func TestDraining(t *testing.T) {
	for _, c := range []struct {
		name    string
		timeout time.Duration
		cut     bool // a request is still running at its end
	}{
		{"requests that run finish", time.Hour, false},
		{"or are cut in the end", 10 * time.Millisecond, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := &steps{}
			cfg := DefaultConfig()
			cfg.Listen, cfg.DrainWait, cfg.DrainTimeout = "127.0.0.1:0", time.Hour, time.Hour
			var told []bool
			s, err := New(Params{Config: cfg, Router: &fakeRouter{}, DefaultPool: "default", Log: slog.New(log), Metrics: prometheus.NewRegistry(),
				Ready: func(ready bool) { told = append(told, ready) }})
			if err != nil {
				t.Fatal(err)
			}
			cfg.DrainWait, cfg.DrainTimeout = 0, c.timeout // what counts is what is configured when it stops
			s.Reconfigure(cfg)
			conn, err := grpc.NewClient(s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			s.SetReady(true)
			running, replies, err := ask(t, conn, chat(200))
			wantDecision(t, replies, err)
			log.mu.Lock()
			noMore := make(chan struct{})
			log.at = map[string]func(){
				saysNotReady: func() {
					s.SetReady(true) // too late
					resp, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
					if resp.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
						t.Errorf("health in the drain window: %v, %v", resp, err)
					}
					late, replies, err := ask(t, conn, chat(200)) // Envoy has not noticed yet
					wantDecision(t, replies, err)
					if err := late.CloseSend(); err != nil {
						t.Error(err)
					}
				},
				saysNoMore: func() { close(noMore) },
			}
			log.mu.Unlock()
			stop()
			<-noMore
			if !c.cut {
				for shut := false; !shut; time.Sleep(time.Millisecond) { // until the door is shut
					late, _, err := ask(t, conn, chat(200))
					if shut = err != nil; !shut {
						_ = late.CloseSend()
					}
				}
				err := running.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{
					ResponseHeaders: &extprocv3.HttpHeaders{Headers: headersOf(":status", "200")}}})
				if err == nil {
					_, err = running.Recv()
				}
				if err != nil {
					t.Errorf("a request that ran was broken: %v", err)
				}
				if err := running.CloseSend(); err != nil {
					t.Error(err)
				}
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if _, err := running.Recv(); (err.Error() != "EOF") != c.cut {
				t.Errorf("the request that ran ended with %v", err)
			}
			if want := []bool{false, true, false}; !slices.Equal(told, want) {
				t.Errorf("readiness was %v, want %v", told, want)
			}
			log.mu.Lock()
			defer log.mu.Unlock()
			want := saysNotReady + "; " + saysNoMore
			if c.cut {
				want += "; " + saysCut
			}
			if got := strings.Join(log.seen, "; "); got != want {
				t.Errorf("it said\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestReconfigure: what begins later is served by the new configuration, what has begun by the old one.
func TestReconfigure(t *testing.T) {
	s := testServer(t, &fakeRouter{}, func(c *Config) { c.MaxBody = 1000 })
	before := converse(t, s, filter.ProcessingMode_BUFFERED)
	before.say("headers")
	cfg := s.settings.Load().Config
	cfg.MaxBody, cfg.Malformed = 100, "pass"
	s.Reconfigure(cfg)
	before.say("body 500 end")
	after := converse(t, s, filter.ProcessingMode_BUFFERED)
	after.say("headers")
	after.say("body 500 end")
	passed := converse(t, s, filter.ProcessingMode_BUFFERED)
	passed.say("headers")
	passed.say("body 50 end") // half a body
	for _, c := range []struct {
		got  []string
		want string
	}{{before.replies, "body " + decision}, {after.replies, "413"}, {passed.replies, "body " + decision}} {
		if last := c.got[len(c.got)-1]; !strings.Contains(last, c.want) {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
