package queue

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRoundsAreNotWalked compares skipping rounds with walking through them.
func TestRoundsAreNotWalked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quantum := rapid.SliceOfN(rapid.Int64Range(1, 50), 1, 5).Draw(t, "quantum")
		r, n := newRounds(quantum), len(quantum)
		deficit, turn, earned := make([]int64, n), 0, false
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			costs := rapid.SliceOfN(rapid.SampledFrom([]int64{0, 1, 49, 1000, 100_000}), n, n).Draw(t, "costs")
			if slices.Max(costs) == 0 {
				continue
			}
			was := slices.Clone(deficit)
			wasTurn, wasEarned := turn, earned
			for ; ; turn, earned = (turn+1)%n, false {
				if costs[turn] > deficit[turn] && !earned {
					deficit[turn] += quantum[turn]
					earned = true
				}
				if costs[turn] > 0 && costs[turn] <= deficit[turn] {
					break
				}
				if costs[turn] == 0 && deficit[turn] != was[turn] {
					t.Fatal("who takes no part has earned")
				}
			}
			got := r.next(costs)
			if got != turn || !slices.Equal(r.deficit, deficit) || r.earned != earned {
				t.Fatalf("costs %v: turn of %d, deficits %v; want %d, %v", costs, got, r.deficit, turn, deficit)
			}
			if rapid.Bool().Draw(t, "undo") {
				r.undo()
				deficit, turn, earned = was, wasTurn, wasEarned
			} else {
				r.spend(got, costs[got])
				deficit[turn] -= costs[turn]
			}
			if !slices.Equal(r.deficit, deficit) {
				t.Fatalf("deficits %v, want %v", r.deficit, deficit)
			}
		}
	})
}

// TestSharesOfDynamo repeats the sample of Dynamo's documentation: two classes with a backlog on a worker that serves
// four at once. Of the first 320 that are complete, 254 to 257 are of the class with a quantum of 512 against 128, and
// 159 to 161 with equal quanta.
func TestSharesOfDynamo(t *testing.T) {
	for _, c := range []struct{ premium, standard, least, most int }{{512, 128, 254, 257}, {128, 128, 159, 161}, {512, 512, 159, 161}} {
		for _, tokens := range []int{32, 64, 128} {
			if got := completions(c.premium, c.standard, tokens); got < c.least || got > c.most {
				t.Errorf("quanta %d:%d, requests of %d tokens: %d of the first 320 are premium, want %d to %d",
					c.premium, c.standard, tokens, got, c.least, c.most)
			}
		}
	}
}

// completions counts the premium ones among the first 320 requests that a worker with four places serves, first in,
// first out; a place is offered when it is free.
func completions(premium, standard, tokens int) int {
	a, b := DefaultClass(), DefaultClass()
	a.Name, a.Quantum, b.Name, b.Quantum = "premium", premium, "standard", standard
	cfg := DefaultConfig()
	cfg.Classes = []ClassConfig{a, b}
	q := New[struct{}](cfg)
	for range 400 {
		for c := range Class(2) {
			q.Push(0, Request{Class: c, UncachedTokens: tokens}, struct{}{})
		}
	}
	var running []Class
	count := 0
	for range 320 {
		q.Dispatch(0, func(e *Entry[struct{}]) Placement {
			if len(running) == 4 {
				return Blocked
			}
			running = append(running, e.Request.Class)
			return Placed
		})
		if running[0] == 0 {
			count++
		}
		running = running[1:]
	}
	return count
}
