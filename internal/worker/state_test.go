package worker

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestLife plays what happens to one worker and checks the state that follows from it. A script's line is
// "event -> state: cause"; the events are those of play.
func TestLife(t *testing.T) {
	for name, script := range map[string]string{
		"a worker is used after its first good check": `
			nothing -> starting: waiting for its first health check
			healthy -> ready:`,
		"one missed answer is not the end, two are": `
			healthy -> ready:
			slow -> ready:
			slow -> unhealthy: no answer
			healthy -> ready:`,
		"a good check in between starts the count again": `
			healthy -> ready:
			slow -> ready:
			healthy -> ready:
			slow -> ready:`,
		"a refused connection needs no second look": `
			healthy -> ready:
			refused -> unhealthy: connection refused
			healthy -> ready:
			epoch 1`,
		"a slow worker that comes back was not gone, so its cache is still there": `
			healthy -> ready:
			slow -> ready:
			slow -> unhealthy: no answer
			healthy -> ready:
			epoch 0`,
		"a restart between two checks shows in its metrics": `
			healthy -> ready:
			started at 100 -> ready:
			started at 100 -> ready:
			epoch 0
			started at 200 -> ready:
			epoch 1`,
		"a restart that both the check and the metrics show counts once": `
			healthy -> ready:
			started at 100 -> ready:
			refused -> unhealthy: connection refused
			started at 200 -> unhealthy: connection refused
			healthy -> ready:
			epoch 1`,
		"and it does not matter which of them comes first": `
			healthy -> ready:
			started at 100 -> ready:
			refused -> unhealthy: connection refused
			healthy -> ready:
			started at 200 -> ready:
			epoch 1`,
		"a worker that cannot be reached is out at once and back after a check": `
			healthy -> ready:
			connect -> suspect: requests could not reach it
			healthy -> ready:`,
		"three broken requests in a row open the circuit, and a good check does not close it": `
			healthy -> ready:
			reset -> ready:
			reset -> ready:
			reset -> suspect: 3 requests in a row broke off on it
			healthy -> suspect: 3 requests in a row broke off on it
			1s -> ready:`,
		"a good request in between starts the count again": `
			healthy -> ready:
			reset -> ready:
			reset -> ready:
			ok -> ready:
			reset -> ready:
			reset -> ready:`,
		"the pause doubles while the tries fail, and is forgotten when one succeeds": `
			healthy -> ready:
			connect -> suspect: requests could not reach it
			1s -> ready:
			connect -> suspect: requests could not reach it
			1s -> suspect: requests could not reach it
			1s -> ready:
			ok -> ready:
			connect -> suspect: requests could not reach it
			1s -> ready:`,
		"the pause has an end, however often it failed": `
			healthy -> ready:
			connect -> suspect: requests could not reach it
			1s -> ready:
			connect -> suspect: requests could not reach it
			2s -> ready:
			connect -> suspect: requests could not reach it
			4s -> ready:
			connect -> suspect: requests could not reach it
			4s -> ready:`,
		"late news of what opened the circuit do not lengthen the pause": `
			healthy -> ready:
			connect -> suspect: requests could not reach it
			connect -> suspect: requests could not reach it
			1s -> ready:`,
		"a worker waits until Envoy knows its address": `
			gate on -> starting: waiting for its first health check
			healthy -> syncing: Envoy has not acknowledged its address yet
			1s -> syncing: Envoy has not acknowledged its address yet
			known -> ready:`,
		"an Envoy that never answers does not keep a worker out for ever": `
			gate on -> starting: waiting for its first health check
			healthy -> syncing: Envoy has not acknowledged its address yet
			2s -> ready:`,
		"an Envoy that connects later does not take out who serves already": `
			healthy -> ready:
			gate on -> ready:`,
		"draining wins over everything, and ends": `
			healthy -> ready:
			drained by hand -> draining: drained by an operator
			refused -> draining: drained by an operator
			given back -> unhealthy: connection refused
			healthy -> ready:
			drained by discovery -> draining: drained by discovery
			kept by discovery -> ready:`,
		"a worker without a health check is used, with a remark": `
			no such page -> ready: it answers, but has no health check`,
		"a down worker is unhealthy, whatever requests say": `
			healthy -> ready:
			refused -> unhealthy: connection refused
			ok -> unhealthy: connection refused
			reset -> unhealthy: connection refused`,
	} {
		t.Run(name, func(t *testing.T) {
			p := player{now: time.Unix(1_000_000, 0), gate: gate{timeout: 2 * time.Second}}
			for i, line := range strings.Split(strings.TrimSpace(script), "\n") {
				event, want, _ := strings.Cut(strings.TrimSpace(line), " -> ")
				if n, ok := strings.CutPrefix(event, "epoch "); ok {
					if got := fmt.Sprint(p.epoch); got != n {
						t.Fatalf("line %d: epoch %s, want %s", i+1, got, n)
					}
					continue
				}
				if err := p.play(event); err != nil {
					t.Fatalf("line %d: %v", i+1, err)
				}
				state, cause := p.state(p.gate, p.now)
				if got := strings.TrimSpace(fmt.Sprintf("%s: %s", state, cause)); got != strings.TrimSpace(want) {
					t.Fatalf("line %d: after %q\n got %s\nwant %s", i+1, event, got, want)
				}
			}
		})
	}
}

// player applies the events of a script to the facts of one worker.
type player struct {
	facts

	now  time.Time
	gate gate
}

func (p *player) play(event string) error {
	cfg := DefaultConfig()
	cfg.Circuit.MaxPause = 4 * time.Second
	switch event {
	case "nothing":
	case "healthy":
		p.check(health{ok: true}, cfg.Health)
	case "no such page":
		p.check(health{ok: true, cause: "it answers, but has no health check"}, cfg.Health)
	case "slow":
		p.check(health{cause: "no answer"}, cfg.Health)
	case "refused":
		p.check(health{refused: true, cause: "connection refused"}, cfg.Health)
	case "ok":
		p.circuit.report(Outcome{OK: true}, cfg.Circuit, p.now)
	case "connect":
		p.circuit.report(Outcome{Kind: Connect}, cfg.Circuit, p.now)
	case "reset":
		p.circuit.report(Outcome{Kind: Reset}, cfg.Circuit, p.now)
	case "gate on":
		p.gate.on = true
	case "known":
		p.gate.known = true
	case "drained by hand":
		p.drainByHand = true
	case "given back":
		p.drainByHand = false
	case "drained by discovery":
		p.drain = true
	case "kept by discovery":
		p.drain = false
	default:
		var start float64
		if n, _ := fmt.Sscanf(event, "started at %g", &start); n == 1 {
			p.restarted(start)
			return nil
		}
		pause, err := time.ParseDuration(event)
		if err != nil {
			return fmt.Errorf("unknown event %q", event)
		}
		p.now = p.now.Add(pause)
	}
	return nil
}
