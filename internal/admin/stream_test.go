package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"attache/internal/bubble"
)

// counting makes a hub whose frames are numbered, in a synctest bubble.
func counting(t *testing.T, limit int) (h *hub, captured *int) {
	captured = new(int)
	h = newHub(func() ([]byte, error) { *captured++; return fmt.Appendf(nil, "%d", *captured), nil },
		time.Second, limit, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	go h.run(ctx)
	t.Cleanup(func() { cancel(); <-h.done })
	return h, captured
}

func enter(t *testing.T, h *hub) (*viewer, func()) {
	t.Helper()
	v, out, err := h.enter(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return v, out
}

func stateFrame(n int) string { return fmt.Sprintf("event: state\ndata: %d\n\n", n) }

func TestHubComputesOnceForAllAndNotForNobody(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h, captured := counting(t, 10)
		time.Sleep(time.Hour)
		if *captured != 0 {
			t.Fatalf("%d states were read while nobody watched", *captured)
		}
		a, aOut := enter(t, h)
		b, bOut := enter(t, h)
		for range 5 {
			fa, fb := <-a.frames, <-b.frames
			if &fa[0] != &fb[0] {
				t.Fatal("two viewers were sent different frames")
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if *captured != 6 { // at once, and after each of five seconds
			t.Errorf("%d states for five seconds and two viewers, want 6", *captured)
		}
		aOut()
		bOut()
		synctest.Wait()
		before := *captured
		time.Sleep(time.Hour)
		if *captured != before {
			t.Errorf("%d states were read after everybody left", *captured-before)
		}
		c, out := enter(t, h)
		defer out()
		if got, want := string(<-c.frames), stateFrame(before+1); got != want {
			t.Errorf("who comes back is sent %q, want a fresh %q", got, want)
		}
	})
}

func TestSlowViewerGetsTheNewestFrame(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h, captured := counting(t, 10)
		slow, out := enter(t, h)
		defer out()
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if got, want := string(<-slow.frames), stateFrame(*captured); got != want || *captured != 11 {
			t.Errorf("after 10 s of not reading: %q, want %q of 11", got, want)
		}
	})
}

func TestHubLimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h, _ := counting(t, 2)
		_, out := enter(t, h)
		_, other := enter(t, h)
		defer other()
		if _, _, err := h.enter(t.Context()); !errors.Is(err, errFull) {
			t.Errorf("third viewer of two: %v", err)
		}
		out()
		_, last := enter(t, h)
		last()
	})
}

func TestHubClosing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHub(func() ([]byte, error) { return nil, nil }, time.Second, 1, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(context.Background())
		gone, leave := context.WithCancel(context.Background())
		leave()
		if _, _, err := h.enter(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("entering with a cancelled request before Run: %v", err)
		}
		go h.run(ctx)
		_, out := enter(t, h)
		cancel()
		<-h.done
		out() // must not hang
		if _, _, err := h.enter(t.Context()); !errors.Is(err, errClosing) {
			t.Errorf("entering after the end: %v", err)
		}
	})
}

// The view must not take the process down, nor stop when the trouble is over.
func TestHubSurvivesItsSource(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		captured := 0
		h := newHub(func() ([]byte, error) {
			if captured++; captured == 1 {
				panic("lost my\nhead")
			}
			return []byte("{}"), nil
		}, time.Second, 1, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(context.Background())
		go h.run(ctx)
		defer func() { cancel(); <-h.done }()
		v, out := enter(t, h)
		defer out()
		if got := string(<-v.frames); got != "event: problem\ndata: panic: lost my head\n\n" {
			t.Errorf("frame of a panic: %q", got)
		}
		if got := string(<-v.frames); got != "event: state\ndata: {}\n\n" {
			t.Errorf("frame afterwards: %q", got)
		}
	})
}

// nextEvent reads one server-sent event; retry lines are passed over.
func nextEvent(t *testing.T, r *bufio.Reader) (name, data string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("stream ended: %v", err)
		}
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" && data != "":
			return name, data
		case strings.HasPrefix(line, "event: "):
			name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			data += line[len("data: "):]
		}
	}
}

func open(t *testing.T, s *Server) *http.Response {
	t.Helper()
	answer, err := http.Get("http://" + s.Addr().String() + "/api/v1/stream")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

func TestStreamOverHTTP(t *testing.T) {
	cfg := quiet()
	cfg.Refresh, cfg.MaxViewers = 250*time.Millisecond, 1
	f := newFake()
	s := running(t, cfg, f)

	first := open(t, s)
	if got := first.Header.Get("Content-Type"); first.StatusCode != http.StatusOK || got != "text/event-stream" {
		t.Fatalf("%d %s", first.StatusCode, got)
	}
	reader := bufio.NewReader(first.Body)
	for range 3 {
		name, data := nextEvent(t, reader)
		var state State
		if err := json.Unmarshal([]byte(data), &state); err != nil || name != "state" || len(state.Workers) != 9 {
			t.Fatalf("event %q: %v\n%.200s", name, err, data)
		}
	}
	second := open(t, s)
	body, _ := io.ReadAll(second.Body)
	if second.StatusCode != http.StatusServiceUnavailable ||
		second.Header.Get("Retry-After") == "" || !strings.Contains(string(body), "raise max_viewers") {
		t.Errorf("second viewer of one: %d %s", second.StatusCode, body)
	}
	_ = first.Body.Close()
	for { // the place is free as soon as the server notices
		third := open(t, s)
		if third.StatusCode == http.StatusOK {
			nextEvent(t, bufio.NewReader(third.Body))
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestRunEndsOpenStreams(t *testing.T) {
	s := stopped(t, quiet(), newFake())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	reader := bufio.NewReader(open(t, s).Body)
	nextEvent(t, reader)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, err := io.ReadAll(reader); err != nil {
		t.Errorf("the stream was cut instead of ended: %v", err)
	}
}

func TestNoViewersAllowed(t *testing.T) {
	cfg := quiet()
	cfg.MaxViewers = 0
	f := newFake()
	if answer := open(t, running(t, cfg, f)); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %d", answer.StatusCode)
	}
	if f.asked != 0 {
		t.Errorf("%d states were read for nobody", f.asked)
	}
}

// The deadlines that keep slow clients from holding a connection do not end a stream that is read.
func TestStreamOutlivesTheServersTimeouts(t *testing.T) {
	cfg := quiet()
	cfg.Refresh = 250 * time.Millisecond
	s := stopped(t, cfg, newFake())
	s.timeouts = timeouts{read: 50 * time.Millisecond, answer: 50 * time.Millisecond}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	reader := bufio.NewReader(open(t, s).Body)
	for range 4 {
		nextEvent(t, reader)
	}
}
