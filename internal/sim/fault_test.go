package sim

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"attache/internal/bubble"
)

func (r *rig) fault(text string) {
	r.t.Helper()
	r.must("POST", "/sim/fault", text)
}

func TestFaultsOfAnswers(t *testing.T) {
	r := start(t, nil)
	for _, c := range []struct {
		name, fault, more string
		status            int
		events            int
		broken            bool
	}{
		{"503", `{"mode":"503"}`, "", 503, 0, false},
		{"500", `{"mode":"500"}`, `,"stream":true`, 500, 0, false},
		{"cut in a stream", `{"mode":"cut","after_tokens":2}`, `,"stream":true`, 200, 3, true},
		{"cut after the headers", `{"mode":"cut"}`, `,"stream":true`, 200, 0, true},
		{"cut before the end", `{"mode":"cut","after_tokens":5}`, `,"stream":true`, 200, 6, true},
		{"cut beyond the end", `{"mode":"cut","after_tokens":6}`, `,"stream":true`, 200, 7, false},
		{"cut in a whole answer", `{"mode":"cut","after_tokens":2}`, "", 200, 0, true},
	} {
		r.fault(c.fault)
		resp, text, err := r.send(t.Context(), "POST", "/v1/chat/completions", chatBody("hello", 5, c.more))
		if resp == nil || resp.StatusCode != c.status || (err != nil) != c.broken || strings.Count(text, "data: ") != c.events {
			t.Errorf("%s: %v, %v, want status %d and %d events, broken %v; got %s", c.name, resp, err, c.status, c.events, c.broken, text)
		}
		if resp, _ := r.must("GET", "/health", ""); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: health %d", c.name, resp.StatusCode)
		}
	}
	r.fault(`{"mode":"503","health":true}`)
	if resp, _, err := r.send(t.Context(), "GET", "/health", ""); err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("health: %v %v, want 503", resp, err)
	}
	r.fault(`{"mode":"reset"}`)
	_, _, err := r.send(t.Context(), "POST", "/v1/chat/completions", chatBody("hello", 5, ""))
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("reset: %v", err)
	}
	r.fault(`{}`)
	r.must("POST", "/v1/chat/completions", chatBody("hello", 5, ""))
	r.eventually("nothing is held", func() bool { return r.Stats().Held == 0 })
}

func TestFaultCounts(t *testing.T) {
	r := start(t, nil)
	r.fault(`{"mode":"503","count":2}`)
	for _, want := range []int{503, 503, 200, 200} {
		if resp, _, err := r.send(t.Context(), "POST", "/v1/chat/completions", chatBody("hello", 1, "")); err != nil || resp.StatusCode != want {
			t.Errorf("%v %v, want %d", resp, err, want)
		}
	}
}

func TestRefuse(t *testing.T) {
	r := start(t, func(c *Config) { c.MinStep = 10 * time.Millisecond })
	running := make(chan error, 1)
	go func() {
		_, _, err := r.send(t.Context(), "POST", "/v1/chat/completions", chatBody("hello", 10_000, `,"stream":true`))
		running <- err
	}()
	r.eventually("a stream runs", func() bool { return r.Stats().Running == 1 })
	r.fault(`{"mode":"refuse","for":"1h"}`)
	if err := <-running; err == nil {
		t.Error("the stream was not cut")
	}
	if _, _, err := r.send(t.Context(), "GET", "/health", ""); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v, want a refused connection", err)
	}
	r.SetFault(Fault{})
	r.must("POST", "/v1/chat/completions", chatBody("hello", 2, ""))
}

func TestRefuseFromTheStart(t *testing.T) {
	r := start(t, func(c *Config) { c.Fault = Fault{Mode: FaultRefuse} })
	if _, _, err := r.send(t.Context(), "GET", "/health", ""); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v, want a refused connection", err)
	}
	r.SetFault(Fault{})
	r.must("GET", "/health", "")
}

func TestHang(t *testing.T) {
	r := start(t, nil)
	r.fault(`{"mode":"hang"}`)
	for _, path := range []string{"/health", "/metrics"} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if resp, _, err := r.send(ctx, "GET", path, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s was answered: %v %v", path, resp, err)
		}
		cancel()
	}
	answered := make(chan error, 1)
	go func() {
		_, _, err := r.send(t.Context(), "POST", "/v1/chat/completions", chatBody("hello", 2, ""))
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("answered while it hangs: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	r.fault(`{"mode":"none"}`)
	if err := <-answered; err != nil {
		t.Errorf("after the hang: %v", err)
	}
}

func TestHangStopsCleanly(t *testing.T) {
	r := start(t, nil)
	r.fault(`{"mode":"hang"}`)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _, _ = r.send(t.Context(), "POST", "/v1/chat/completions", chatBody("hello", 2, ""))
	}()
	time.Sleep(20 * time.Millisecond)
	t.Cleanup(func() { <-ended })
}

func TestSlow(t *testing.T) {
	r := start(t, nil)
	r.fault(`{"mode":"slow","delay":"30ms"}`)
	began := time.Now()
	r.must("POST", "/v1/chat/completions", chatBody("hello", 5, ""))
	if took := time.Since(began); took < 150*time.Millisecond {
		t.Errorf("5 tokens took %s, each is delayed by 30ms", took)
	}
}

func TestFaultEndsByItself(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFaults(func(Fault, Fault) {})
		f.set(Fault{Mode: FaultSlow, For: time.Minute})
		time.Sleep(30 * time.Second)
		f.set(Fault{Mode: FaultHang, For: time.Minute}) // the first one's end must not end it
		time.Sleep(59 * time.Second)
		synctest.Wait()
		got, over := f.get()
		if got.Mode != FaultHang {
			t.Errorf("after 59s: %q, want hang", got.Mode)
		}
		<-over
		if got, _ := f.get(); got.Mode != "" {
			t.Errorf("after a minute: %q, want none", got.Mode)
		}
	})
}

func TestFaultJSON(t *testing.T) {
	want := Fault{Mode: FaultCut, AfterTokens: 3, Delay: 2 * time.Second, For: 5 * time.Second, Count: 1, Health: true}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Fault
	if err := json.Unmarshal(text, &got); err != nil || got != want {
		t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
	}
}

// The port may be taken by somebody else when the gate wants to open again.
func TestGateWaitsForItsPort(t *testing.T) {
	g, err := newGate("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error, 1)
	go func() {
		conn, err := g.Accept()
		if err == nil {
			conn.Close()
		}
		accepted <- err
	}()
	g.shut()
	other, err := net.Listen("tcp", g.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	g.open()
	other.Close()
	for {
		conn, err := net.Dial("tcp", g.Addr().String())
		if err == nil {
			conn.Close()
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := <-accepted; err != nil {
		t.Error(err)
	}
	g.shut()
	go func() {
		_, err := g.Accept()
		accepted <- err
	}()
	g.Close()
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}
