// Package trace has the workloads that engines and routers are measured on: recorded requests, and generated ones.
//
// In the common case Open reads a workload by its name or from a file in the format that Mooncake published. Requests are
// lengths and names of blocks; nobody knows the text. Those of an open loop arrive when the recording says; those of a
// closed loop (sessions, agents) follow a while after the answers that they wait for, however long these take.
//
// Files: mooncake.go rows of the Mooncake format; sessions.go recorded coding agents; b2b.go and agents.go generators;
// open.go names. Equal arguments give equal workloads.
package trace

import (
	"fmt"
	"math"
	"slices"
	"time"

	"attache/internal/block"
)

// Request is one request of a workload. It never changes once the workload is made, so many simulations may share it.
type Request struct {
	// Index is the request's place in Workload.All.
	Index int
	// Arrival counts from the start of the workload. Requests that follow others have none.
	Arrival time.Duration
	// Prompt and Output are lengths in tokens, both at least 1.
	Prompt, Output int
	// Chain and IDs name the full blocks of the prompt, or fewer if the recording names fewer: as the sequence hashes that
	// routers see, and as small numbers, below Workload.IDs, for tables. Equal means equal up to and including that block.
	Chain []block.Hash
	IDs   []int32
	// Session tells conversations and programs apart, -1 is none; Turn counts within it, from 0.
	Session, Turn int
	// Think is how long after the last answer that it waits for the request is sent.
	Think time.Duration
	// Next are the requests that wait for this one's answer, After how many answers this one waits for.
	Next  []*Request
	After int
}

// Workload is a list of requests and what they have in common.
type Workload struct {
	// All are all requests, Heads those that wait for no other, in order of arrival.
	All, Heads []*Request
	// BlockTokens is the size of a block in tokens.
	BlockTokens int
	// IDs is above every number in Request.IDs.
	IDs int
	// Horizon ends a closed loop: a request that would follow at that time or later is not sent. 0 is no end.
	Horizon time.Duration
}

// maxTokens bounds prompt and output of one request; far above what engines serve, far below what would overflow.
const maxTokens = 1 << 24

// maxTime bounds times: a hundred years.
const maxTime = 100 * 365 * 24 * time.Hour

// newRequest adds a request.
func (w *Workload) newRequest(r Request) *Request {
	r.Index = len(w.All)
	r.Chain = make([]block.Hash, len(r.IDs))
	for i, id := range r.IDs {
		r.Chain[i] = mix(uint64(id))
	}
	w.All = append(w.All, &r)
	return &r
}

// follow makes next wait for one more answer.
func follow(before, next *Request) {
	before.Next = append(before.Next, next)
	next.After++
}

// newIDs makes n numbers that no other block has.
func (w *Workload) newIDs(n int) ([]int32, error) {
	if w.IDs+n > math.MaxInt32 {
		return nil, fmt.Errorf("more than %d different blocks", math.MaxInt32)
	}
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(w.IDs + i)
	}
	w.IDs += n
	return ids, nil
}

// order sorts the heads; those of one instant keep their order.
func (w *Workload) order() {
	slices.SortStableFunc(w.Heads, func(a, b *Request) int { return int(max(-1, min(1, a.Arrival-b.Arrival))) })
}

// mix scatters the bits of a number: the step of splitmix64.
func mix(z uint64) uint64 {
	z += 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// seconds is a time given as a number.
func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }
