package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Range is a closed interval from which values are drawn evenly.
type Range[T int | time.Duration] struct{ From, To T }

func (r Range[T]) draw(rng *rand.Rand) T { return r.From + T(rng.Int64N(int64(r.To-r.From)+1)) }

// Workload is what conversations look like: agents that begin with one of a few long system prompts and a task, and go on
// turn by turn, each with the whole conversation so far, the answer to it, and something new. It is pure: a conversation is
// a function of seed, number and the answers it gets. Four bytes are one token.
type Workload struct {
	// Seed varies every text and every draw.
	Seed uint64
	// Prompts is how many system prompts there are, SystemBytes how long each is.
	Prompts, SystemBytes int
	// TaskBytes is the length of the first user message, StepBytes that of every further one.
	TaskBytes, StepBytes Range[int]
	// Turns is how many requests a conversation has.
	Turns Range[int]
	// OutputTokens is how long an answer may be.
	OutputTokens Range[int]
	// Think is the time between an answer and the next request.
	Think Range[time.Duration]
}

// conversation is one of a workload. The caller sends Messages, hears the answer, and calls next.
type conversation struct {
	Workload

	rng      *rand.Rand
	number   int
	left     int // turns after this one
	messages []message
	output   int // max_tokens of this turn
}

// conversation begins the nth one; its first turn is ready. One that is under way has had up to half of its turns before,
// with somebody else.
func (w Workload) conversation(n int, underWay bool) *conversation {
	c := &conversation{Workload: w, rng: rand.New(rand.NewPCG(w.Seed, uint64(n))), number: n}
	which := c.rng.IntN(w.Prompts)
	system := rand.New(rand.NewPCG(w.Seed, ^uint64(which)))
	c.left = w.Turns.draw(c.rng) - 1
	c.output = w.OutputTokens.draw(c.rng)
	c.messages = []message{
		{Role: "system", Content: prose(system, fmt.Sprintf("You are agent %d. ", which), w.SystemBytes)},
		userSays(prose(c.rng, fmt.Sprintf("Task %d: ", n), w.TaskBytes.draw(c.rng))),
	}
	if underWay {
		for range c.rng.IntN(c.left/2 + 1) {
			c.next(string(prose(c.rng, "", wordBytes*c.output)))
		}
	}
	return c
}

// next goes on after an answer; ok is false when the conversation is over.
func (c *conversation) next(answer string) (think time.Duration, ok bool) {
	if c.left == 0 {
		return 0, false
	}
	c.left--
	c.output = c.OutputTokens.draw(c.rng)
	c.messages = append(c.messages,
		message{Role: "assistant", Content: content(answer)},
		userSays(prose(c.rng, "Result: ", c.StepBytes.draw(c.rng))))
	return c.Think.draw(c.rng), true
}

func userSays(text content) message { return message{Role: "user", Content: text} }

// prose is a text of n bytes that begins with a title.
func prose(rng *rand.Rand, title string, n int) content {
	text := make([]byte, 0, n+len(title)+wordBytes)
	text = append(text, title...)
	for len(text) < n {
		text = append(text, word(rng.Uint64(), 0)...)
	}
	return content(text[:n])
}
