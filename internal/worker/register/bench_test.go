package register

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"attache/internal/worker"
)

// crowd is a gateway with a thousand workers, in a process-local store.
func crowd(b *testing.B) *Registrations {
	b.Helper()
	registry, err := worker.New(worker.DefaultConfig(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	r, err := New(Params{
		Config: worker.RegistrationConfig{TokenFile: tokenFile(b), TTL: time.Hour, MaxWorkers: 1000}, Store: NewLocal(), Registry: registry,
		Pools: []Pool{{Name: "default"}}, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 1000 {
		said := &Registration{Name: fmt.Sprint("gpu-", i), Address: fmt.Sprintf("10.0.%d.%d:8000", i/250, i%250+1), Labels: map[string]string{"zone": "a"}}
		if _, err := r.Register(b.Context(), said); err != nil {
			b.Fatal(err)
		}
	}
	return r
}

// BenchmarkPoll is what a gateway does twice a second, when nothing has changed.
func BenchmarkPoll(b *testing.B) {
	r := crowd(b)
	for b.Loop() {
		r.poll(b.Context())
	}
}

// BenchmarkHeartbeat is one of a thousand workers renewing its lease.
func BenchmarkHeartbeat(b *testing.B) {
	r := crowd(b)
	for b.Loop() {
		if _, err := r.Heartbeat(b.Context(), "gpu-7", &Heartbeat{Load: Load{Running: 3}}); err != nil {
			b.Fatal(err)
		}
	}
}
