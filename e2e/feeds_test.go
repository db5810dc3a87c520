package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// withEvents is an installation whose engines and attache know the same model, and whose engines tell of their caches. Workers
// are not looked at after the start: what is known of them is known by events. Envoy seldom checks attache, which a busy machine
// may keep from answering in time: every request must be decided on.
func withEvents(t *testing.T, engines int, args ...string) setup {
	t.Helper()
	dir, err := filepath.Abs("../internal/demo/model")
	if err != nil {
		t.Fatal(err)
	}
	return setup{
		mode: "ads", health: "5s", engines: engines, engineArgs: append([]string{"--model-dir", dir}, args...), extproc: "  include_usage: true\n",
		pool: fmt.Sprintf("  prompt: {model_dir: %q, block_tokens: %d}\n", dir, eventBlock),
		config: "workers:\n  health: {interval: 1h}\n  metrics: {busy_interval: 1h, idle_interval: 1h}\n" +
			"router: {recent: 1000, events: {verify_interval: 0s, silent_requests: 3}}\n",
		furnish: func(r *rig, e *engine) { e.tells(r.t, 1) },
	}
}

// startWithEvents is start, and waits until every engine is followed.
func startWithEvents(t *testing.T, s setup) *rig {
	t.Helper()
	r := start(t, s)
	r.eventually("the model is loaded", func() bool { return r.metric(`attache_prompt_model_loaded{pool="default"}`) == 1 })
	for _, e := range r.engines {
		for rank := range e.state(r).Ranks {
			r.eventually(fmt.Sprintf("rank %d of %s is followed", rank, e.name), func() bool { return r.mode(e, rank) == "exact" })
		}
	}
	return r
}

// publishes has an engine publish its events at a port, and replay them at another.
func (e *engine) publishes(events, replay int) {
	e.args = append(e.args, "--events", e.endpoint(events), "--replay", e.endpoint(replay))
}

func (e *engine) endpoint(port int) string {
	return "tcp://" + net.JoinHostPort(e.host, strconv.Itoa(port))
}

// tells has an engine of some ranks publish at ports of its own, and the workers file say so.
func (e *engine) tells(t *testing.T, ranks int) {
	events, replay := freePorts(t, ranks), freePorts(t, ranks)
	e.publishes(events, replay)
	e.worker = fmt.Sprintf(`, events: {endpoint: %q, replay: %q}`, e.endpoint(events), e.endpoint(replay))
}

func (e *engine) url() string { return "http://" + e.address() }

// engineState is what a simulated engine says of itself.
type engineState struct {
	Ranks []struct {
		Sequence int `json:"sequence"` // of the next batch, or event
		Pending  int `json:"pending"`  // changes of its cache that it has not told yet
	} `json:"ranks"`
}

func (e *engine) state(r *rig) engineState {
	r.t.Helper()
	text, err := readAll(e.url() + "/sim/state")
	var s engineState
	if err == nil {
		err = json.Unmarshal([]byte(text), &s)
	}
	if err != nil {
		r.t.Fatalf("the state of %s: %v", e.name, err)
	}
	return s
}

// post sends a command to a simulated engine.
func (r *rig) post(url, body string) {
	r.t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 {
		r.t.Fatalf("POST %s: status %d, %s", url, resp.StatusCode, text)
	}
}

// fault makes something wrong with an engine's events; "none" ends it.
func (r *rig) fault(e *engine, mode string, count int) {
	r.t.Helper()
	r.post(e.url()+"/sim/event-fault", fmt.Sprintf(`{"mode":%q,"count":%d}`, mode, count))
}

// feed is a figure of the feed that follows a rank; -1 when there is none.
func (r *rig) feed(e *engine, rank int, name string) float64 {
	return r.metric(fmt.Sprintf(`attache_events_%s{pool="default",rank="%d",worker=%q}`, name, rank, e.name))
}

// mode is how what a rank holds is known.
func (r *rig) mode(e *engine, rank int) string {
	for _, mode := range []string{"exact", "partial", "approximate"} {
		if r.metric(fmt.Sprintf(`attache_events_mode{mode=%q,pool="default",rank="%d",worker=%q}`, mode, rank, e.name)) == 1 {
			return mode
		}
	}
	return ""
}

// sum adds up the samples of a metric.
func (r *rig) sum(name string) (total float64) {
	text, err := readAll(r.admin + "/metrics")
	if err != nil {
		return -1
	}
	for line := range strings.SplitSeq(text, "\n") {
		if rest, ok := strings.CutPrefix(line, name+"{"); ok {
			var v float64
			if _, err := fmt.Sscan(rest[strings.LastIndex(rest, "}")+1:], &v); err == nil {
				total += v
			}
		}
	}
	return total
}

// heard waits until attache has applied all that engines have to tell at this moment.
func (r *rig) heard(engines ...*engine) {
	r.t.Helper()
	for _, e := range engines {
		for rank := range e.state(r).Ranks {
			r.soon(fmt.Sprintf("rank %d of %s has told all, and was heard", rank, e.name), func() bool {
				s := e.state(r).Ranks[rank]
				return s.Pending == 0 && (s.Sequence == 0 || r.feed(e, rank, "sequence") == float64(s.Sequence-1))
			})
		}
	}
}

// soon is eventually for what takes a millisecond.
func (r *rig) soon(what string, holds func() bool) {
	r.t.Helper()
	for began := time.Now(); time.Since(began) < wait/10; time.Sleep(time.Millisecond) {
		if holds() {
			return
		}
	}
	r.eventually(what, holds)
}

// decisions waits until the decisions on some requests have their reports.
func (r *rig) decisions(ids []string) map[string]decided {
	r.t.Helper()
	found := map[string]decided{}
	r.eventually(fmt.Sprintf("the decisions on %d requests have their reports", len(ids)), func() bool {
		var all []decided
		if r.api("decisions?limit=1000", &all) != nil {
			return false
		}
		for _, d := range all {
			if d.Outcome != "" {
				found[d.RequestID] = d
			}
		}
		return !slices.ContainsFunc(ids, func(id string) bool { return found[id].Outcome == "" })
	})
	for id := range found {
		if !slices.Contains(ids, id) {
			delete(found, id)
		}
	}
	return found
}

// talk is a conversation that grows by a question and the engine's own answer with every turn.
type talk struct {
	name, system, salt string
	long               bool // its questions are
	header             map[string]string
	messages           []map[string]string
}

// ask is the request of the next turn.
func (c *talk) ask(id string, stream bool) chatRequest {
	if c.messages == nil && c.system != "" {
		c.messages = append(c.messages, map[string]string{"role": "system", "content": c.system})
	}
	size := 500
	if c.long {
		size = 4_000
	}
	question := words(fmt.Sprintf("%s, question %d", c.name, len(c.messages)), size)
	c.messages = append(c.messages, map[string]string{"role": "user", "content": question})
	body := map[string]any{"model": model, "max_tokens": 40, "stream": stream, "messages": c.messages}
	if c.salt != "" {
		body["cache_salt"] = c.salt
	}
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	header := map[string]string{"x-request-id": id}
	maps.Copy(header, c.header)
	return chatRequest{raw: raw, stream: stream, header: header}
}

// turn sends the next turn to a server and takes the answer in.
func (c *talk) turn(r *rig, url, id string, stream bool) answer {
	r.t.Helper()
	a, err := send(r.t.Context(), url, c.ask(id, stream))
	if err != nil || a.status != 200 {
		r.t.Fatalf("%s: status %d, %v\n%s", id, a.status, err, a.text)
	}
	c.messages = append(c.messages, map[string]string{"role": "assistant", "content": a.said(stream)})
	return a
}

// said is the text that the assistant answered.
func (a answer) said(stream bool) string {
	type message struct {
		Content string `json:"content"`
	}
	var body struct {
		Choices []struct{ Message, Delta message }
	}
	if !stream {
		if json.Unmarshal([]byte(a.text), &body) != nil || len(body.Choices) != 1 {
			return ""
		}
		return body.Choices[0].Message.Content
	}
	var text strings.Builder
	for line := range strings.SplitSeq(a.text, "\n") {
		data, ok := strings.CutPrefix(line, "data: {")
		if !ok {
			continue
		}
		body.Choices = nil
		if json.Unmarshal([]byte("{"+data), &body) == nil && len(body.Choices) == 1 {
			text.WriteString(body.Choices[0].Delta.Content)
		}
	}
	return text.String()
}

// promptTokens is the length of the prompt, as the engine counted it in an answer that was no stream.
func (a answer) promptTokens(r *rig) int {
	r.t.Helper()
	var body struct {
		Usage struct {
			Prompt int `json:"prompt_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(a.text), &body); err != nil || body.Usage.Prompt == 0 {
		r.t.Fatalf("an answer without usage: %v\n%s", err, a.text)
	}
	return body.Usage.Prompt
}
