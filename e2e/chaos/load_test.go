package chaos

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"attache/internal/block"
	"attache/internal/sim"
)

// prompt is one that is sent, and the longest answer that is asked for.
type prompt struct {
	ids    []uint32 // of the prompt
	whole  []uint32 // with the answer
	chains map[int][]block.Hash
}

// chain are our names of its blocks of a size.
func (p *prompt) chain(size int) []block.Hash { return p.chains[size] }

const (
	longestAnswer = 40
	roots         = 5
	children      = 4
	grandchildren = 4
)

// newCorpus draws all prompts of a run: a small forest in which half of the children go on behind their parent's answer.
// Answers depend on nothing but the prompt, so that an engine which nobody disturbs tells what they will be.
func newCorpus(t *testing.T, rng *rand.Rand, sizes []int) []*prompt {
	t.Helper()
	cfg := sim.DefaultConfig()
	cfg.Listen, cfg.Speed = "127.0.0.1:0", 1000
	oracle, err := sim.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = oracle.Run(ctx) })
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	defer running.Wait()
	defer stop()
	defer client.CloseIdleConnections()

	draw := func(after []uint32) *prompt {
		ids := append([]uint32{}, after...)
		for range 5 + rng.IntN(75) {
			ids = append(ids, 1+rng.Uint32N(50_000))
		}
		return &prompt{ids: ids}
	}
	ask := func(level []*prompt) {
		var asking sync.WaitGroup
		for _, p := range level {
			asking.Go(func() {
				a, err := send(ctx, client, oracle.Addr().String(), p, longestAnswer, -1)
				if err != nil {
					t.Error(err)
				}
				p.whole = append(append([]uint32{}, p.ids...), a.tokens...)
				p.chains = map[int][]block.Hash{}
				for _, size := range sizes {
					p.chains[size] = sim.SequenceHashes(p.whole, size, "", "")
				}
			})
		}
		asking.Wait()
	}
	goOn := func(level []*prompt, n int) (next []*prompt) {
		for _, p := range level {
			for range n {
				after := p.ids
				if rng.IntN(2) == 0 {
					after = p.whole[:len(p.ids)+rng.IntN(longestAnswer)]
				}
				next = append(next, draw(after))
			}
		}
		return next
	}
	var all, level []*prompt
	for range roots {
		level = append(level, draw(nil))
	}
	for _, n := range []int{children, grandchildren, 0} {
		ask(level)
		all = append(all, level...)
		level = goOn(level, n)
	}
	return all
}

// answer is what an engine said.
type answer struct {
	rank   int
	cached int // tokens
	tokens []uint32
}

// send asks an engine for output tokens behind a prompt; rank -1 lets the engine choose.
func send(ctx context.Context, client *http.Client, address string, p *prompt, output, rank int) (answer, error) {
	body, err := json.Marshal(map[string]any{"model": "sim-model", "prompt": p.ids, "max_tokens": output})
	if err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if rank >= 0 {
		req.Header.Set("X-Data-Parallel-Rank", strconv.Itoa(rank))
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	var said struct {
		Choices []struct {
			Text string `json:"text"`
		} `json:"choices"`
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(text, &said); err != nil || resp.StatusCode != http.StatusOK || len(said.Choices) != 1 {
		return answer{}, fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	a := answer{cached: said.Usage.Details.Cached}
	a.rank, _ = strconv.Atoi(resp.Header.Get(sim.HeaderRank))
	for words := []byte(said.Choices[0].Text); len(words) >= 4; words = words[4:] {
		a.tokens = append(a.tokens, binary.LittleEndian.Uint32(words))
	}
	return a, nil
}

// talk sends bursts of requests to a node until ctx ends, with pauses in which it is idle and can be judged.
func (w *world) talk(ctx context.Context, n *node, rng *rand.Rand) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}, Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		var burst sync.WaitGroup
		for range 1 + rng.IntN(4) {
			p, output := w.corpus[rng.IntN(len(w.corpus))], 1+rng.IntN(longestAnswer)
			if rng.IntN(2) == 0 {
				output = 1
			}
			burst.Go(func() { w.request(ctx, n, client, p, output, -1) })
		}
		burst.Wait()
		idle := between(rng, 5, 100)
		if rng.IntN(20) == 0 {
			idle = between(rng, 500, 2000)
		}
		for pause(ctx, idle); n.quiet.Load() > 0 && ctx.Err() == nil; {
			pause(ctx, 10*time.Millisecond)
		}
	}
}

// request sends one, and tells the ledger when new blocks must come of it.
func (w *world) request(ctx context.Context, n *node, client *http.Client, p *prompt, output, rank int) {
	e, _ := n.running()
	began := time.Now()
	a, err := send(ctx, client, e.Addr().String(), p, output, rank)
	if err != nil {
		w.tally.add("requests cut", 1)
		return
	}
	w.tally.add("requests", 1)
	if len(p.ids)/n.page*n.page > a.cached+n.page && a.rank < len(n.slots) {
		n.gateway.ledger().Expect(n.slots[a.rank], began)
	}
}

// pause returns early when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
