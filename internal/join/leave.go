package join

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// leave lets the engine go: nothing new, then what runs, then goodbye. Gateways that do not answer hold nobody up; the lease ends there by
// itself.
func (j *Joiner) leave(ctx context.Context) error {
	var known []*member
	for _, m := range j.members {
		if m.told != nil || m.unsure {
			known = append(known, m)
		}
	}
	if len(known) == 0 {
		return nil
	}
	j.log.Info("draining: gateways send nothing new, and what runs finishes", "at_most", j.cfg.DrainTimeout.String())
	left := j.drained(ctx, known)
	var failures []error
	for _, m := range known {
		within, cancel := context.WithTimeout(ctx, leaveTimeout)
		err := m.gateway.deregister(within, j.said.Name)
		cancel()
		if err != nil && !forgotten(err) {
			failures = append(failures, fmt.Errorf("%s: %w", m.gateway.base, err))
			j.log.Warn("the gateway cannot be told that the worker leaves; its lease ends by itself", "gateway", m.gateway.base,
				"because", err)
		}
	}
	switch {
	case len(failures) == len(known):
		return fmt.Errorf("no gateway could be told that the worker leaves; its leases end by themselves:\n%w", errors.Join(failures...))
	case left > 0:
		return fmt.Errorf("the worker has left with %d requests still running after %s", left, j.cfg.DrainTimeout)
	}
	j.log.Info("left")
	return nil
}

// drained waits until nothing has run for a while, and says how much still runs when that takes too long.
func (j *Joiner) drained(ctx context.Context, known []*member) (left int) {
	end := time.Now().Add(j.cfg.DrainTimeout)
	var quiet time.Time // since when
	for {
		left = j.running(ctx, known)
		now := time.Now()
		switch {
		case left > 0:
			quiet = time.Time{}
		case quiet.IsZero():
			quiet = now
		case now.Sub(quiet) >= j.pace.settle:
			return 0
		}
		if !now.Before(end) {
			return left
		}
		pause(ctx, min(j.pace.drain, end.Sub(now)))
	}
}

// leaveTimeout bounds one question to a gateway while the worker leaves: others wait.
const leaveTimeout = 2 * time.Second

// running is how many requests the engine has, by its own word or by that of the gateways, each of which knows of those that it sent.
// Asking keeps the leases and the drain.
func (j *Joiner) running(ctx context.Context, known []*member) int {
	sent, own := 0, 0
	for _, m := range known {
		within, cancel := context.WithTimeout(ctx, leaveTimeout)
		lease, err := m.gateway.drain(within, j.said.Name)
		cancel()
		if err == nil {
			sent += lease.InFlight
		} else if text := err.Error(); !forgotten(err) && text != m.failure {
			m.failure = text
			j.log.Warn("the gateway does not answer while the worker leaves", "gateway", m.gateway.base, "because", err)
		}
	}
	if stats, err := j.engine.stats(ctx); err == nil {
		own = stats.Running + stats.Waiting
	}
	return max(sent, own)
}
