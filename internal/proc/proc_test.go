package proc

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain also plays the children: what a test starts is this test binary in a role.
func TestMain(m *testing.M) {
	switch os.Getenv("ROLE") {
	case "parent": // starts a child, says its id, and waits to be killed
		p, err := Start(context.Background(), nil, "sleep", "600")
		if err != nil {
			panic(err)
		}
		fmt.Println(p.PID())
		select {}
	case "deaf": // does not end when asked
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		select {}
	}
	goleak.VerifyTestMain(m)
}

// gone reports whether no process has the id; a child that nobody awaited would still count as there.
func gone(pid int) bool { return syscall.Kill(pid, 0) != nil }

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestAChildEndsHoweverItIsEnded(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(p *Process, cancel context.CancelFunc)
	}{
		{"asked", func(p *Process, _ context.CancelFunc) { p.Stop(10 * time.Second) }},
		{"killed", func(p *Process, _ context.CancelFunc) { p.Kill() }},
		{"its context ended", func(p *Process, cancel context.CancelFunc) { cancel(); <-p.Done() }},
		{"ended twice", func(p *Process, _ context.CancelFunc) { p.Kill(); p.Stop(time.Second); p.Kill() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p, err := Start(ctx, nil, "sleep", "600")
			if err != nil {
				t.Fatal(err)
			}
			c.end(p, cancel)
			if !gone(p.PID()) {
				t.Errorf("process %d is still there", p.PID())
			}
			if p.Err() == nil {
				t.Error("an ended sleep did not end well, but Err says so")
			}
		})
	}
}

func TestADeafChildIsKilledAfterTheGrace(t *testing.T) {
	t.Setenv("ROLE", "deaf")
	var log lockedBuffer
	p, err := Start(t.Context(), &log, os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it ignores the signal", func() bool { return strings.Contains(log.String(), "ready") })
	p.Stop(50 * time.Millisecond)
	if !gone(p.PID()) {
		t.Error("it is still there")
	}
}

// TestAChildDiesWithItsParent kills a parent in the one way that it cannot prepare for.
func TestAChildDiesWithItsParent(t *testing.T) {
	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), "ROLE=parent")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || gone(child) {
		t.Fatalf("the child %q does not run: %v", line, err)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	eventually(t, "the child is gone", func() bool { return gone(child) || zombie(child) })
}

// zombie reports whether a process has ended and its new parent has not looked yet.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func TestStartErrors(t *testing.T) {
	_, err := Start(t.Context(), nil, "/nonexistent/envoy")
	if err == nil || !strings.HasPrefix(err.Error(), "starting /nonexistent/envoy: ") {
		t.Errorf("got %v", err)
	}
}

func TestFindEnvoy(t *testing.T) {
	dir := t.TempDir()
	plain, binary := filepath.Join(dir, "plain"), filepath.Join(dir, "envoy")
	for file, mode := range map[string]os.FileMode{plain: 0o600, binary: 0o700} {
		if err := os.WriteFile(file, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ name, env, path, want, err string }{
		{"the variable names it", binary, "", binary, ""},
		{"it is on the PATH", "", dir, binary, ""},
		{"the variable names nothing", filepath.Join(dir, "none"), dir, "", "ENVOY names no Envoy: "},
		{"the variable names a folder", dir, dir, "", "is not an executable file"},
		{"the variable names a text", plain, dir, "", "is not an executable file"},
		{"nowhere", "", "/nonexistent", "", "no Envoy found: run `make envoy` and then `make demo`, or set ENVOY=/path/to/envoy (1.38 or newer)"},
	} {
		t.Setenv("ENVOY", c.env)
		t.Setenv("PATH", c.path)
		got, err := FindEnvoy()
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %q, %v", c.name, got, err)
		}
	}
}

// TestAnEnvoyThatDoesNotStartSaysWhy puts a script in Envoy's place.
func TestAnEnvoyThatDoesNotStartSaysWhy(t *testing.T) {
	dir := t.TempDir()
	fake := filepath.Join(dir, "envoy")
	script := "#!/bin/sh\necho 'error initializing configuration: no such field' >&2\nexit 1\n"
	if err := os.WriteFile(fake, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := StartEnvoy(t.Context(), fake, dir, "static_resources: {}")
	if err == nil || !strings.Contains(err.Error(), "envoy ended at start: exit status 1") ||
		!strings.Contains(err.Error(), "error initializing configuration: no such field") {
		t.Errorf("got %v", err)
	}
}

// lockedBuffer is written by a child's copier and read by a test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
