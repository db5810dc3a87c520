package zmtp

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// floodVariable makes the test binary a publisher that sends without pause, to measure a subscriber alone in its process.
const floodVariable = "ZMTP_FLOOD"

// engineMessage is like an engine's: topic, sequence, payload.
func engineMessage(payload int) []byte {
	return appendMessage(nil, [][]byte{[]byte("kv-events"), []byte("12345678"), []byte(strings.Repeat("x", payload))})
}

func flood(at string) {
	nc, err := net.Dial("tcp", at)
	if err != nil {
		os.Exit(1)
	}
	c := newConn(nc, DefaultConfig())
	if _, err := c.handshake(typePub, time.Now().Add(10*time.Second)); err != nil {
		os.Exit(1)
	}
	many := bytes.Repeat(engineMessage(1024), 256)
	for err = nc.SetDeadline(time.Time{}); err == nil; {
		_, err = nc.Write(many)
	}
}

// BenchmarkReceive is one message of 1 KB from another process over loopback. cpu-ns/op is what this process spends on it,
// kernel included.
func BenchmarkReceive(b *testing.B) {
	begun, begin, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	n := -1
	s, err := NewSub(SubParams{Endpoint: "tcp://127.0.0.1:*", Bind: true, Config: DefaultConfig(), Receive: func(Peer, Message) {
		n++
		switch n {
		case 0:
			close(begun)
			<-begin
		case b.N:
			close(done)
		}
	}})
	if err != nil {
		b.Fatal(err)
	}
	ran := make(chan error)
	ctx, cancel := context.WithCancel(b.Context())
	go func() { ran <- s.Run(ctx) }()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), floodVariable+"="+strings.TrimPrefix(s.Endpoint(), "tcp://"))
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	<-begun
	b.SetBytes(1024)
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu()
	close(begin)
	<-done
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
	b.StopTimer()
	cancel()
	<-ran
	_ = child.Wait()
}

// BenchmarkParse is the reader alone, without a kernel.
func BenchmarkParse(b *testing.B) {
	r := &reader{src: &endless{unit: engineMessage(1024)}, limits: DefaultConfig().limits()}
	b.SetBytes(1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := r.next(); err != nil {
			b.Fatal(err)
		}
	}
}

// cpu is what this process has used.
func cpu() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
