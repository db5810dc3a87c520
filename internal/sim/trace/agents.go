package trace

import (
	"fmt"
	"math/rand/v2"
)

// AgentsOptions describe programs of several agents. All programs share the prompt of the platform; the agents of one kind
// share theirs, behind it, in all programs. A planner asks, its answer starts all other agents at once (fan-out), each does
// some turns on its own growing context, and when the last is through, the planner goes on with what they found (fan-in):
//
//	planner ──┬─► agent 1 ─► agent 1 ─┬──► planner ──┬─► …
//	          └─► agent 2 ─► agent 2 ─┘              └─► …
type AgentsOptions struct {
	BlockTokens int // the engines' blocks
	// System is the length of the platform's prompt, Role that of each kind of agent, Task what a program's user asked. Tokens.
	System, Role, Task int
	// Agents is how many agents the planner starts, Turns how many requests each makes, Rounds how often that happens.
	Agents, Turns, Rounds int
	// Grow is how many tokens a turn adds to the context of its agent, the answer before it included. On fan-in the planner's
	// context grows by that for each agent.
	Grow int
	// Output is the mean length of an answer, exponentially distributed, at most Grow.
	Output int
	// Think is the mean time in seconds that tools take between the answers and the next request, exponentially distributed.
	Think   float64
	Rate    float64 // programs per second, at random (Poisson)
	Horizon float64 // seconds
	Seed    uint64
}

// DefaultAgents is a moderate program: a planner and 4 agents, 3 rounds of 4 turns. Rate is left to be chosen.
func DefaultAgents() AgentsOptions {
	return AgentsOptions{
		BlockTokens: 64, System: 8000, Role: 2000, Task: 1000, Agents: 4, Turns: 4, Rounds: 3, Grow: 1500, Output: 300, Think: 3,
		Horizon: 600,
	}
}

// Agents generates a closed loop. Session is the program; Turn counts its requests.
func Agents(o AgentsOptions) (*Workload, error) {
	if err := checkPoisson(o.Rate, o.Horizon, o.BlockTokens); err != nil {
		return nil, err
	}
	longest := float64(o.System) + float64(o.Role) + float64(o.Task) + float64(o.Rounds)*float64(o.Grow)*float64(max(o.Turns, o.Agents)+1)
	switch {
	case o.Agents < 1 || o.Turns < 1 || o.Rounds < 1 || o.Output < 1 || o.Task < 1:
		return nil, fmt.Errorf("%d agents, %d turns, %d rounds, %d task and %d output tokens: all must be at least 1", o.Agents, o.Turns, o.Rounds, o.Task, o.Output)
	case o.System < 0 || o.Role < 0 || o.Grow < 0 || !(o.Think >= 0 && o.Think <= 1e6):
		return nil, fmt.Errorf("%d system, %d role and %d grow tokens, think time of %v s: none may be negative", o.System, o.Role, o.Grow, o.Think)
	case longest > maxTokens:
		return nil, fmt.Errorf("the longest prompt has %.0f tokens: at most %d expected", longest, maxTokens)
	}
	g := agents{AgentsOptions: o, w: &Workload{BlockTokens: o.BlockTokens, Horizon: seconds(o.Horizon)}, rand: rand.New(rand.NewPCG(o.Seed, 0))}
	var err error
	if g.system, err = g.w.newIDs(o.System / o.BlockTokens); err != nil {
		return nil, err
	}
	for range o.Agents + 1 { // the planner is number 0
		role, err := g.w.newIDs((o.System+o.Role)/o.BlockTokens - len(g.system))
		if err != nil {
			return nil, err
		}
		g.roles = append(g.roles, append(g.system[:len(g.system):len(g.system)], role...))
	}
	program := 0
	for at := g.rand.ExpFloat64() / o.Rate; at <= o.Horizon; at += g.rand.ExpFloat64() / o.Rate {
		if err := g.program(program, at); err != nil {
			return nil, err
		}
		program++
	}
	return g.w, nil
}

// agents generates programs.
type agents struct {
	AgentsOptions

	w      *Workload
	system []int32
	roles  [][]int32 // platform and role, by kind of agent
	rand   *rand.Rand
}

// context is what one agent of a program has read.
type context struct {
	tokens int
	ids    []int32
}

// program adds one program.
func (g *agents) program(session int, at float64) error {
	first := len(g.w.All)
	contexts := make([]context, g.Agents+1)
	for i := range contexts {
		contexts[i] = context{g.System + g.Role, g.roles[i]}
		if err := g.grow(&contexts[i], g.Task); err != nil {
			return err
		}
	}
	ask := func(agent int, before ...*Request) *Request {
		c := contexts[agent]
		r := g.w.newRequest(Request{Prompt: c.tokens, Output: g.output(), IDs: c.ids, Session: session})
		r.Turn = r.Index - first
		if len(before) == 0 {
			r.Arrival = seconds(at)
			g.w.Heads = append(g.w.Heads, r)
			return r
		}
		r.Think = seconds(g.rand.ExpFloat64() * g.Think)
		for _, b := range before {
			follow(b, r)
		}
		return r
	}
	planner := ask(0)
	for range g.Rounds {
		found := make([]*Request, 0, g.Agents)
		for agent := 1; agent <= g.Agents; agent++ {
			r := planner
			for range g.Turns {
				r = ask(agent, r)
				if err := g.grow(&contexts[agent], g.Grow); err != nil {
					return err
				}
			}
			found = append(found, r)
		}
		if err := g.grow(&contexts[0], g.Grow*g.Agents); err != nil {
			return err
		}
		planner = ask(0, found...)
	}
	return nil
}

// grow adds tokens that nobody else has to a context.
func (g *agents) grow(c *context, tokens int) error {
	c.tokens += tokens
	fresh, err := g.w.newIDs(c.tokens/g.BlockTokens - len(c.ids))
	c.ids = append(c.ids[:len(c.ids):len(c.ids)], fresh...)
	return err
}

func (g *agents) output() int {
	return max(1, min(g.Grow, int(g.rand.ExpFloat64()*float64(g.Output))))
}
