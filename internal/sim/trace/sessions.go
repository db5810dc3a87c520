package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"attache/internal/sim/trace/data"
)

// SessionOptions say how recorded sessions become a closed loop. Times are in seconds.
type SessionOptions struct {
	// BlockTokens is the size of the engines' blocks in tokens, a multiple of 64 or a divisor; 0 is 64.
	BlockTokens int
	// Rate is how many sessions begin per second, at random (Poisson).
	Rate float64
	// Horizon is how long sessions begin and go on.
	Horizon float64
	// MaxPrompt ends a session before its first prompt that is longer, in tokens; 0 is 131072.
	MaxPrompt int
	// MaxThink caps the time between an answer and the next prompt; 0 is 300.
	MaxThink float64
	Seed     uint64
}

// recordedUnit is the size in tokens of the blocks that recordings count in.
const recordedUnit = 64

// turn is one request of a recorded session. Keep is how many leading blocks are those of the turn before.
type turn struct {
	Prompt int     `json:"in"`
	Output int     `json:"out"`
	Think  float64 `json:"think"`
	Keep   int     `json:"keep"`
}

// AgentSessions is Sessions on the recorded coding agents that come with the program.
func AgentSessions(o SessionOptions) (*Workload, error) {
	f, err := data.Open(data.Sessions)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	return Sessions(f, o)
}

// Sessions reads recorded sessions, one JSON object per line with r, the list of turns: in, out (tokens), think (s), keep
// (blocks of 64 tokens). Each session that begins is one of them, drawn at random, from a random turn of its first half on,
// so that a short simulation sees contexts of all sizes. Sessions share nothing with each other, even if they were drawn
// twice. A turn follows its think time after the answer before.
func Sessions(r io.Reader, o SessionOptions) (*Workload, error) {
	if o.BlockTokens == 0 {
		o.BlockTokens = recordedUnit
	}
	if o.MaxPrompt == 0 {
		o.MaxPrompt = 131072
	}
	if o.MaxThink == 0 {
		o.MaxThink = 300
	}
	if err := checkPoisson(o.Rate, o.Horizon, o.BlockTokens); err != nil {
		return nil, err
	}
	var recorded [][]turn
	err := eachLine(r, 0, func(_ int, line []byte) error {
		var s struct {
			Turns []turn `json:"r"`
		}
		if err := json.Unmarshal(line, &s); err != nil {
			return err
		}
		for i, t := range s.Turns {
			if t.Prompt < 1 || t.Prompt > maxTokens || t.Output < 0 || t.Output > maxTokens || t.Keep < 0 || t.Keep > maxTokens || t.Think < 0 {
				return fmt.Errorf("turn %d: in %d, out %d, keep %d, think %v: in of at least 1, none negative, at most %d tokens expected",
					i, t.Prompt, t.Output, t.Keep, t.Think, maxTokens)
			}
		}
		if len(s.Turns) > 0 {
			recorded = append(recorded, s.Turns)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(recorded) == 0 {
		return nil, errors.New("no session has a turn")
	}
	w := &Workload{BlockTokens: o.BlockTokens, Horizon: seconds(o.Horizon)}
	random := rand.New(rand.NewPCG(o.Seed, 0))
	session := 0
	for at := random.ExpFloat64() / o.Rate; at <= o.Horizon; at += random.ExpFloat64() / o.Rate {
		turns := recorded[random.IntN(len(recorded))]
		if err := w.addSession(session, at, turns[random.IntN((len(turns)+1)/2):], o); err != nil {
			return nil, err
		}
		session++
	}
	return w, nil
}

// addSession adds the turns of one session, up to the first that is too long.
func (w *Workload) addSession(session int, at float64, turns []turn, o SessionOptions) error {
	var before *Request
	for i, t := range turns {
		if t.Prompt > o.MaxPrompt {
			break
		}
		full := t.Prompt / o.BlockTokens
		var ids []int32
		if before != nil {
			ids = before.IDs[:min(t.Keep*recordedUnit/o.BlockTokens, len(before.IDs), full)]
		}
		fresh, err := w.newIDs(full - len(ids))
		if err != nil {
			return err
		}
		r := w.newRequest(Request{
			Prompt: t.Prompt, Output: max(1, t.Output), IDs: append(ids[:len(ids):len(ids)], fresh...), Session: session, Turn: i,
		})
		if before == nil {
			r.Arrival = seconds(at)
			w.Heads = append(w.Heads, r)
		} else {
			r.Think = seconds(min(t.Think, o.MaxThink))
			follow(before, r)
		}
		before = r
	}
	return nil
}

// checkPoisson checks what generators have in common.
func checkPoisson(rate, horizon float64, blockTokens int) error {
	switch {
	case !(rate > 0 && rate <= 1e6):
		return fmt.Errorf("rate %v per second: must be above 0, at most 1e6", rate)
	case !(horizon > 0 && horizon <= 1e7):
		return fmt.Errorf("horizon of %v s: must be above 0, at most 1e7", horizon)
	case blockTokens < 1:
		return fmt.Errorf("blocks of %d tokens: must be at least 1", blockTokens)
	}
	return nil
}
