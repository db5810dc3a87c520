package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
)

// cachedTokens is what the engine took of the prompt from its cache, by its own word.
func (a answer) cachedTokens(t *testing.T) int {
	t.Helper()
	var body struct {
		Usage struct {
			Details *struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.Unmarshal([]byte(a.text), &body); err != nil {
		t.Fatal(err)
	}
	if body.Usage.Details == nil {
		return 0
	}
	return body.Usage.Details.Cached
}

// lasting is a chat whose prompt is to be kept for an hour.
func lasting(prompt string, header map[string]string) chatRequest {
	body, err := json.Marshal(map[string]any{"model": model, "messages": []map[string]string{{"role": "user", "content": prompt}}, "max_tokens": 2,
		"nvext": map[string]any{"cache_control": map[string]string{"type": "ephemeral", "ttl": "1h"}}})
	if err != nil {
		panic(err)
	}
	return chatRequest{raw: body, header: header}
}

// TestAPromptIsKeptWarm: the engine keeps a prompt that its client comes back to though others fill its cache more than once over, and
// would have lost it otherwise; nothing is kept once the session is over.
func TestAPromptIsKeptWarm(t *testing.T) {
	const fillers, length = 12, 16_000 // the cache has room for four of them
	for _, keepalive := range []bool{true, false} {
		t.Run(fmt.Sprint("keepalive=", keepalive), func(t *testing.T) {
			r := start(t, setup{mode: "ads", engines: 1, engineArgs: []string{"--kv-blocks", "1000"},
				config: fmt.Sprintf("warm: {keepalive: %t, interval: 1s}\n", keepalive)})
			turn := lasting(words("kept", length), map[string]string{sessionHeader: "mine"})
			r.must(turn)
			for i := range fillers {
				r.must(chatRequest{prompt: words(fmt.Sprint("filler ", i), length)})
				if sent := r.metric("attache_warm_sent_total"); keepalive && i%2 == 1 {
					r.eventually("the prompt is sent again", func() bool { return r.metric("attache_warm_sent_total") >= sent+2 }) // one may have been on its way
				}
			}
			if keepalive {
				if n := r.metric("attache_warm_prompts"); n != 1 {
					t.Errorf("%v prompts are kept, want one", n)
				}
				if n := r.metric("attache_warm_failed_total") + r.metric(`attache_warm_skipped_total{reason="gone"}`); n != 0 {
					t.Errorf("%v failed or found nobody", n)
				}
				if n := r.inFlight("engine-0"); n != 0 {
					t.Errorf("%d requests are booked", n)
				}
			}
			if n := r.must(turn).cachedTokens(t); n > 0 != keepalive {
				t.Errorf("the engine had %d tokens of the prompt", n)
			}
			r.must(chatRequest{prompt: "bye", header: map[string]string{sessionHeader: "mine", "x-dynamo-session-final": "true"}})
			if n := r.metric("attache_warm_prompts"); keepalive && n != 0 {
				t.Errorf("%v prompts are kept after the session's end", n)
			}
		})
	}
}
