package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// queueing is a rig in which each engine takes one request at a time, the others wait, and clients are believed. A held engine
// writes ten tokens a second, so that a stream lasts until its client leaves.
func queueing(body string, engines int, more string) setup {
	return setup{
		mode: "ads", body: body, engines: engines, engineArgs: []string{"--min-step", "100ms"},
		extproc: "  hints: {trust: [all]}\n",
		config:  "router:\n  max_in_flight: 1\n" + more,
	}
}

// longQueue is a queue for a hundred requests, with classes of every kind.
const longQueue = `  queue:
    limits: {requests: 100, max_wait: 60s}
    classes:
    - {name: plain}
    - {name: deadlines, policy: edf}
    - {name: tenants, fair: true}
    - {name: hasty, limits: {max_wait: 500ms}}
    - {name: small, limits: {requests: 1}}
`

const classHeader = "x-dynamo-meta-policy-class"

// hold sends a request whose answer goes on until release is called, and returns once the answer has begun.
func (r *rig) hold(header map[string]string) (release func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	body := chatRequest{prompt: "hold", tokens: 100_000, stream: true}.body()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	release = sync.OnceFunc(func() { cancel(); resp.Body.Close() })
	r.t.Cleanup(release)
	if n, err := resp.Body.Read(make([]byte, 1)); resp.StatusCode != 200 || n == 0 {
		r.t.Fatalf("nothing to hold: status %d, %v", resp.StatusCode, err)
	}
	return release
}

// booked is how many requests are booked on all workers.
func (r *rig) booked() (n int) {
	for _, e := range r.engines {
		n += r.inFlight(e.name)
	}
	return n
}

func (r *rig) depth() int { return int(r.metric(`attache_router_queue_depth{pool="default"}`)) }

// queued is a request in the queue, whose answer comes later.
type queued struct {
	leave context.CancelFunc
	over  chan struct{}
	a     answer // once over is closed
	err   error
}

// queue sends a request that finds no room, and returns once it waits.
func (r *rig) queue(c chatRequest) *queued {
	r.t.Helper()
	before := r.depth()
	q := r.send(c)
	r.eventually("the request waits", func() bool { return r.depth() == before+1 })
	return q
}

func (r *rig) send(c chatRequest) *queued {
	ctx, cancel := context.WithCancel(r.t.Context())
	q := &queued{leave: cancel, over: make(chan struct{})}
	go func() {
		defer close(q.over)
		defer cancel()
		q.a, q.err = r.chat(ctx, c)
	}()
	return q
}

// answer waits for the answer.
func (q *queued) answer(r *rig) answer {
	r.t.Helper()
	select {
	case <-q.over:
	case <-time.After(4 * wait):
		r.t.Fatalf("no answer in %s", 4*wait)
	}
	return q.a
}

// served waits for the answer, which must be a worker's.
func (q *queued) served(r *rig) answer {
	r.t.Helper()
	a := q.answer(r)
	if q.err != nil || a.status != 200 {
		r.t.Errorf("status %d, %v: %s", a.status, q.err, a.text)
	}
	return a
}

// shed waits for the answer, which must be ours: 429 for a reason.
func (q *queued) shed(r *rig, reason, text string) {
	r.t.Helper()
	a := q.answer(r)
	if a.status != 429 || a.header.Get("x-llm-d-request-dropped-reason") != reason {
		r.t.Errorf("status %d, %v, reason %q, want 429, %s", a.status, q.err, a.header.Get("x-llm-d-request-dropped-reason"), reason)
	}
	if after, err := strconv.Atoi(a.header.Get("retry-after")); err != nil || after < 1 {
		r.t.Errorf("retry-after %q", a.header.Get("retry-after"))
	}
	if a.header.Get("content-type") != "application/json" || !strings.HasPrefix(a.text, `{"error":{`) || !strings.Contains(a.text, text) {
		r.t.Errorf("%s\nwant %s", a.text, text)
	}
}

// order is in which order the requests of these ids were decided on.
func (r *rig) order(ids []string) (order []string) {
	r.t.Helper()
	r.decisions(ids)
	var all []decided // the last one first
	if err := r.api("decisions?limit=1000", &all); err != nil {
		r.t.Fatal(err)
	}
	for _, d := range slices.Backward(all) {
		if slices.Contains(ids, d.RequestID) {
			order = append(order, d.RequestID)
		}
	}
	return order
}

// TestTheQueuesOrder: requests wait for the one worker, and go on in the order of their tiers, priorities, deadlines and shares.
func TestTheQueuesOrder(t *testing.T) {
	r := start(t, queueing("BUFFERED", 1, longQueue))
	type arrival struct {
		id     string
		header map[string]string
		body   string // members
	}
	strict := func(tier string) map[string]string {
		return map[string]string{"x-dynamo-request-strict-priority": tier}
	}
	slo := func(ms string) map[string]string {
		return map[string]string{classHeader: "deadlines", "x-llm-d-slo-ttft-ms": ms}
	}
	tenant := func(name string) map[string]string {
		return map[string]string{classHeader: "tenants", "x-llm-d-inference-fairness-id": name}
	}
	agent := func(priority int) string { return fmt.Sprintf(`,"nvext":{"agent_hints":{"priority":%d}}`, priority) }
	for _, c := range []struct {
		name string
		come []arrival
		want string
	}{
		{"first come, first served", []arrival{{"f1", nil, ""}, {"f2", nil, ""}, {"f3", nil, ""}}, "f1 f2 f3"},
		{"strict tiers", []arrival{{"low", nil, ""}, {"middle", strict("1"), ""}, {"high", strict("2"), ""}}, "high middle low"},
		{"priorities of nvext", []arrival{{"p0", nil, ""}, {"p20", nil, agent(20)}, {"p55", nil, agent(55)}}, "p55 p20 p0"},
		{"the earliest deadline", []arrival{{"d60", slo("60000"), ""}, {"d40", slo("40000"), ""}, {"d20", slo("20000"), ""}}, "d20 d40 d60"},
		{"shares of tenants", []arrival{{"a1", tenant("a"), ""}, {"a2", tenant("a"), ""}, {"a3", tenant("a"), ""}, {"a4", tenant("a"), ""},
			{"b1", tenant("b"), ""}, {"b2", tenant("b"), ""}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			release := r.hold(nil)
			var ids []string
			var all []*queued
			for _, a := range c.come {
				header := map[string]string{"x-request-id": a.id}
				for k, v := range a.header {
					header[k] = v
				}
				ids = append(ids, a.id)
				all = append(all, r.queue(chatRequest{header: header, raw: fmt.Appendf(nil,
					`{"model":%q,"max_tokens":1,"messages":[{"role":"user","content":"hello %s"}]%s}`, model, a.id, a.body)}))
			}
			release()
			for _, q := range all {
				q.served(r)
			}
			got := r.order(ids)
			if c.want != "" {
				if strings.Join(got, " ") != c.want {
					t.Errorf("served %v, want %s", got, c.want)
				}
				return
			}
			// Reports of what was served come when they come: whose turn it is between equals is open, shares are not.
			if early := got[:4]; !slices.Contains(early, "b1") || !slices.Contains(early, "b2") {
				t.Errorf("served %v: the second tenant has no share", got)
			}
		})
	}
}

// TestTurnedAwayFromTheQueue: a queue that is full, a wait that is over and a deadline that passes are answered by us, each with its
// reason, and with what to do.
func TestTurnedAwayFromTheQueue(t *testing.T) {
	for _, body := range []string{"BUFFERED", "FULL_DUPLEX_STREAMED"} {
		t.Run(body, func(t *testing.T) {
			r := start(t, queueing(body, 1, longQueue))
			release := r.hold(nil)
			in := func(class string) map[string]string { return map[string]string{classHeader: class} }
			waits := r.queue(chatRequest{prompt: "waits", header: in("small")})
			r.send(chatRequest{prompt: "one too many", header: in("small")}).
				shed(r, "rejected-saturated", `its queue is full: class \"small\": requests: 1 waiting, at most 1; try again in `)
			r.send(chatRequest{prompt: "hasty", header: in("hasty")}).
				shed(r, "rejected-ttl-expired", `had room for the request as long as it was allowed to wait; try again in `)
			r.send(chatRequest{raw: fmt.Appendf(nil, `{"model":%q,"max_tokens":1,"messages":[{"role":"user","content":"soon"}],`+
				`"vllm_xargs":{"agentic_context":{"deadline_seconds":1}}}`, model)}).
				shed(r, "rejected-ttl-expired", `had room for the request as long as it was allowed to wait; try again in `)
			if n := r.depth(); n != 1 {
				t.Errorf("%d requests wait, want the one that still may", n)
			}
			release()
			waits.served(r)
			for reason, want := range map[string]float64{"rejected-saturated": 1, "rejected-ttl-expired": 2} {
				if n := r.metric(fmt.Sprintf(`attache_router_dropped_total{pool="default",reason=%q}`, reason)); n != want {
					t.Errorf("%v dropped as %s, want %v", n, reason, want)
				}
			}
		})
	}
}

// TestLeavingTheQueue: a client that leaves while it waits frees its place, and the others go on.
func TestLeavingTheQueue(t *testing.T) {
	for _, body := range []string{"BUFFERED", "FULL_DUPLEX_STREAMED"} {
		t.Run(body, func(t *testing.T) {
			r := start(t, queueing(body, 1, longQueue))
			release := r.hold(nil)
			var all []*queued
			for i := range 3 {
				all = append(all, r.queue(chatRequest{prompt: fmt.Sprint("hello ", i)}))
			}
			all[1].leave()
			r.eventually("its place is free", func() bool { return r.depth() == 2 })
			if n := r.metric(`attache_router_dropped_total{pool="default",reason="rejected-context-cancelled"}`); n != 1 {
				t.Errorf("%v clients that left are counted", n)
			}
			release()
			all[0].served(r)
			all[2].served(r)
			r.eventually("nothing is booked", func() bool { return r.booked() == 0 && r.depth() == 0 })
		})
	}
}

// TestHeldForLongerThanAMessage: Envoy waits longer for the decision on a request in the queue than for other messages, because it is
// asked to. Without that the request would go to a worker without a decision.
func TestHeldForLongerThanAMessage(t *testing.T) {
	for _, body := range []string{"BUFFERED", "FULL_DUPLEX_STREAMED"} {
		t.Run(body, func(t *testing.T) {
			s := queueing(body, 1, longQueue)
			const patience = 2 * time.Second
			s.gateway = fmt.Sprintf("    message_timeout: %s\n", patience)
			r := start(t, s)
			release := r.hold(nil)
			decided := r.metric(`attache_router_decisions_total{pool="default"}`)
			asked := r.metric("attache_extproc_held_total")
			held := r.queue(chatRequest{prompt: "held"})
			time.Sleep(2 * patience)
			select {
			case <-held.over:
				t.Fatalf("it was not held: status %d, %s", held.a.status, held.a.text)
			default:
			}
			release()
			held.served(r)
			if n := r.metric(`attache_router_decisions_total{pool="default"}`); n != decided+1 {
				t.Errorf("%v decisions were made on it", n-decided)
			}
			want := map[string]float64{"BUFFERED": 1}[body]
			if n := r.metric("attache_extproc_held_total") - asked; n != want {
				t.Errorf("Envoy was asked %v times for time, want %v", n, want)
			}
		})
	}
}

// TestAWorkerThatJoinsServesTheQueue, and one that goes while requests wait turns nobody away.
func TestAWorkerThatJoinsServesTheQueue(t *testing.T) {
	r := start(t, queueing("BUFFERED", 1, longQueue))
	r.hold(nil)
	waits := r.queue(chatRequest{prompt: "waits"})
	joined := r.addEngine("joined")
	r.writeWorkers(r.engines, nil)
	if a := waits.served(r); a.engine != joined.name {
		t.Errorf("served by %s", a.engine)
	}
}
