package direct

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"attache/internal/bubble"
	"attache/internal/replica/replicatest"
)

const (
	secret = "a secret of the replicas"
	other  = "another secret, as long"
)

func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTokens(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w, dir := newNetwork(), t.TempDir()
		at := func(i, token string) *office {
			cfg := config("10.0.0.1:9004", "10.0.0.2:9004")
			if token != "" {
				cfg.TokenFile = write(t, filepath.Join(dir, i), token+"\n")
			}
			return w.open(t, i, "10.0.0."+i+":9004", cfg)
		}
		a, b := at("1", secret), at("2", other)
		time.Sleep(time.Minute)
		for _, o := range []*office{a, b} {
			if o.desk.Down() == nil || !strings.Contains(o.desk.Down().Error(), "another token") || len(o.desk.Peers()) > 0 || o.Link("llama").hub.count() > 0 {
				t.Errorf("%s hears %v with a wrong token, tells %d (%v)", o.desk.Name, o.desk.Peers(), o.Link("llama").hub.count(), o.desk.Down())
			}
		}
		write(t, filepath.Join(dir, "2"), secret) // is read at the next connection
		time.Sleep(5 * time.Second)
		replicatest.Agree(t, "with the same token", a.desk, b.desk)
		_ = os.Remove(filepath.Join(dir, "2"))
		b.close()
		c := at("2", "")
		time.Sleep(time.Minute)
		if len(a.desk.Peers()) > 0 || len(c.desk.Peers()) > 0 {
			t.Error("a replica without a token was let in")
		}
		for _, o := range []*office{a, b, c} {
			if log := o.log.String() + o.desk.Log(); strings.Contains(log, secret) || strings.Contains(log, other) {
				t.Errorf("a token was logged: %s", log)
			}
		}
		a.close()
		c.close()
	})
}

// call opens a stream to a node as somebody does who is no replica, and sends what he says; it returns how the stream ended.
func (w *network) call(t testing.TB, address string, texts ...[]byte) error {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return w.dial(ctx, "tcp", address) }),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := conn.NewStream(ctx, &followDesc, followMethod)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		_ = stream.SendMsg(text)
	}
	var m incoming
	defer m.free()
	for {
		if err := stream.RecvMsg(&m); err != nil {
			return err
		}
	}
}

func TestStrangers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w, cfg := newNetwork(), config()
		cfg.TokenFile = write(t, filepath.Join(t.TempDir(), "token"), secret)
		a := w.start(t, "10.0.0.1:9004", cfg)
		a.Link("llama")
		g := greeting{pool: "llama", name: "stranger", process: newRandom()}
		for _, c := range []struct {
			name  string
			texts [][]byte
			want  codes.Code
		}{
			{"says nothing", nil, codes.DeadlineExceeded},
			{"says no more", [][]byte{g.append(nil)}, codes.DeadlineExceeded},
			{"an empty greeting", [][]byte{{}}, codes.InvalidArgument},
			{"a greeting cut short", [][]byte{g.append(nil)[:30]}, codes.InvalidArgument},
			{"more than a greeting", [][]byte{append(g.append(nil), 0)}, codes.InvalidArgument},
			{"another version", [][]byte{append([]byte{version + 1}, g.append(nil)[1:]...)}, codes.InvalidArgument},
			{"much", [][]byte{make([]byte, maxHello+1)}, codes.ResourceExhausted},
			{"no proof", [][]byte{g.append(nil), {}}, codes.Unauthenticated},
			{"a wrong proof", [][]byte{g.append(nil), make([]byte, proofBytes)}, codes.Unauthenticated},
			{"a pool that is not there", [][]byte{(&greeting{pool: "x"}).append(nil), make([]byte, proofBytes)}, codes.Unauthenticated},
		} {
			if err := w.call(t, "10.0.0.1:9004", c.texts...); status.Code(err) != c.want {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
		}
		if n := testutil.ToFloat64(a.metrics.refused); n != 10 {
			t.Errorf("%v were refused, want 10", n)
		}
		if n := strings.Count(a.log.String(), "not let in"); n != 1 {
			t.Errorf("%d times logged within a minute", n)
		}
		a.stop()
	})
}

// TestTooMany: there is a last stream, and those that say nothing give their places back.
func TestTooMany(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newNetwork()
		a := w.start(t, "10.0.0.1:9004", config())
		var calling sync.WaitGroup
		for range mostStreams {
			calling.Go(func() {
				if err := w.call(t, "10.0.0.1:9004"); status.Code(err) != codes.DeadlineExceeded {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if err := w.call(t, "10.0.0.1:9004"); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one more: %v", err)
		}
		calling.Wait()
		if err := w.call(t, "10.0.0.1:9004", []byte{}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("when they are gone: %v", err)
		}
		a.stop()
	})
}

// TestSilence: somebody who takes connections and says nothing does not hold a replica up.
func TestSilence(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w, heard := newNetwork(), &ear{}
		silent := w.listen("10.0.0.2:9004")
		a := w.start(t, "10.0.0.1:9004", config("10.0.0.2:9004"))
		stop := listen(a.Link("llama"), heard)
		time.Sleep(time.Minute)
		if !strings.Contains(heard.lastLoss(), "10.0.0.2:9004") {
			t.Errorf("%s: %s", heard.told(), heard.lastLoss())
		}
		_ = silent.Close()
		stop()
		a.stop()
	})
}

// TestImpostor: what somebody says who took a replica's address is not believed, and garbage of one who belongs to us not either.
func TestImpostor(t *testing.T) {
	for _, c := range []struct {
		name, token string
		frame       []byte
		lost        string
	}{
		{"with nothing", "", framed([]byte("lies")), "another token"},
		{"with another token", other, framed([]byte("lies")), "another token"},
		{"with a frame that ends early", secret, []byte{5, 1}, ""},
		{"with too large a frame", secret, make([]byte, maxFrame+1), ""},
	} {
		bubble.Test(t, func(t *testing.T) {
			w, cfg, heard := newNetwork(), config("10.0.0.2:9004"), &ear{}
			desc := followDesc
			var calls atomic.Int64
			desc.Handler = func(_ any, stream grpc.ServerStream) error {
				calls.Add(1)
				var m incoming
				defer m.free()
				var by greeting
				if err := stream.RecvMsg(&m); err != nil {
					return err
				}
				_, _ = by.decode(m.bytes())
				own := greeting{pool: by.pool, name: "impostor", process: newRandom()}
				_ = stream.SendMsg(append(own.append(nil), prove([]byte(c.token), ofFollowed, &by, &own)...))
				if err := stream.RecvMsg(&m); err != nil {
					return err
				}
				_ = stream.SendMsg([]byte(nil))
				_ = stream.SendMsg(c.frame)
				<-stream.Context().Done()
				return nil
			}
			server := grpc.NewServer(grpc.ForceServerCodecV2(codec{}))
			server.RegisterService(&grpc.ServiceDesc{ServiceName: serviceName, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{desc}}, t)
			listener := w.listen("10.0.0.2:9004")
			go server.Serve(listener)
			cfg.TokenFile = write(t, filepath.Join(t.TempDir(), "token"), secret)
			a := w.start(t, "10.0.0.1:9004", cfg)
			stop := listen(a.Link("llama"), heard)
			time.Sleep(time.Minute)
			if got, _ := heard.heard(); len(got) > 0 {
				t.Errorf("%s: %q was believed", c.name, got)
			}
			if !strings.Contains(heard.lastLoss(), c.lost) || c.lost == "" && heard.lastLoss() != "" {
				t.Errorf("%s: lost by %q, want %q", c.name, heard.lastLoss(), c.lost)
			}
			if n := calls.Load(); n < 20 || n > 60 { // longestPause, and a fifth less
				t.Errorf("%s: called %d times in a minute", c.name, n)
			}
			stop()
			a.stop()
			server.Stop()
		})
	}
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	path string
}

func newAuthority(t testing.TB, dir, name string) *authority {
	a := &authority{path: filepath.Join(dir, name+".pem")}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	write(t, a.path, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	return a
}

// sign makes the certificate of a replica, good for a host, and returns the configuration that uses it.
func (a *authority) sign(t testing.TB, path, host string) *TLS {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{host}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &TLS{
		Cert: write(t, path+".cert", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		Key:  write(t, path+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))),
		CA:   a.path,
	}
}

// TestTLS: over real sockets, those with a certificate of the same authority, good for the host, hear each other, and nobody else.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := newAuthority(t, dir, "ours"), newAuthority(t, dir, "theirs")
	for _, c := range []struct {
		name        string
		mine, yours *TLS
		agree       bool
	}{
		{"the same authority", ours.sign(t, dir+"/a", "localhost"), ours.sign(t, dir+"/b", "localhost"), true},
		{"another one", ours.sign(t, dir+"/c", "localhost"), theirs.sign(t, dir+"/d", "localhost"), false},
		{"for another host", ours.sign(t, dir+"/e", "localhost"), ours.sign(t, dir+"/f", "elsewhere"), false},
		{"plain text", ours.sign(t, dir+"/g", "localhost"), nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			here, there := config(), config()
			here.TLS, there.TLS = c.mine, c.yours
			b := onLoopback(t, "b", there, nil)
			here.Peers = []string{strings.Replace(b.Addr().String(), "127.0.0.1", "localhost", 1)}
			a := onLoopback(t, "a", here, nil)
			heard := &ear{}
			link := b.Link("llama")
			stop := listen(a.Link("llama"), heard)
			if c.agree {
				await(t, "a subscriber", func() bool { return link.hub.count() == 1 })
				_ = link.Publish(t.Context(), []byte("secret"))
				await(t, "a record", func() bool { return strings.HasSuffix(heard.told(), "secret") })
			} else {
				await(t, "a refusal", func() bool { return heard.lastLoss() != "" })
				if link.hub.count() > 0 {
					t.Error("a stranger is told everything")
				}
			}
			stop()
			a.stop()
			b.stop()
		})
	}
}

// onLoopback starts a node on a port of loopback.
func onLoopback(t testing.TB, name string, cfg Config, lookup Lookup) *machine {
	t.Helper()
	log := &journal{}
	n, err := New(Params{Config: cfg, Name: name, Lookup: lookup, Log: slog.New(slog.NewTextHandler(log, nil)), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return run(t, n, log)
}

// await waits until something is so. It fails only when it is not so for a minute.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("there is not %s", what)
		}
	}
}
