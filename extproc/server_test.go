package extproc

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"attache/internal/router"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serving runs a server and returns it with a client's connection.
func serving(t *testing.T, f Router, change func(*Config), creds credentials.TransportCredentials) (*Server, *grpc.ClientConn) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Listen, cfg.DrainWait, cfg.DrainTimeout = "127.0.0.1:0", 0, 5*time.Second
	if change != nil {
		change(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	s, err := New(Params{Config: cfg, Router: f, DefaultPool: "default", Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	target := s.Addr().String()
	if s.Addr().Network() == "unix" {
		target = "unix://" + target
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return s, conn
}

// ask sends one BUFFERED chat request and returns the replies to headers and body.
func ask(t *testing.T, conn *grpc.ClientConn, body string) (grpc.BidiStreamingClient[extprocv3.ProcessingRequest, extprocv3.ProcessingResponse], []string, error) {
	t.Helper()
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(t.Context())
	if err != nil {
		return nil, nil, err
	}
	var replies []string
	for _, m := range []*extprocv3.ProcessingRequest{
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: headersOf(":method", "POST", ":path", "/v1/chat/completions")}},
			ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: filter.ProcessingMode_BUFFERED}},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte(body), EndOfStream: true}}},
	} {
		if err := stream.Send(m); err != nil {
			return stream, replies, err
		}
		reply, err := stream.Recv()
		if err != nil {
			return stream, replies, err
		}
		replies = append(replies, describe(reply))
	}
	return stream, replies, nil
}

func wantDecision(t *testing.T, replies []string, err error) {
	t.Helper()
	if got := strings.Join(replies, "; "); err != nil || got != "headers; body "+decision {
		t.Errorf("replies %q, %v", got, err)
	}
}

func TestOverTCPWithEverySize(t *testing.T) {
	s, conn := serving(t, &fakeRouter{}, nil, nil)
	for _, size := range []int{100, 200_000, 2_000_000, 16 << 20} {
		stream, replies, err := ask(t, conn, chat(size))
		wantDecision(t, replies, err)
		if err := stream.CloseSend(); err != nil {
			t.Error(err)
		}
		if _, err := stream.Recv(); err != io.EOF { //nolint:errorlint // gRPC says io.EOF itself
			t.Errorf("the stream ends with %v", err)
		}
	}
	_, replies, err := ask(t, conn, chat(16<<20+1))
	if got := strings.Join(replies, "; "); err != nil || !strings.HasPrefix(got, "headers; answer(413 attache_body_too_large)") {
		t.Errorf("one byte too many: %q, %v", got, err)
	}
	if n := testutil.ToFloat64(s.metrics.answers.WithLabelValues("413")); n != 1 {
		t.Errorf("%v answers of 413 counted", n)
	}
}

func TestOverAUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "attache") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	address := "unix://" + filepath.Join(dir, "extproc.sock")
	_, conn := serving(t, &fakeRouter{}, func(c *Config) { c.Listen = address }, nil)
	_, replies, err := ask(t, conn, chat(200))
	wantDecision(t, replies, err)
	cfg := DefaultConfig()
	cfg.Listen = address
	_, err = New(Params{Config: cfg, Router: &fakeRouter{}, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err == nil || !strings.Contains(err.Error(), "another process serves this socket") {
		t.Errorf("a second server on the socket: %v", err)
	}
}

func TestATakenPortSaysWhatToDo(t *testing.T) {
	s, _ := serving(t, &fakeRouter{}, nil, nil)
	cfg := DefaultConfig()
	cfg.Listen = s.Addr().String()
	_, err := New(Params{Config: cfg, Router: &fakeRouter{}, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err == nil || !strings.Contains(err.Error(), "extproc.listen") || !strings.Contains(err.Error(), "is attache running already?") {
		t.Errorf("error %v", err)
	}
}

func TestTLS(t *testing.T) {
	ca := newAuthority(t)
	cert, key := ca.issue(t, "server")
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	client := func(certs ...tls.Certificate) credentials.TransportCredentials {
		return credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "localhost", Certificates: certs, MinVersion: tls.VersionTLS12})
	}
	t.Run("server certificate", func(t *testing.T) {
		_, conn := serving(t, &fakeRouter{}, func(c *Config) { c.TLS = &TLS{Cert: cert, Key: key} }, client())
		_, replies, err := ask(t, conn, chat(200))
		wantDecision(t, replies, err)
	})
	mutual := func(c *Config) { c.TLS = &TLS{Cert: cert, Key: key, ClientCA: ca.file} }
	t.Run("client certificate", func(t *testing.T) {
		certFile, keyFile := ca.issue(t, "client")
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			t.Fatal(err)
		}
		_, conn := serving(t, &fakeRouter{}, mutual, client(pair))
		_, replies, err := ask(t, conn, chat(200))
		wantDecision(t, replies, err)
	})
	t.Run("no client certificate", func(t *testing.T) {
		_, conn := serving(t, &fakeRouter{}, mutual, client())
		if _, _, err := ask(t, conn, chat(200)); status.Code(err) != codes.Unavailable {
			t.Errorf("a client without a certificate: %v", err)
		}
	})
}

func TestHealthNames(t *testing.T) {
	s, conn := serving(t, &fakeRouter{}, nil, nil)
	check := func(name string) string {
		resp, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: name})
		if err != nil {
			return status.Code(err).String()
		}
		return resp.GetStatus().String()
	}
	for _, ready := range []bool{false, true, false} {
		s.SetReady(ready)
		want := map[bool]string{false: "NOT_SERVING", true: "SERVING"}[ready]
		for name, want := range map[string]string{"": want, "readiness": want, "envoy.service.ext_proc.v3.ExternalProcessor": want,
			"liveness": "SERVING", "something else": "NotFound"} {
			if got := check(name); got != want {
				t.Errorf("ready %v: %q is %s, want %s", ready, name, got, want)
			}
		}
	}
}

// panicking is a router with a bug.
type panicking struct{ fakeRouter }

func (p *panicking) Route(ctx context.Context, req *router.Request) (*router.Decision, error) {
	if strings.Contains(string(req.Body), "boom") {
		panic("a bug")
	}
	return p.fakeRouter.Route(ctx, req)
}

func TestAPanicEndsItsOwnStreamOnly(t *testing.T) {
	dir := t.TempDir()
	s, conn := serving(t, &panicking{}, func(c *Config) { c.RecordPanics, c.RecordBodies = dir, true }, nil)
	_, before, err := ask(t, conn, chat(200))
	wantDecision(t, before, err)
	secret := strings.Replace(chat(200), "xxxx", "boom", 1)
	if _, _, err := ask(t, conn, secret); status.Code(err) != codes.Internal {
		t.Errorf("the panicking stream ends with %v", err)
	}
	_, after, err := ask(t, conn, chat(200))
	wantDecision(t, after, err)
	if n := testutil.ToFloat64(s.metrics.panics); n != 1 {
		t.Errorf("%v panics counted", n)
	}
	notes, _ := filepath.Glob(filepath.Join(dir, "panic-*.txt"))
	inputs, _ := filepath.Glob(filepath.Join(dir, "panic-*.bin"))
	if len(notes) != 1 || len(inputs) != 1 {
		t.Fatalf("recorded %v and %v", notes, inputs)
	}
	note, err := os.ReadFile(notes[0])
	if err != nil || !strings.Contains(string(note), "a bug") || !strings.Contains(string(note), "phase: request_body") || strings.Contains(string(note), "boom") {
		t.Errorf("the note, %v:\n%s", err, note)
	}
	input, err := os.ReadFile(inputs[0])
	if err != nil || !strings.Contains(string(input), "boom") {
		t.Errorf("the input, %v: %q", err, input)
	}
}

func TestUndecodableMessagesEndTheStream(t *testing.T) {
	s, conn := serving(t, &fakeRouter{}, nil, nil)
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		"/"+serviceName+"/Process", grpc.ForceCodec(rawCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg([]byte{0x0a, 0xff}); err != nil {
		t.Fatal(err)
	}
	var reply []byte
	if err := stream.RecvMsg(&reply); err == nil || !strings.Contains(err.Error(), "not a protobuf message") {
		t.Errorf("error %v", err)
	}
	if n := testutil.ToFloat64(s.metrics.protocol); n != 1 {
		t.Errorf("%v counted", n)
	}
}

type rawCodec struct{}

func (rawCodec) Name() string                  { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = b
	return nil
}

// TestManyAtOnce mixes sizes and clients that leave at any point; nothing may leak or mix up.
func TestManyAtOnce(t *testing.T) {
	s, conn := serving(t, &lockedRouter{}, nil, nil)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				stream, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx)
				if err != nil {
					t.Error(err)
				}
				if (g+i)%5 == 0 { // leaves before the body
					_ = stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{}}})
					cancel()
					continue
				}
				cancel()
				_, replies, err := ask(t, conn, chat(100+g*5000+i))
				if got := strings.Join(replies, "; "); err != nil || got != "headers; body "+decision {
					t.Errorf("replies %q, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
	_ = conn.Close()
	for end := time.Now().Add(5 * time.Second); s.open.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d streams are still open", s.open.Load())
		}
	}
}

// lockedRouter is a fakeRouter for many.
type lockedRouter struct {
	fakeRouter

	mu sync.Mutex
}

func (l *lockedRouter) Route(ctx context.Context, req *router.Request) (*router.Decision, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked, l.bodies = nil, nil
	return l.fakeRouter.Route(ctx, req)
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Listen = "9002" }, `listen: "9002": must be host:port such as 127.0.0.1:9002, or unix:///path/to.sock`},
		{func(c *Config) { c.Listen = "unix://relative" }, `listen: "unix://relative": must be unix:// followed by an absolute path of at most 100 bytes`},
		{func(c *Config) { c.MaxBody = 0 }, `max_body: 0B: must be above 0 and at most 1GiB`},
		{func(c *Config) { c.MaxMessage = c.MaxBody }, `max_message: 16MiB: must exceed max_body by at least 1MiB`},
		{func(c *Config) { c.Malformed = "drop" }, `malformed: "drop": must be "reject" or "pass"`},
		{func(c *Config) { c.Other = "" }, `other: "": must be "load" or "pass"`},
		{func(c *Config) { c.AssumeMode = "streamed" }, `assume_mode: "streamed": must be "buffered" or "full_duplex"`},
		{func(c *Config) { c.DrainWait = -1 }, `drain_wait: -1ns: must not be negative`},
		{func(c *Config) { c.DrainTimeout = -1 }, `drain_timeout: -1ns: must not be negative`},
		{func(c *Config) { c.RecordBodies = true }, `record_bodies: true: needs record_panics, the folder to write to`},
		{func(c *Config) { c.TLS = &TLS{Cert: "/nowhere", Key: os.DevNull} }, `tls.cert: "/nowhere": must be a PEM file that can be read`},
		{func(c *Config) { c.TLS = &TLS{Cert: os.DevNull, Key: os.DevNull, ClientCA: "/nowhere"} },
			`tls.client_ca: "/nowhere": must be a PEM file that can be read, or empty`},
	} {
		cfg := DefaultConfig()
		c.change(&cfg)
		if err := cfg.Validate(); err == nil || err.Error() != c.want {
			t.Errorf("error %v\nwant  %s", err, c.want)
		}
	}
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

// authority signs certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{cert: cert, key: key, file: filepath.Join(t.TempDir(), "ca.pem")}
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

func (a *authority) issue(t *testing.T, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	writePEM(t, certFile, "CERTIFICATE", der)
	writePEM(t, keyFile, "PRIVATE KEY", private)
	return certFile, keyFile
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
