package gateway

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"attache/internal/sim/trace"
	"attache/internal/sim/virtual"
	"attache/internal/slot"
	"attache/scoring"
	"attache/scoring/queue"
)

// playReplicas plays a workload through so many gateways.
func playReplicas(t *rapid.T, n int, delay time.Duration, o Options, cfg virtual.Config, w *trace.Workload) (*Replicas, *virtual.Result) {
	c, err := virtual.New(cfg, w)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReplicas(n, delay, o, c, w)
	if err != nil {
		t.Fatal(err)
	}
	result, err := c.Run(r)
	if err != nil {
		t.Fatal(err)
	}
	return r, result
}

// TestReplicasKnowTheSame: when all is over and told, no replica has anything booked, and all have learnt the same.
func TestReplicasKnowTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, o, cfg := drawWorkload(t, 4), drawOptions(t, false), drawCluster(t, 4)
		n, delay := rapid.IntRange(2, 4).Draw(t, "replicas"), time.Duration(rapid.IntRange(0, 200).Draw(t, "delay"))*time.Millisecond
		r, _ := playReplicas(t, n, delay, o, cfg, w)
		r.catchUp(time.Hour)
		for i, g := range r.all {
			for s := range cfg.Workers {
				if l := g.scorer.Load(slot.Slot(s)); l.InFlight != 0 || l.ActiveBlocks != 0 || l.QueueSeconds != 0 {
					t.Fatalf("all is over, replica %d has %+v booked on worker %d", i, l, s)
				}
			}
			for k, b := range g.bookings {
				if b != nil {
					t.Fatalf("request %d is over, replica %d has it booked", k, i)
				}
			}
			if len(g.heard) > 0 {
				t.Fatalf("all is over, replica %d has %d requests of others", i, len(g.heard))
			}
		}
	})
}

// TestOneReplicaIsAGateway: it decides as one does that is alone.
func TestOneReplicaIsAGateway(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, o, cfg := drawWorkload(t, 4), drawOptions(t, false), drawCluster(t, 4)
		_, got := playReplicas(t, 1, time.Second, o, cfg, w)
		c, err := virtual.New(cfg, w)
		if err != nil {
			t.Fatal(err)
		}
		g, err := New(o, c, w)
		if err != nil {
			t.Fatal(err)
		}
		want, err := c.Run(g)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := got.Summary(0, virtual.Limits{}), want.Summary(0, virtual.Limits{}); !reflect.DeepEqual(a, b) {
			t.Fatalf("one of one: %+v, alone: %+v", a, b)
		}
	})
}

func TestReplicasWithQueuesAreRefused(t *testing.T) {
	o := Options{Scoring: scoring.DefaultConfig(), Queue: queue.DefaultConfig(), Limits: scoring.Limits{InFlight: 1}}
	o.Queue.Limits.Requests = 10
	w := &trace.Workload{BlockTokens: 4}
	c, err := virtual.New(virtual.Config{Workers: 1}, w)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewReplicas(2, 0, o, c, w); err == nil {
		t.Error("replicas with queues were taken")
	}
}
