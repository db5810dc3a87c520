package sim

import (
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"attache/internal/block"
)

// arena plays a load against engines in virtual time: the same cores, workload and pacing as RunLoad has over HTTP.
type arena struct {
	load    Load
	engine  Config
	cores   []*Core
	choose  func(c *conversation, request int) int
	now     time.Duration
	nextID  uint64
	flights map[uint64]*flight
	busy    []time.Duration // when each core's step ends; forever without one
	pending [][]Event
	results []result
	work    []time.Duration
}

type flight struct {
	slot   int
	conv   *conversation
	job    *job
	engine int
	began  time.Duration
	result result
}

const forever = time.Duration(math.MaxInt64)

// play returns the report of the load with engines chosen by choose.
func play(load Load, engine Config, engines int, choose func(c *conversation, request int) int) (Report, []time.Duration) {
	a := &arena{load: load, engine: engine, choose: choose, flights: map[uint64]*flight{}, work: make([]time.Duration, engines)}
	for range engines {
		a.cores = append(a.cores, NewCore(engine))
		a.busy = append(a.busy, forever)
		a.pending = append(a.pending, nil)
	}
	starts := make([]time.Duration, load.Conversations)
	convs := make([]*conversation, load.Conversations)
	generation := make([]int, load.Conversations)
	for i := range starts {
		starts[i] = load.firstWave(i)
		convs[i] = load.conversation(i, true)
	}
	for {
		slot, core := -1, slices.Index(a.busy, slices.Min(a.busy))
		at := a.busy[core]
		for i, s := range starts {
			if s < at && s < load.Duration {
				slot, at = i, s
			}
		}
		if at == forever {
			break
		}
		a.now = at
		if slot >= 0 {
			starts[slot] = forever
			a.send(slot, convs[slot])
			continue
		}
		for _, e := range a.pending[core] {
			f := a.flights[e.ID]
			if e.Token == 1 {
				f.result.TTFT = a.now - f.began
				f.result.Usage.CachedTokens = e.Cached
			}
			if !e.Last {
				continue
			}
			delete(a.flights, e.ID)
			f.result.Duration = a.now - f.began
			a.results = append(a.results, f.result)
			think, ok := f.conv.next(f.job.text())
			starts[f.slot] = a.now + think
			if !ok {
				generation[f.slot]++
				convs[f.slot] = load.conversation(f.slot + generation[f.slot]*load.Conversations, false)
				starts[f.slot] = load.nextWave(a.now)
			}
		}
		a.step(core)
	}
	return report(a.results, a.now), a.work
}

func (a *arena) send(slot int, c *conversation) {
	t := newTokenizer(a.engine.BlockTokens, block.Seed(a.engine.Model, ""), a.engine.window()-1)
	t.conversation("", c.messages, true)
	j := &job{prompt: t.n, output: c.output, words: scramble(t.mix)}
	t.limit = j.prompt + j.output
	for i := range j.output {
		t.text(word(j.words, i))
	}
	a.nextID++
	f := &flight{slot: slot, conv: c, job: j, began: a.now, engine: a.choose(c, int(a.nextID))}
	f.result.Usage.PromptTokens, f.result.Usage.CompletionTokens, f.result.Status = j.prompt, j.output, 200
	a.flights[a.nextID] = f
	if err := a.cores[f.engine].Submit(a.now, Request{ID: a.nextID, Prompt: j.prompt, Output: j.output, Chain: t.chain.Sum()}); err != nil {
		panic(err)
	}
	if a.busy[f.engine] == forever {
		a.step(f.engine)
	}
}

func (a *arena) step(core int) {
	took, events := a.cores[core].Step(a.now)
	a.pending[core] = slices.Clone(events)
	a.busy[core] = a.now + took
	if took == 0 {
		a.busy[core] = forever
	}
	a.work[core] += took
}

func TestExplore(t *testing.T) {
	if os.Getenv("SIM_EXPLORE") == "" {
		t.Skip()
	}
	load, engine := DemoLoad(), DemoEngine()
	load.Duration = 10 * time.Second
	const n = 4
	for seed := range uint64(3) {
		load.Seed = seed
		began := time.Now()
		rr, w1 := play(load, engine, n, func(_ *conversation, request int) int { return request % n })
		st, w2 := play(load, engine, n, func(c *conversation, _ int) int { return c.number % n })
		t.Logf("rr     %+v busy %.2f", rr, w1[0].Seconds()/20)
		t.Logf("sticky %+v busy %.2f", st, w2[0].Seconds()/20)
		t.Logf("cached x%.2f ttft x%.2f (%s)", st.CachedShare/rr.CachedShare, st.TTFTMeanS/rr.TTFTMeanS, time.Since(began))
	}
}
