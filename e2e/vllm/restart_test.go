package vllm

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// restart: one server is killed under load and comes back, empty, where it was. No client sees an error: what was not
// answered yet is repeated on the other server. What the killed one held is not counted on any more.
func restart(r *rig, name string) {
	const talks, tokens, clients = 6, 1000, 3
	killed := r.servers[0]
	talk := func(round, i int) chat {
		return chat{id: fmt.Sprintf("lasting-%d-round-%d", i, round), messages: []message{{"user", words(fmt.Sprintf("lasting-%d", i), tokens)}}}
	}
	// Half of the conversations are made to live on the server that will die.
	for i := range talks {
		r.on(r.servers[i%2], func() { r.ask(talk(0, i)) })
	}
	for i := range talks {
		r.ask(talk(1, i))
	}
	r.settle(name, true)

	stop := make(chan struct{})
	var wg sync.WaitGroup
	var sent atomic.Int32
	for range clients {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(200 * time.Millisecond): // leaves processor for the start
				}
				id := fmt.Sprintf("load-%d", sent.Add(1))
				r.ask(chat{id: id, messages: []message{{"user", words(id, tokens)}}, tokens: 100, unsettled: true})
			}
		})
	}
	r.within(wait, "requests run on the server to be killed", func() bool {
		return r.metric(fmt.Sprintf(`attache_router_in_flight{pool="default",worker=%q}`, killed.name)) > 0
	})
	const retried = `attache_router_retries_total{pool="default"}`
	before := max(r.metric(retried), 0)
	killed.kill(killed.Process)
	r.within(wait, "it is out", func() bool { return len(r.workers("ready")) == 1 })
	away := sent.Load()
	r.launch(killed)
	began := time.Now()
	r.awaitServer(killed)
	r.within(wait, "it is ready again", func() bool { return len(r.workers("ready")) == 2 })
	r.t.Logf("back after %s; %d requests were sent meanwhile", time.Since(began).Round(time.Second), sent.Load()-away)
	if sent.Load() == away {
		r.t.Error("no traffic while a server was away: nothing was shown")
	}
	close(stop)
	wg.Wait()
	if r.metric(retried) <= before {
		r.t.Error("no request was repeated on the other server: nothing was shown")
	}
	r.t.Logf("%v attempts were repeated", r.metric(retried)-before)

	for i := range talks {
		r.ask(talk(2, i))
	}
	decisions := r.settle(name, true)
	for i := 0; i < talks; i += 2 { // those that lived on the killed server
		d := decisions[talk(2, i).id]
		for _, c := range d.Candidates {
			if c.Worker == killed.name && c.CachedTokens > 0 {
				r.t.Errorf("%s is believed to hold %d tokens of conversation %d, which it lost", killed.name, c.CachedTokens, i)
			}
		}
	}
	r.usedAgain(name, killed)
}

// usedAgain sends new prompts, some at a time, until one was served by a server: idle as it is, that takes few.
func (r *rig) usedAgain(name string, s *server) {
	r.t.Helper()
	for round := range 5 {
		r.each(4, func(i int) chat {
			id := fmt.Sprintf("new-%d-%d", round, i)
			return chat{id: id, messages: []message{{"user", words(id, 1000)}}}
		})
		for _, d := range r.settle(name, true) {
			if d.Served == s.name {
				return
			}
		}
	}
	r.t.Errorf("%s is ready, but none of 20 new prompts was sent there", s.name)
}
