package vllm

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestRealEngines runs every scenario on one installation, because servers take a minute to start. What one leaves in
// their caches is part of the next one's world; texts are never shared.
func TestRealEngines(t *testing.T) {
	began := time.Now()
	r := start(t)
	t.Logf("both servers, attache and Envoy were up after %s", time.Since(began).Round(time.Second))
	for _, s := range []struct {
		name string
		run  func(r *rig, name string)
	}{
		{"conversations", conversations},
		{"salts", salts},
		{"eviction", eviction},
		{"past the gateway", strangers},
		{"restart", restart},
		{"cold and warm", coldAndWarm},
	} {
		t.Run(s.name, func(t *testing.T) {
			r.t = t
			s.run(r, s.name)
		})
	}
	r.t = t
	if n := r.metric(`attache_prompt_counts_total{pool="default",result="differ"}`); n != 0 {
		t.Errorf("%v token counts differ from the engines'", n)
	}
	t.Logf("%s\n%s", time.Since(began).Round(time.Second), &r.table)
}

// conversations: six that share a system prompt, three at a time, five turns each with the engine's own answers in them.
func conversations(r *rig, name string) {
	const talks, turns, parallel = 6, 5, 3
	system := message{"system", words("rules", 500)}
	for _, s := range r.servers {
		r.on(s, func() { r.ask(chat{id: "rules-" + s.name, messages: []message{system, {"user", "hello " + s.name}}}) })
	}
	var next atomic.Int32
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(func() {
			for talk := next.Add(1); talk <= talks; talk = next.Add(1) {
				messages := []message{system}
				for turn := range turns {
					id := fmt.Sprintf("talk-%d-turn-%d", talk, turn)
					messages = append(messages, message{"user", words(id, 150)})
					a := r.ask(chat{id: id, messages: messages, stream: turn%2 == 1, tokens: 24})
					messages = append(messages, message{"assistant", a.text})
				}
			}
		})
	}
	wg.Wait()
	r.settle(name, true)
}

// salts: one prompt, without a salt and under two, always on the same server: each shares with itself alone.
func salts(r *rig, name string) {
	const rounds = 3
	kinds := []string{"", "alpha", "beta"}
	id := func(salt string, round int) string { return fmt.Sprintf("salt-%s-%d", salt, round) }
	r.on(r.servers[0], func() {
		for round := range rounds {
			for _, salt := range kinds {
				r.ask(chat{id: id(salt, round), messages: []message{{"user", words("salted", 800)}}, salt: salt, stream: round%2 == 0})
			}
		}
	})
	decisions := r.settle(name, true)
	for round := range rounds {
		for _, salt := range kinds {
			d := decisions[id(salt, round)]
			if d.Delivered == nil {
				continue // reported by settle
			}
			if round == 0 && (d.captured() != 0 || *d.Delivered != 0) {
				r.t.Errorf("the first under salt %q: %d tokens captured, %d delivered, want none", salt, d.captured(), *d.Delivered)
			}
			if least := d.Prompt - 2*blockTokens; round > 0 && (d.captured() < least || *d.Delivered < least) {
				r.t.Errorf("again under salt %q: %d tokens captured, %d delivered of %d", salt, d.captured(), *d.Delivered, d.Prompt)
			}
		}
	}
}

// eviction: some conversations, again and again, and between them ever more others, up to more than both caches have room
// for. Answers take blocks, too, of which attache hears by events alone.
func eviction(r *rig, name string) {
	const olds, tokens = 6, 1000
	rounds := []int{0, 8, 16, 20, 22, 24, 26, 28, 30} // how many others come before; some 30 fill both caches
	old := func(round, i int) chat {
		return chat{id: fmt.Sprintf("old-%d-round-%d", i, round), messages: []message{{"user", words(fmt.Sprintf("old-%d", i), tokens)}}, stream: true}
	}
	for round, others := range rounds {
		r.each(others, func(i int) chat {
			id := fmt.Sprintf("other-%d-round-%d", i, round)
			return chat{id: id, messages: []message{{"user", words(id, tokens)}}, tokens: 40}
		})
		for i := range olds {
			r.ask(old(round, i))
		}
	}
	decisions := r.settle(name, withEvents)
	lost := 0
	for round := 1; round < len(rounds); round++ {
		for i := range olds {
			if d := decisions[old(round, i).id]; d.Delivered != nil && *d.Delivered < d.Prompt/2 {
				lost++
			}
		}
	}
	r.t.Logf("%d of %d times an old conversation had lost most of its blocks", lost, olds*(len(rounds)-1))
	if lost == 0 {
		r.t.Error("nothing was evicted, and nothing shown")
	}
}

// strangers: prompts that reach a server past the gateway, more than it has room for. Only the server can tell what it holds
// since, and what it does not any more.
func strangers(r *rig, name string) {
	const known, strange, tokens = 4, 18, 1000
	prompt := func(kind string, i int) chat {
		return chat{messages: []message{{"user", words(fmt.Sprintf("%s-%d", kind, i), tokens)}}, stream: true}
	}
	ask := func(kind string, i, round int) {
		c := prompt(kind, i)
		c.id = fmt.Sprintf("%s-%d-round-%d", kind, i, round)
		r.ask(c)
	}
	s := r.servers[0]
	r.on(s, func() {
		for i := range known {
			ask("known", i, 0)
		}
		for i := range strange {
			if _, err := r.send("http://"+s.address(), prompt("strange", i)); err != nil {
				r.t.Error(err)
			}
		}
		for i := range known {
			ask("known", i, 1)
		}
		for i := range known {
			ask("strange", strange-1-i, 1)
		}
	})
	r.settle(name, withEvents)
}

// coldAndWarm: what it saves to be sent where the prompt is.
func coldAndWarm(r *rig, name string) {
	const prompts = 6
	for i := range prompts {
		for _, round := range []string{"cold", "warm"} {
			r.ask(chat{id: fmt.Sprintf("%s-%d", round, i), messages: []message{{"user", words(fmt.Sprintf("story-%d", i), 3000)}}, stream: true})
		}
	}
	r.settle(name, true)
	row := r.row(name)
	if len(row.cold) != prompts || len(row.warm) != prompts {
		r.t.Errorf("%d cold and %d warm requests, want %d of each", len(row.cold), len(row.warm), prompts)
	} else if p50(row.warm) >= p50(row.cold) {
		r.t.Errorf("a cached prompt's first token took %s, a new one's %s", p50(row.warm), p50(row.cold))
	}
}
