package sim

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"
)

// arena plays a load against engines in virtual time: the same core, workload and pacing as RunLoad has over HTTP.
type arena struct {
	load    Load
	choose  chooser
	engines []*arenaEngine
	agents  []*arenaAgent
	now     time.Duration
	nextID  uint64
	asking  map[uint64]*arenaAgent
	results []result
}

// chooser picks the engine of a request: the request's number from 0, and the conversation's.
type chooser func(request, conversation, engines int) int

func roundRobin(request, _, engines int) int { return request % engines }

// sticky is a naive form of prefix-aware routing: a conversation stays where it began.
func sticky(_, conversation, engines int) int { return conversation % engines }

type arenaEngine struct {
	*Core

	cfg     Config
	end     time.Duration // of its step; never without one
	pending []Event       // what that brings
	busy    time.Duration
}

type arenaAgent struct {
	*conversation

	start  time.Duration // of the next turn; never while asking
	began  time.Duration
	job    *job
	result result
}

const never = time.Duration(math.MaxInt64)

// play returns the report of a load on some engines, and the share of time for which these were busy.
func play(t *testing.T, load Load, cfg Config, engines int, choose chooser) (Report, float64) {
	t.Helper()
	a := &arena{load: load, choose: choose, asking: map[uint64]*arenaAgent{}}
	for range engines {
		a.engines = append(a.engines, &arenaEngine{Core: NewCore(cfg), cfg: cfg, end: never})
	}
	for i := range load.Conversations {
		a.agents = append(a.agents, &arenaAgent{conversation: load.conversation(i, true), start: load.firstWave(i)})
	}
	for {
		engine := slices.MinFunc(a.engines, func(a, b *arenaEngine) int { return int(a.end - b.end) })
		agent := slices.MinFunc(a.agents, func(a, b *arenaAgent) int { return int(a.start - b.start) })
		switch {
		case agent.start < min(engine.end, load.Duration):
			a.now = agent.start
			a.ask(t, agent)
		case engine.end < never:
			a.now = engine.end
			a.hear(engine)
		default:
			busy := time.Duration(0)
			for _, e := range a.engines {
				busy += e.busy
			}
			return report(a.results, a.now), busy.Seconds() / a.now.Seconds() / float64(engines)
		}
	}
}

func (a *arena) ask(t *testing.T, agent *arenaAgent) {
	e := a.engines[a.choose(int(a.nextID), agent.number, len(a.engines))]
	raw, err := json.Marshal(map[string]any{"messages": agent.messages, "max_tokens": agent.output})
	if err != nil {
		t.Fatal(err)
	}
	if agent.job, err = e.cfg.parse(raw, chat); err != nil {
		t.Fatal(err)
	}
	agent.start, agent.began, agent.result = never, a.now, result{}
	if err := e.Submit(a.now, Request{ID: a.nextID, Prompt: agent.job.prompt, Output: agent.job.output, Chain: agent.job.chain}); err != nil {
		t.Fatal(err)
	}
	a.asking[a.nextID] = agent
	a.nextID++
	if e.end == never {
		e.step(a.now)
	}
}

func (a *arena) hear(e *arenaEngine) {
	for _, ev := range e.pending {
		agent := a.asking[ev.ID]
		if ev.Token == 1 {
			agent.result.TTFT = a.now - agent.began
			agent.result.Usage.PromptTokens, agent.result.Usage.CachedTokens = agent.job.prompt, ev.Cached
		}
		if !ev.Last {
			continue
		}
		delete(a.asking, ev.ID)
		a.results = append(a.results, agent.result)
		think, ok := agent.next(agent.job.text())
		if agent.start = a.now + think; !ok {
			agent.conversation = a.load.conversation(agent.number+a.load.Conversations, false)
			agent.start = a.load.nextWave(a.now)
		}
	}
	e.step(a.now)
}

func (e *arenaEngine) step(now time.Duration) {
	took, events := e.Step(now)
	e.busy += took
	if e.end, e.pending = now+took, slices.Clone(events); took == 0 {
		e.end = never
	}
}

// What the demo shows is no accident of one seed: with the demo's engines and load, keeping conversations where their
// prefix is reuses at least twice as many prompt tokens as round robin, and at most 0.6 of its mean time to first token.
func TestDemoLoadRewardsPrefixes(t *testing.T) {
	load, engine := DemoLoad(), DemoEngine()
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for load.Seed = range seeds {
		base, baseBusy := play(t, load, engine, 4, roundRobin)
		kept, keptBusy := play(t, load, engine, 4, sticky)
		reuse, ttft := kept.CachedShare/base.CachedShare, kept.TTFTMeanS/base.TTFTMeanS
		t.Logf("seed %d: cached %.3f -> %.3f (x%.2f), mean TTFT %3.0f -> %3.0f ms (x%.2f), p99 %.0f -> %.0f ms, %.1f -> %.1f requests/s, busy %.2f -> %.2f",
			load.Seed, base.CachedShare, kept.CachedShare, reuse, 1000*base.TTFTMeanS, 1000*kept.TTFTMeanS, ttft,
			1000*base.TTFTP99S, 1000*kept.TTFTP99S, base.RequestsPerS, kept.RequestsPerS, baseBusy, keptBusy)
		if reuse < 2 || ttft > 0.6 {
			t.Errorf("seed %d: reuse x%.2f, want at least 2; mean TTFT x%.2f, want at most 0.6", load.Seed, reuse, ttft)
		}
		if max(base.RequestsPerS, kept.RequestsPerS) > 60 {
			t.Errorf("seed %d: %.0f requests a second are too many for a small machine", load.Seed, max(base.RequestsPerS, kept.RequestsPerS))
		}
	}
}
