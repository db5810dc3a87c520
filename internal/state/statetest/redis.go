package statetest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"attache/internal/proc"
)

// Redis is a real redis-server of the test's own, which ends with the test. It keeps nothing on disk.
type Redis struct {
	// Address is where it listens, as Config.Addresses wants it.
	Address string

	t      testing.TB
	binary string
	dir    string
	args   []string
	log    *Log
	child  *proc.Process
}

// Log is what somebody wrote; it may be read meanwhile.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// FindRedis is the redis-server in PATH. Without one the test is skipped, or failed where nothing may be skipped (CI=true).
func FindRedis(t testing.TB) string {
	t.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("there is no redis-server in PATH: run make redis, or install it (Debian: apt-get install redis-server)")
		}
		t.Skip("there is no redis-server in PATH: run make redis, or install it (Debian: apt-get install redis-server)")
	}
	return binary
}

// StartRedis starts a server on a Unix socket of its own, where nothing can be in its way. args are further arguments, as in
// "--requirepass", "secret".
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	binary, dir := FindRedis(t), folder(t)
	socket := filepath.Join(dir, "redis.sock")
	r := &Redis{Address: "unix://" + socket, t: t, binary: binary, dir: dir, log: &Log{},
		args: slices.Concat([]string{"--port", "0", "--unixsocket", socket, "--unixsocketperm", "700"}, always, args)}
	r.Start()
	return r
}

// StartRedisTCP starts a server on a free port of loopback. Each "PORT" in the arguments stands for it.
func StartRedisTCP(t testing.TB, args ...string) *Redis {
	t.Helper()
	binary, dir := FindRedis(t), folder(t)
	for range 20 { // somebody else may take the port first
		port := freePort(t)
		r := &Redis{Address: "127.0.0.1:" + port, t: t, binary: binary, dir: dir, log: &Log{}}
		for _, arg := range slices.Concat([]string{"--port", "PORT", "--bind", "127.0.0.1"}, always, args) {
			r.args = append(r.args, strings.ReplaceAll(arg, "PORT", port))
		}
		if r.start() {
			return r
		}
	}
	t.Fatal("no redis-server started on a free port")
	return nil
}

// StartSentinel starts a sentinel that watches one server, under the name "main".
func StartSentinel(t testing.TB, watched *Redis) *Redis {
	t.Helper()
	binary, dir := FindRedis(t), folder(t)
	host, port, err := net.SplitHostPort(watched.Address)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		own := freePort(t)
		file := filepath.Join(dir, "sentinel.conf")
		config := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor main %s %s 1\nsentinel down-after-milliseconds main 500\n", own, dir, host, port)
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		r := &Redis{Address: "127.0.0.1:" + own, t: t, binary: binary, dir: dir, log: &Log{}, args: []string{file, "--sentinel"}}
		if r.start() {
			return r
		}
	}
	t.Fatal("no sentinel started on a free port")
	return nil
}

// always keeps a server from writing to disk and from serving others.
var always = []string{"--save", "", "--appendonly", "no", "--daemonize", "no"}

// folder is one with a short path: that of a socket has at most 107 bytes.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "attache") //nolint:usetesting // t.TempDir holds the name of the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Start starts a server that was stopped, at the same address, and waits until it answers.
func (r *Redis) Start() {
	r.t.Helper()
	if !r.start() {
		r.t.Fatalf("redis-server did not start:\n%s", r.log)
	}
}

// start says whether the server serves; a port that is taken ends it.
func (r *Redis) start() bool {
	r.t.Helper()
	child, err := proc.Start(r.t.Context(), r.log, r.binary, append(r.args, "--dir", r.dir)...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.child = child
	r.t.Cleanup(child.Kill)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		select {
		case <-child.Done():
			return false
		default:
		}
		if r.answers() {
			return true
		}
	}
	r.t.Fatalf("redis-server does not answer:\n%s", r.log)
	return false
}

// answers tells whether the server says anything at all: one that wants a password does, too.
func (r *Redis) answers() bool {
	network, address := "tcp", r.Address
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		network, address = "unix", path
	}
	conn, err := net.Dial(network, address)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err = conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	answer := make([]byte, 64)
	n, err := conn.Read(answer)
	return err == nil && (bytes.HasPrefix(answer[:n], []byte("+PONG")) || bytes.HasPrefix(answer[:n], []byte("-NOAUTH")))
}

// Stop kills the server: what it held is gone.
func (r *Redis) Stop() { r.child.Kill() }

// Freeze stops the server from answering: connections to it succeed, and nothing comes back.
func (r *Redis) Freeze() {
	r.t.Helper()
	r.signal(syscall.SIGSTOP)
	// A signal is on its way for a moment.
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.child.PID()))
		if err != nil || bytes.Contains(status, []byte(") T ")) { // a system without /proc is trusted
			return
		}
	}
	r.t.Fatal("redis-server goes on")
}

// Thaw lets a frozen server go on.
func (r *Redis) Thaw() { r.signal(syscall.SIGCONT) }

func (r *Redis) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.child.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}
