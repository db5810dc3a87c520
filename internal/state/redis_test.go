package state_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"attache/internal/state"
	"attache/internal/state/statetest"
)

// open makes a store; change changes its configuration.
func open(t testing.TB, address string, change func(*state.Config)) *state.Redis {
	t.Helper()
	store, _ := openCounted(t, address, change)
	return store
}

// openIn makes a store that whoever makes it closes.
func openIn(t interface{ Fatal(...any) }, address string) *state.Redis {
	cfg := statetest.Config()
	cfg.Addresses = []string{address}
	store, err := state.NewRedis(state.Params{Config: cfg, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewPedanticRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// openCounted also returns the metrics.
func openCounted(t testing.TB, address string, change func(*state.Config)) (*state.Redis, *prometheus.Registry) {
	t.Helper()
	cfg, reg := statetest.Config(), prometheus.NewPedanticRegistry()
	cfg.Addresses = []string{address}
	if change != nil {
		change(&cfg)
	}
	store, err := state.NewRedis(state.Params{Config: cfg, Log: slog.New(slog.DiscardHandler), Metrics: reg})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store, reg
}

// raw is a client that does what no store does.
func raw(t testing.TB, address string) *redis.Client {
	t.Helper()
	options := &redis.Options{Network: "tcp", Addr: address, Protocol: 2}
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		options.Network, options.Addr = "unix", path
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func do(t testing.TB, client *redis.Client, args ...any) any {
	t.Helper()
	answer, err := client.Do(t.Context(), args...).Result()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return answer
}

// suite runs the whole suite on one server, which is emptied for each case.
func suite(t *testing.T, address string, change func(*state.Config)) {
	t.Helper()
	client := raw(t, address)
	statetest.Run(t, func(t *testing.T) state.Store {
		do(t, client, "flushall")
		return open(t, address, change)
	}, func(d time.Duration) { time.Sleep(d + 2*time.Millisecond) })
}

// mini is a server of Go, which is there without Redis, and whose time is the test's.
type mini struct {
	*miniredis.Miniredis
	clock
}

func startMini(t *testing.T) *mini {
	t.Helper()
	m := &mini{Miniredis: miniredis.RunT(t), clock: clock{now: time.Now().Truncate(time.Millisecond)}}
	m.SetTime(m.Now())
	return m
}

func (m *mini) advance(d time.Duration) {
	m.clock.advance(d)
	m.SetTime(m.Now())
	m.FastForward(d)
}

func TestMiniredis(t *testing.T) {
	m := startMini(t)
	statetest.Run(t, func(t *testing.T) state.Store {
		m.FlushAll()
		return open(t, m.Addr(), nil)
	}, m.advance)
}

func TestRedis(t *testing.T) { suite(t, statetest.StartRedis(t).Address, nil) }

// startCluster starts a cluster of one node.
func startCluster(t *testing.T) *statetest.Redis {
	t.Helper()
	node := statetest.StartRedisTCP(t, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", "PORT")
	client := raw(t, node.Address)
	// One by one: ADDSLOTSRANGE came with 7.0.
	slots := []any{"cluster", "addslots"}
	for i := range 16384 {
		slots = append(slots, i)
	}
	do(t, client, slots...)
	eventually(t, "the cluster serves", func() bool {
		return strings.Contains(fmt.Sprint(do(t, client, "cluster", "info")), "cluster_state:ok")
	})
	return node
}

func clustered(c *state.Config) { c.Mode = state.ModeCluster }

func TestRedisCluster(t *testing.T) { suite(t, startCluster(t).Address, clustered) }

// TestRedisMoved asks a node of a cluster as if it were alone: the error says what to do.
func TestRedisMoved(t *testing.T) {
	node, err := server.NewServer("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	err = node.Register("SET", func(p *server.Peer, _ string, _ []string) { p.WriteError("MOVED 15495 10.0.0.7:6379") })
	if err != nil {
		t.Fatal(err)
	}
	err = open(t, node.Addr().String(), nil).Save(t.Context(), "a", nil, 0)
	if err == nil || !strings.Contains(err.Error(), `redis.mode must be "cluster"`) {
		t.Errorf("got %v", err)
	}
}

// TestRedisOnce: a server that may have appended before its connection broke is not asked to do so again; what may be repeated is.
func TestRedisOnce(t *testing.T) {
	node, err := server.NewServer("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	var asked atomic.Int32
	for command, answer := range map[string]func(*server.Peer){
		"EVALSHA": func(p *server.Peer) {
			asked.Add(1)
			p.Close()
		},
		"CLUSTER": func(p *server.Peer) { // SLOTS: all of them are here
			p.WriteLen(1)
			p.WriteLen(3)
			p.WriteInt(0)
			p.WriteInt(16383)
			p.WriteLen(2)
			p.WriteBulk(node.Addr().IP.String())
			p.WriteInt(node.Addr().Port)
		},
	} {
		if err := node.Register(command, func(p *server.Peer, _ string, _ []string) { answer(p) }); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(*state.Config){"alone": nil, "cluster": clustered} {
		t.Run(name, func(t *testing.T) {
			store := open(t, node.Addr().String(), change)
			asked.Store(0)
			if err := store.Append(t.Context(), "a", []byte("x")); err == nil || asked.Load() != 1 {
				t.Errorf("appending: error %v, asked %d times, want once", err, asked.Load())
			}
			asked.Store(0)
			if err := store.Put(t.Context(), "a", "m", nil, time.Minute); err == nil || asked.Load() < 2 {
				t.Errorf("a lease: error %v, asked %d times, want more than once", err, asked.Load())
			}
		})
	}
}

func TestRedisSentinel(t *testing.T) {
	first := statetest.StartRedisTCP(t)
	host, port, _ := strings.Cut(first.Address, ":")
	second := statetest.StartRedisTCP(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	sentinel := statetest.StartSentinel(t, first)
	store := open(t, sentinel.Address, func(c *state.Config) { c.MasterName = "main" })
	ctx := t.Context()
	eventually(t, "the sentinel knows of both servers, and the second is in step", func() bool {
		if err := store.Save(ctx, "a", []byte("1"), 0); err != nil {
			return false
		}
		info := fmt.Sprint(do(t, raw(t, sentinel.Address), "info", "sentinel"))
		value, err := raw(t, second.Address).Get(ctx, "attache:v1:blob:{a}").Result()
		return strings.Contains(info, "slaves=1") && err == nil && value == "1"
	})
	first.Stop()
	eventually(t, "the second server takes over", func() bool {
		limited, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return store.Save(limited, "b", []byte("2"), 0) == nil
	})
	for key, want := range map[string]string{"a": "1", "b": "2"} {
		if got, err := store.Load(ctx, key); err != nil || string(got) != want {
			t.Errorf("%s is %q, error %v", key, got, err)
		}
	}
}

// eventually waits for something that comes in its own time, for as long as no machine takes.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it did not happen: %s", what)
		}
	}
}

func TestRedisPassword(t *testing.T) {
	server := statetest.StartRedis(t, "--requirepass", "first-secret")
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("wrong-secret\n")
	store := open(t, server.Address, func(c *state.Config) { c.PasswordFile = file })
	refused := func(says string) {
		t.Helper()
		err := store.Save(t.Context(), "a", []byte("1"), 0)
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), server.Address) {
			t.Fatalf("got %v, want an error about %s", err, says)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error holds the password: %v", err)
		}
	}
	refused("WRONGPASS")
	write("first-secret\n") // read again with the next connection
	if err := store.Save(t.Context(), "a", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	// A new password, as an operator changes it: connections stay, new ones have the new one.
	admin := raw(t, server.Address)
	do(t, admin, "auth", "first-secret")
	do(t, admin, "config", "set", "requirepass", "second-secret")
	write("second-secret")
	do(t, admin, "client", "kill", "type", "normal")
	eventually(t, "the new password is used", func() bool { return store.Save(t.Context(), "a", []byte("2"), 0) == nil })
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	do2 := raw(t, server.Address)
	do(t, do2, "auth", "second-secret")
	do(t, do2, "client", "kill", "type", "normal")
	eventually(t, "a file that is gone is an error", func() bool {
		err := store.Save(t.Context(), "a", []byte("2"), 0)
		return err != nil && strings.Contains(err.Error(), "password_file")
	})
}

// TestRedisTLS puts a server behind TLS that demands a certificate.
func TestRedisTLS(t *testing.T) {
	plain := statetest.StartRedis(t)
	certificate, key := selfSigned(t, t.TempDir())
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	text, _ := os.ReadFile(certificate)
	trusted.AppendCertsFromPEM(text)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: trusted,
		ClientAuth: tls.RequireAndVerifyClientCert})
	if err != nil {
		t.Fatal(err)
	}
	var pipes sync.WaitGroup
	t.Cleanup(pipes.Wait) // after the stores are closed
	pipes.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			pipes.Go(func() { pipe(conn, strings.TrimPrefix(plain.Address, "unix://")) })
		}
	})
	t.Cleanup(func() { _ = listener.Close() })
	good := state.TLS{Enabled: true, CAFile: certificate, CertFile: certificate, KeyFile: key, ServerName: "localhost"}
	for _, c := range []struct {
		name   string
		change func(*state.TLS)
		ok     bool
	}{
		{"trusted", func(*state.TLS) {}, true},
		{"another name", func(c *state.TLS) { c.ServerName = "example.com" }, false},
		{"the address is no name of it", func(c *state.TLS) { c.ServerName = "" }, false},
		{"not trusted", func(c *state.TLS) { c.CAFile = "" }, false},
		{"no certificate", func(c *state.TLS) { c.CertFile, c.KeyFile = "", "" }, false},
		{"plain text", func(c *state.TLS) { *c = state.TLS{} }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := open(t, listener.Addr().String(), func(cfg *state.Config) {
				cfg.TLS = good
				c.change(&cfg.TLS)
			})
			err := store.Save(t.Context(), "a", []byte("1"), 0)
			if (err == nil) != c.ok {
				t.Errorf("error %v, want none: %v", err, c.ok)
			}
		})
	}
}

// pipe connects a connection with a Unix socket until one of them ends.
func pipe(conn net.Conn, socket string) {
	defer conn.Close()
	to, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer to.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(to, conn)
		_ = to.Close()
	}()
	_, _ = io.Copy(conn, to)
	_ = conn.Close()
	<-done
}

// selfSigned writes a certificate for localhost, and its key.
func selfSigned(t *testing.T, dir string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}

// TestRedisRestart: a server that comes back empty is used again at once, and readers hear that records are lost.
func TestRedisRestart(t *testing.T) {
	server := statetest.StartRedis(t)
	store := open(t, server.Address, nil)
	ctx := t.Context()
	for i := range 3 {
		if err := store.Append(ctx, "a", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	end, err := store.End(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	before, _, err := store.Acquire(ctx, "l", "a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if _, _, err := store.Read(ctx, "a", end, 1, time.Hour); err == nil || !strings.Contains(err.Error(), server.Address) {
			t.Errorf("waiting ended with %v", err)
		}
	})
	time.Sleep(20 * time.Millisecond) // it waits by now, or will not be able to
	server.Stop()
	waiting.Wait()
	statetest.Away(t, store, server.Address)
	server.Start()
	eventually(t, "it is used again", func() bool { return store.Append(ctx, "a", []byte("new")) == nil })
	records, lost, err := store.Read(ctx, "a", end, 10, time.Hour)
	if err != nil || !lost || len(records) != 1 || string(records[0].Value) != "new" {
		t.Errorf("read %q, lost %v, error %v", records, lost, err)
	}
	after, held, err := store.Acquire(ctx, "l", "b", time.Hour)
	if err != nil || !held || after <= before {
		t.Errorf("token %d came after %d, error %v", after, before, err)
	}
}

// TestRedisFrozen: servers that take connections and say nothing cost a call its time, and not more.
func TestRedisFrozen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		warm   bool // there are connections
		start  func(t *testing.T) []*statetest.Redis
		change func(*state.Config)
	}{
		{"alone", true, func(t *testing.T) []*statetest.Redis { return []*statetest.Redis{statetest.StartRedis(t)} }, nil},
		{"alone, new connections", false, func(t *testing.T) []*statetest.Redis { return []*statetest.Redis{statetest.StartRedis(t)} }, nil},
		{"cluster", true, func(t *testing.T) []*statetest.Redis { return []*statetest.Redis{startCluster(t)} }, clustered},
		{"cluster, new connections", false, func(t *testing.T) []*statetest.Redis { return []*statetest.Redis{startCluster(t)} }, clustered},
		{"sentinel", true, startWatched, watched},
		{"sentinel, new connections", false, startWatched, watched},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // it waits for most of the time
			servers := c.start(t)
			address := servers[0].Address
			change := func(cfg *state.Config) {
				if c.change != nil {
					c.change(cfg)
				}
			}
			store := open(t, address, func(cfg *state.Config) { change(cfg); cfg.Timeout = 100 * time.Millisecond })
			patient := open(t, address, change)
			if c.warm {
				eventually(t, "the server answers in time", func() bool { return store.Save(t.Context(), "a", []byte("1"), 0) == nil })
			}
			frozen := time.Now()
			for _, server := range servers {
				server.Freeze()
			}
			var late sync.WaitGroup
			late.Go(func() { // whoever has time gets an answer when the server goes on
				if err := patient.Save(t.Context(), "b", []byte("1"), 0); err != nil {
					t.Error(err)
				}
			})
			over := func(err error) {
				t.Helper()
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), address) {
					t.Errorf("got %v, want that the time was over", err)
				}
			}
			for range 20 { // more than there are connections
				over(store.Save(t.Context(), "a", []byte("2"), 0))
			}
			own, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, _, err := store.Read(own, "a", "", 1, time.Hour)
			over(err)
			_, _, err = store.Read(t.Context(), "a", "", 1, 10*time.Millisecond)
			over(err)
			ended, end := context.WithCancel(t.Context())
			time.AfterFunc(20*time.Millisecond, end)
			if _, _, err = store.Read(ended, "a", "", 1, time.Hour); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want that the call was given up", err)
			}
			time.Sleep(time.Until(frozen.Add(3 * time.Second)))
			for _, server := range servers {
				server.Thaw()
			}
			late.Wait()
			eventually(t, "the server is used again", func() bool { return store.Save(t.Context(), "a", []byte("3"), 0) == nil })
		})
	}
}

// startWatched starts a sentinel, which comes first, and its server.
func startWatched(t *testing.T) []*statetest.Redis {
	server := statetest.StartRedisTCP(t)
	return []*statetest.Redis{statetest.StartSentinel(t, server), server}
}

func watched(c *state.Config) { c.MasterName = "main" }

// TestRedisFlush: a server that forgets everything, scripts included, costs nothing but what it held.
func TestRedisFlush(t *testing.T) {
	server := statetest.StartRedis(t)
	store, client, ctx := open(t, server.Address, nil), raw(t, server.Address), t.Context()
	positions := []string{""}
	for range 5 {
		for range 3 {
			if err := store.Append(ctx, "a", []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		end, err := store.End(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		positions = append(positions, end)
		do(t, client, "flushall")
		do(t, client, "script", "flush")
		for _, at := range positions {
			if records, lost, err := store.Read(ctx, "a", at, 10, time.Millisecond); len(records) > 0 || lost || err != nil {
				t.Fatalf("read %v, lost %v, error %v from nothing", records, lost, err)
			}
		}
		if err := store.Append(ctx, "a", []byte("first")); err != nil {
			t.Fatal(err)
		}
		for _, at := range positions {
			records, lost, err := store.Read(ctx, "a", at, 10, 0)
			if len(records) != 1 || lost != (at != "") || err != nil {
				t.Fatalf("read %v, lost %v, error %v after %q", records, lost, err, at)
			}
		}
		for name, err := range map[string]error{
			"put":    store.Put(ctx, "g", "m", nil, time.Hour),
			"remove": store.Remove(ctx, "g", "m"),
		} {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		do(t, client, "flushall")
	}
}

// TestRedisClockBack: the server comes back empty with a clock that is behind. Readers that are ahead of the stream begin anew.
func TestRedisClockBack(t *testing.T) {
	server := statetest.StartRedis(t)
	store, client, ctx := open(t, server.Address, nil), raw(t, server.Address), t.Context()
	const key = "attache:v1:log:{a}"
	do(t, client, "xadd", key, "1000-0", "n", "1", "v", "old")
	for _, ahead := range []string{"1000-1:5", "99999999999999-0:1", "99999999999999-0:7"} {
		for _, wait := range []time.Duration{0, time.Millisecond} {
			records, lost, err := store.Read(ctx, "a", ahead, 10, wait)
			if err != nil || !lost || len(records) != 1 || records[0].Position != "1000-0:1" {
				t.Errorf("read %v, lost %v, error %v", records, lost, err)
			}
		}
	}
}

// TestRedisForeign: what somebody else wrote under our keys is an error that says so, and never a panic.
func TestRedisForeign(t *testing.T) {
	server := statetest.StartRedis(t)
	store, client, ctx := open(t, server.Address, nil), raw(t, server.Address), t.Context()
	do(t, client, "xadd", "attache:v1:log:{fields}", "*", "a", "b")
	do(t, client, "xadd", "attache:v1:log:{number}", "*", "n", "x", "v", "y")
	do(t, client, "set", "attache:v1:log:{type}", "x")
	do(t, client, "set", "attache:v1:ends:{type}", "x")
	do(t, client, "set", "attache:v1:leader:{type}", "x")
	do(t, client, "lpush", "attache:v1:blob:{type}", "x")
	do(t, client, "set", "attache:v1:blob:{large}", strings.Repeat("x", statetest.MaxValue+1))
	var errs []error
	for _, stream := range []string{"fields", "number", "type"} {
		_, _, err := store.Read(ctx, stream, "", 10, 0)
		_, _, waiting := store.Read(ctx, stream, "", 10, time.Millisecond)
		_, end := store.End(ctx, stream)
		errs = append(errs, err, waiting, end, store.Append(ctx, stream, []byte("x")))
	}
	_, members := store.Members(ctx, "type")
	_, _, lead := store.Acquire(ctx, "type", "a", time.Hour)
	_, load := store.Load(ctx, "type")
	_, large := store.Load(ctx, "large")
	errs = append(errs, members, lead, load, large, store.Put(ctx, "type", "m", nil, time.Hour), store.Release(ctx, "type", "a"))
	for i, err := range errs {
		if err == nil || !strings.Contains(err.Error(), server.Address) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if !errors.Is(large, state.ErrTooLarge) {
		t.Error(large)
	}
}

// TestRedisBounds looks at what is left in Redis: every key has an end but those that are to stay, and nothing grows.
func TestRedisBounds(t *testing.T) {
	server := statetest.StartRedis(t)
	store, client, ctx := open(t, server.Address, nil), raw(t, server.Address), t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(store.Append(ctx, "s", []byte("x")))
	check(store.Save(ctx, "k", []byte("x"), time.Hour))
	_, err := store.SaveFenced(ctx, "f", []byte("x"), 1, time.Hour)
	check(err)
	check(store.Put(ctx, "g", "long", nil, time.Hour))
	check(store.Put(ctx, "g", "short", nil, time.Millisecond))
	check(store.Put(ctx, "short", "m", nil, time.Millisecond))
	_, _, err = store.Acquire(ctx, "l", "a", time.Hour)
	check(err)
	time.Sleep(5 * time.Millisecond)
	_, err = store.Members(ctx, "g")
	check(err)
	for key, most := range map[string]time.Duration{
		"attache:v1:log:{s}": 24 * time.Hour, "attache:v1:blob:{k}": time.Hour, "attache:v1:blob:{f}": time.Hour,
		"attache:v1:fence:{f}": 25 * time.Hour, "attache:v1:ends:{g}": time.Hour, "attache:v1:values:{g}": time.Hour, "attache:v1:leader:{l}": 25 * time.Hour,
	} {
		left, err := client.PTTL(ctx, key).Result()
		check(err)
		if left <= most-time.Hour || left > most {
			t.Errorf("%s has %v left, want %v", key, left, most)
		}
	}
	if left := do(t, client, "keys", "*").([]any); len(left) != 7 {
		t.Errorf("keys that are left: %q", left)
	}
	if n := do(t, client, "hlen", "attache:v1:values:{g}").(int64); n != 1 {
		t.Errorf("%d values of one member", n)
	}
}

// TestRedisACL gives a user the keys of one prefix and the commands that keys.go names, and nothing else.
func TestRedisACL(t *testing.T) {
	source, err := os.ReadFile("keys.go")
	if err != nil {
		t.Fatal(err)
	}
	rule := []any{"acl", "setuser", "attache", "on", ">secret", "~attache:v1:*"}
	for _, command := range regexp.MustCompile(`\+[a-z|]+`).FindAll(source, -1) {
		rule = append(rule, string(command))
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	user := func(c *state.Config) { c.Username, c.PasswordFile = "attache", password }
	t.Run("alone", func(t *testing.T) {
		server := statetest.StartRedis(t)
		do(t, raw(t, server.Address), rule...)
		suite(t, server.Address, user)
		if err := open(t, server.Address, func(c *state.Config) { user(c); c.Prefix = "other" }).Save(t.Context(), "a", nil, 0); err == nil {
			t.Error("a key of another prefix could be written: the test proves nothing")
		}
	})
	t.Run("cluster", func(t *testing.T) {
		server := startCluster(t)
		do(t, raw(t, server.Address), rule...)
		suite(t, server.Address, func(c *state.Config) { clustered(c); user(c) })
	})
}

// TestRedisPrefix: deployments with different prefixes do not see each other, nor do databases.
func TestRedisPrefix(t *testing.T) {
	server := statetest.StartRedis(t)
	one := open(t, server.Address, nil)
	two := open(t, server.Address, func(c *state.Config) { c.Prefix = "two" })
	three := open(t, server.Address, func(c *state.Config) { c.Database = 3 })
	if err := one.Save(t.Context(), "a", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	for _, other := range []*state.Redis{two, three} {
		if _, err := other.Load(t.Context(), "a"); !errors.Is(err, state.ErrNone) {
			t.Errorf("got %v, want none", err)
		}
	}
}

// TestRedisHealth follows a server that goes and comes back.
func TestRedisHealth(t *testing.T) {
	server := statetest.StartRedis(t)
	var lines statetest.Log
	cfg, reg := statetest.Config(), prometheus.NewPedanticRegistry()
	cfg.Addresses, cfg.PingInterval = []string{server.Address}, 10*time.Millisecond
	store, err := state.New(state.Params{Config: cfg, Log: slog.New(slog.NewTextHandler(&lines, nil)), Metrics: reg})
	if err != nil {
		t.Fatal(err)
	}
	if h := store.Health(); h.Up || h.Err == nil {
		t.Errorf("up before it was asked: %+v", h)
	}
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = store.Run(ctx) })
	up := func(want string) bool {
		return testutil.GatherAndCompare(reg, strings.NewReader("# HELP attache_redis_up Whether Redis answered when it was last asked: 1 or 0.\n"+
			"# TYPE attache_redis_up gauge\nattache_redis_up "+want+"\n"), "attache_redis_up") == nil
	}
	begun := time.Now()
	eventually(t, "it is up", func() bool { h := store.Health(); return h.Up && h.Err == nil && h.RoundTrip > 0 && up("1") })
	server.Stop()
	eventually(t, "it is away", func() bool { h := store.Health(); return !h.Up && h.Err != nil && up("0") })
	away := store.Health()
	if away.Since.Before(begun) || !strings.Contains(away.Err.Error(), server.Address) {
		t.Errorf("away: %+v", away)
	}
	server.Start()
	eventually(t, "it is back", func() bool { h := store.Health(); return h.Up && h.Since.After(away.Since) })
	stop()
	run.Wait()
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	if errs := store.Close(); errs != nil {
		t.Errorf("closed twice: %v", errs)
	}
	statetest.Away(t, store, "closed")
	if text := lines.String(); strings.Count(text, "redis is away") != 1 || strings.Count(text, "redis is there") != 2 {
		t.Errorf("log:\n%s", text)
	}
}

// TestRedisMetrics counts calls, and failures by call.
func TestRedisMetrics(t *testing.T) {
	server := statetest.StartRedis(t)
	store, reg := openCounted(t, server.Address, nil)
	ctx := t.Context()
	_, _ = store.Load(ctx, "nothing")
	_ = store.Save(ctx, "a", nil, 0)
	if _, _, err := store.Read(ctx, "a", "", 1, time.Millisecond); err != nil { // waiting is no work
		t.Fatal(err)
	}
	server.Stop()
	_ = store.Save(ctx, "a", nil, 0)
	if _, _, err := store.Read(ctx, "a", "", 1, time.Millisecond); err == nil {
		t.Error("nobody was there, and it is no error")
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				got[f.GetName()+" "+l.GetValue()] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	for name, want := range map[string]float64{
		"attache_redis_command_seconds load": 1, "attache_redis_errors_total load": 0, "attache_redis_command_seconds save": 2,
		"attache_redis_errors_total save": 1, "attache_redis_command_seconds read": 0, "attache_redis_errors_total read": 1,
		"attache_redis_command_seconds acquire": 0, "attache_redis_errors_total acquire": 0,
	} {
		if value, there := got[name]; !there || value != want {
			t.Errorf("%s is %v, want %v", name, value, want)
		}
	}
}

// BenchmarkAppend is what a batch of records of 1 KB costs its writer, on a Unix socket and one server.
func BenchmarkAppend(b *testing.B) {
	server := statetest.StartRedis(b)
	store := open(b, server.Address, func(c *state.Config) { c.MaxStreamLength = 10_000 })
	for _, n := range []int{1, 16, 64} {
		records := make([][]byte, n)
		for i := range records {
			records[i] = bytes.Repeat([]byte("x"), 1000)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				if err := store.Append(b.Context(), "a", records...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
