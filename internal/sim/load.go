package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"attache/internal/field"
	"attache/internal/openai"
)

// Load is a number of agents that talk to one address at the same time, each with one conversation after the other.
//
// They come in waves: the first ones spread over Waves instants, Wave apart; an agent whose conversation is over begins
// the next one with the next wave. What they come with first is under way already, so that the load is from the start
// what it will be, though no engine has seen any of it.
type Load struct {
	Workload

	// URL is where requests go, as in "http://127.0.0.1:8080"; Model is their model name.
	URL, Model string
	// Duration is how long new requests are sent. Those in flight then are waited for: leaving out the slow ones would
	// flatter.
	Duration time.Duration
	// Conversations bounds how many there are at a time, and so the requests in flight.
	Conversations int
	// Waves and Wave are the number and the distance of the instants at which the first conversations begin.
	Waves int
	Wave  time.Duration
	// Timeout bounds one request; one that takes longer is an error.
	Timeout time.Duration
	// Progress, if set, is called every ProgressEvery with the report so far, by one goroutine at a time.
	Progress      func(Report)
	ProgressEvery time.Duration
}

// Report says how requests fared.
type Report struct {
	// Requests counts all that ended; Errors those of them that were not answered in full with status 200.
	Requests int `json:"requests"`
	Errors   int `json:"errors"`
	// The time from sending a request to the first event of its answer, in seconds, of those without error: mean, median
	// and 99th percentile, exact (index floor(p*(n-1)) of the sorted list).
	TTFTMeanS float64 `json:"ttft_mean_s"`
	TTFTP50S  float64 `json:"ttft_p50_s"`
	TTFTP99S  float64 `json:"ttft_p99_s"`
	// CachedShare is prompt tokens that came from a prefix cache, of all prompt tokens.
	CachedShare float64 `json:"cached_share"`
	// RequestsPerS counts requests per second, from the start to the end of the last one.
	RequestsPerS float64 `json:"requests_per_s"`
	// Served counts requests by the engine that answered, as its header tells.
	Served map[string]int `json:"served,omitempty"`
	// FirstError is an example.
	FirstError string `json:"first_error,omitempty"`
}

// result is what became of one request.
type result struct {
	Status         int // 0 without response headers
	Engine         string
	TTFT, Duration time.Duration
	Usage          openai.Usage
	Err            error
}

// report sums results up; elapsed is the time they took together.
func report(results []result, elapsed time.Duration) Report {
	r := Report{Requests: len(results), Served: make(map[string]int)}
	var first []float64
	var prompt, cached, sum float64
	for _, x := range results {
		if x.Engine != "" {
			r.Served[x.Engine]++
		}
		if x.Err != nil {
			if r.Errors++; r.Errors == 1 {
				r.FirstError = x.Err.Error()
			}
			continue
		}
		first = append(first, x.TTFT.Seconds())
		sum += x.TTFT.Seconds()
		prompt += float64(x.Usage.PromptTokens)
		cached += float64(x.Usage.CachedTokens)
	}
	slices.Sort(first)
	if n := len(first); n > 0 {
		r.TTFTMeanS = sum / float64(n)
		r.TTFTP50S, r.TTFTP99S = percentile(first, 0.5), percentile(first, 0.99)
	}
	if prompt > 0 {
		r.CachedShare = cached / prompt
	}
	if elapsed > 0 {
		r.RequestsPerS = float64(len(results)) / elapsed.Seconds()
	}
	return r
}

// percentile is the value at p of a sorted list that is not empty.
func percentile(sorted []float64, p float64) float64 {
	return sorted[int(math.Floor(p*float64(len(sorted)-1)))]
}

// Validate reports every field that breaks its rule.
func (l *Load) Validate() error {
	var check field.Checker
	web := strings.HasPrefix(l.URL, "http://") || strings.HasPrefix(l.URL, "https://")
	check.Check(web, "url", l.URL, "must be an http:// or https:// URL")
	check.Check(l.Duration > 0, "duration", l.Duration, "must be above 0")
	check.Check(l.Conversations >= 1, "conversations", l.Conversations, "must be at least 1")
	check.Check(l.Waves >= 1, "waves", l.Waves, "must be at least 1")
	check.Check(l.Wave > 0, "wave", l.Wave, "must be above 0")
	check.Check(l.Timeout > 0, "timeout", l.Timeout, "must be above 0")
	check.Check(l.Prompts >= 1, "prompts", l.Prompts, "must be at least 1")
	checkRange(&check, "task-bytes", l.TaskBytes, 0)
	checkRange(&check, "step-bytes", l.StepBytes, 0)
	checkRange(&check, "turns", l.Turns, 1)
	checkRange(&check, "output-tokens", l.OutputTokens, 1)
	checkRange(&check, "think", l.Think, 0)
	return check.Err()
}

func checkRange[T int | time.Duration](check *field.Checker, name string, r Range[T], least T) {
	check.Check(r.From >= least && r.To >= r.From, name, r, fmt.Sprintf("must be a range that begins at %v or above", least))
}

// firstWave is when the first conversation of an agent begins.
func (l *Load) firstWave(agent int) time.Duration { return time.Duration(agent%l.Waves) * l.Wave }

// nextWave is the first instant after t at which conversations begin.
func (l *Load) nextWave(t time.Duration) time.Duration { return t.Truncate(l.Wave) + l.Wave }

// RunLoad puts a load on an address and reports. When ctx ends it stops at once and reports what had ended by then.
func RunLoad(ctx context.Context, load Load) (Report, error) {
	if err := load.Validate(); err != nil {
		return Report{}, fmt.Errorf("load: %w", err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: load.Conversations, DisableCompression: true}
	defer transport.CloseIdleConnections()
	r := &runner{Load: load, client: &http.Client{Transport: transport}, began: time.Now()}
	var agents, reporter sync.WaitGroup
	for i := range load.Conversations {
		agents.Go(func() { r.agent(ctx, i) })
	}
	done := make(chan struct{})
	if load.Progress != nil && load.ProgressEvery > 0 {
		reporter.Go(func() { r.progress(done) })
	}
	agents.Wait()
	close(done)
	reporter.Wait()
	return r.report(), nil
}

// runner is a load while it runs.
type runner struct {
	Load

	client *http.Client
	began  time.Time

	mu      sync.Mutex // guards the field below
	results []result
}

func (r *runner) report() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return report(r.results, time.Since(r.began))
}

func (r *runner) progress(done <-chan struct{}) {
	tick := time.NewTicker(r.ProgressEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			r.Progress(r.report())
		}
	}
}

// agent holds conversations numbered i, i+Conversations, ... until the time is over.
func (r *runner) agent(ctx context.Context, i int) {
	start := r.firstWave(i)
	for n := i; r.sleepUntil(ctx, start); n += r.Conversations {
		r.converse(ctx, r.conversation(n, n == i))
		start = r.nextWave(time.Since(r.began))
	}
}

// converse holds one conversation, as far as time, ctx and the answers allow.
func (r *runner) converse(ctx context.Context, c *conversation) {
	for {
		answer, result := r.ask(ctx, c)
		if ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		r.results = append(r.results, result)
		r.mu.Unlock()
		if result.Err != nil {
			return
		}
		think, ok := c.next(answer)
		if !ok || !r.sleepUntil(ctx, time.Since(r.began)+think) {
			return
		}
	}
}

// sleepUntil waits for an instant of the load; ok is false when the load is over by then, or ctx ends.
func (r *runner) sleepUntil(ctx context.Context, at time.Duration) (ok bool) {
	if at >= r.Duration {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(at - time.Since(r.began)):
		return true
	}
}

// ask sends one turn and reads the answer.
func (r *runner) ask(ctx context.Context, c *conversation) (answer string, x result) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	turn := chatRequest{Model: r.Model, Messages: c.messages, MaxTokens: c.output, Stream: true}
	turn.StreamOptions.IncludeUsage = true
	body, err := json.Marshal(turn)
	if err != nil {
		return "", result{Err: err}
	}
	began := time.Now()
	resp, err := post(ctx, r.client, r.URL, body)
	if err != nil {
		return "", result{Err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	x.Status, x.Engine = resp.StatusCode, resp.Header.Get(HeaderEngine)
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		x.Err = fmt.Errorf("status %d: %s", resp.StatusCode, text)
		return "", x
	}
	answer, x.Err = x.read(resp.Body, began)
	x.Duration = time.Since(began)
	return answer, x
}

// read takes an answer from its events.
func (x *result) read(stream io.Reader, began time.Time) (answer string, err error) {
	var text strings.Builder
	events := openai.NewEventReader(stream)
	for {
		data, err := events.Next()
		if errors.Is(err, io.EOF) {
			return "", errors.New("the stream ended without [DONE]")
		} else if err != nil {
			return "", err
		}
		if x.TTFT == 0 {
			x.TTFT = time.Since(began)
		}
		if string(data) == "[DONE]" {
			return text.String(), nil
		}
		var event struct {
			Choices []struct {
				Delta struct {
					Content string `json:"content"`
				} `json:"delta"`
			} `json:"choices"`
		}
		if err := json.Unmarshal(data, &event); err != nil {
			return "", fmt.Errorf("event %q: %w", data, err)
		}
		for _, c := range event.Choices {
			text.WriteString(c.Delta.Content)
		}
		if u, ok := openai.UsageOf(data); ok {
			x.Usage = u
		}
	}
}

// chatRequest is a chat request as clients send it.
type chatRequest struct {
	Model         string    `json:"model"`
	Messages      []message `json:"messages"`
	MaxTokens     int       `json:"max_tokens"`
	Stream        bool      `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options,omitzero"`
}

// post sends a chat request.
func post(ctx context.Context, client *http.Client, url string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return client.Do(req)
}
