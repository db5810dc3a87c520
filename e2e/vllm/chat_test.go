package vllm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// message is one of a chat.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// chat is one request.
type chat struct {
	id       string // of the request, by which its decision is found again
	messages []message
	salt     string
	stream   bool
	tokens   int // max_tokens; 0 is 1
	// unsettled: it is sent while what the servers hold changes, and not held to the criterion.
	unsettled bool
}

// reply is what the client saw.
type reply struct {
	text string
	ttft time.Duration // to the first event of a stream; 0 for a whole answer
}

// client keeps connections for the next requests, as client libraries do.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}

// send sends one request to Envoy, or past it to a server: url says where. Whatever is no whole answer is an error.
func (r *rig) send(url string, c chat) (reply, error) {
	body, err := json.Marshal(struct {
		Model       string    `json:"model"`
		Messages    []message `json:"messages"`
		MaxTokens   int       `json:"max_tokens"`
		Temperature float64   `json:"temperature"`
		Stream      bool      `json:"stream,omitempty"`
		CacheSalt   string    `json:"cache_salt,omitempty"`
	}{model, c.messages, max(c.tokens, 1), 0, c.stream, c.salt})
	if err != nil {
		return reply{}, err
	}
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", c.id)
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		text, _ := io.ReadAll(resp.Body)
		return reply{}, fmt.Errorf("status %d: %.300s", resp.StatusCode, text)
	}
	if c.stream {
		return readStream(resp.Body, began)
	}
	var whole struct{ Choices []struct{ Message message } }
	if err := json.NewDecoder(resp.Body).Decode(&whole); err != nil {
		return reply{}, err
	}
	if len(whole.Choices) != 1 {
		return reply{}, fmt.Errorf("%d choices", len(whole.Choices))
	}
	return reply{text: whole.Choices[0].Message.Content}, nil
}

// readStream reads server-sent events to their end, not only to [DONE]: who hangs up there is taken for one who left.
func readStream(body io.Reader, began time.Time) (reply, error) {
	var out reply
	var text strings.Builder
	done := false
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if out.ttft == 0 {
			out.ttft = time.Since(began)
		}
		if done = data == "[DONE]"; done {
			continue
		}
		var chunk struct{ Choices []struct{ Delta message } }
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return out, fmt.Errorf("chunk %.100q: %w", data, err)
		}
		for _, c := range chunk.Choices {
			text.WriteString(c.Delta.Content)
		}
	}
	out.text = text.String()
	if err := lines.Err(); err != nil {
		return out, err
	}
	if !done {
		return out, errors.New("the stream ended without [DONE]")
	}
	return out, nil
}

// decision is what the admin API tells of one.
type decision struct {
	RequestID  string `json:"request_id"`
	Outcome    string `json:"outcome"`
	Chosen     string `json:"chosen"`
	Served     string `json:"served"`
	Attempts   int    `json:"attempts"`
	Prompt     int    `json:"prompt_tokens"`
	Delivered  *int   `json:"delivered_cached_tokens"`
	Rung       string `json:"rung"`
	RungReason string `json:"rung_reason"`
	Candidates []struct {
		Worker       string `json:"worker"`
		CachedTokens int    `json:"cached_tokens"`
	} `json:"candidates"`
}

// captured is how many tokens the chosen server was believed to hold.
func (d *decision) captured() int {
	for _, c := range d.Candidates {
		if c.Worker == d.Chosen {
			return c.CachedTokens
		}
	}
	return 0
}

// decisions waits until the decisions on some requests have their reports, and returns them by request.
func (r *rig) decisions(ids []string) map[string]decision {
	r.t.Helper()
	found := map[string]decision{}
	r.within(wait, fmt.Sprintf("the decisions on %d requests have their reports", len(ids)), func() bool {
		text, err := readAll(fmt.Sprintf("%s/api/v1/decisions?limit=%d", r.admin, remembered))
		var list struct{ Decisions []decision }
		if err != nil || json.Unmarshal(text, &list) != nil {
			return false
		}
		for _, d := range list.Decisions {
			if d.Outcome != "" {
				found[d.RequestID] = d
			}
		}
		return !slices.ContainsFunc(ids, func(id string) bool { return found[id].Outcome == "" })
	})
	return found
}
