package scoring

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"attache/internal/block"
	"attache/internal/slot"
)

// branch is the chain of a path through a tree with three branches at every block: the path itself, read as a number, so that
// a hash names its block and all before it. At most 30 steps of 1 to 3.
func branch(path ...int) []block.Hash {
	chain, h := make([]block.Hash, len(path)), block.Hash(1)
	for i, step := range path {
		h = 4*h + block.Hash(step)
		chain[i] = h
	}
	return chain
}

// anyBranch draws chains that often have a beginning in common, are equal, or begin one another.
func anyBranch(t *rapid.T, longest int) []block.Hash {
	return branch(rapid.SliceOfN(rapid.SampledFrom([]int{1, 1, 1, 1, 2, 3}), 0, longest).Draw(t, "path")...)
}

// holders is the dumb second implementation of active: how many requests of a slot have a block.
type holders map[holder]int

type holder struct {
	slot slot.Slot
	hash block.Hash
}

func (h holders) enter(s slot.Slot, chain []block.Hash) (fresh int) {
	for _, b := range chain {
		if h[holder{s, b}]++; h[holder{s, b}] == 1 {
			fresh++
		}
	}
	return fresh
}

func (h holders) leave(s slot.Slot, chain []block.Hash) (freed int) {
	for _, b := range chain {
		if h[holder{s, b}]--; h[holder{s, b}] == 0 {
			delete(h, holder{s, b})
			freed++
		}
	}
	return freed
}

func (h holders) shared(s slot.Slot, chain []block.Hash) (held int) {
	for held < len(chain) && h[holder{s, chain[held]}] > 0 {
		held++
	}
	return held
}

// TestActive draws requests of three slots that come and go, against the map. What lies spare is overwritten after every step,
// so that a stretch in use that still had part of its memory would be found wrong.
func TestActive(t *testing.T) {
	type request struct {
		slot  slot.Slot
		chain []block.Hash
		last  *stretch
	}
	const slots = 3
	rapid.Check(t, func(t *rapid.T) {
		var tree active
		dumb := holders{}
		var running []request
		leave := func(t *rapid.T, i int) {
			r := running[i]
			running = slices.Delete(running, i, i+1)
			var seen []block.Hash
			freed := tree.leave(r.slot, r.last, func(blocks []block.Hash) { seen = slices.Concat(blocks, seen) })
			if want := dumb.leave(r.slot, r.chain); freed != want {
				t.Fatalf("leaving frees %d blocks, want %d", freed, want)
			}
			if !slices.Equal(seen, r.chain) {
				t.Fatalf("leaving visits %x, want %x", seen, r.chain)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				r := request{slot: slot.Slot(rapid.IntRange(0, slots-1).Draw(t, "slot")), chain: anyBranch(t, 14)}
				if len(running) > 0 && rapid.Bool().Draw(t, "again") {
					r.chain = running[rapid.IntRange(0, len(running)-1).Draw(t, "as")].chain
				}
				given := slices.Clone(r.chain)
				var fresh int
				r.last, fresh = tree.enter(r.slot, given)
				clear(given) // it is the caller's, and not kept
				if want := dumb.enter(r.slot, r.chain); fresh != want {
					t.Fatalf("entering brings %d blocks, want %d", fresh, want)
				}
				running = append(running, r)
			},
			"leave": func(t *rapid.T) {
				if len(running) == 0 {
					t.Skip("nobody is there")
				}
				leave(t, rapid.IntRange(0, len(running)-1).Draw(t, "who"))
			},
			"": func(t *rapid.T) {
				for _, s := range tree.spare {
					for i := range s.blocks[:cap(s.blocks)] {
						s.blocks[:cap(s.blocks)][i] = ^block.Hash(0)
					}
				}
				asked := anyBranch(t, 14)
				var held [slots]int
				tree.shared(asked, func(users []users, n int) {
					for _, u := range users {
						held[u.slot] = n
					}
				})
				for s, got := range held {
					if want := dumb.shared(slot.Slot(s), asked); got != want {
						t.Fatalf("slot %d holds %d blocks of %x, want %d", s, got, asked, want)
					}
				}
				for _, r := range running {
					if got := r.last.whole(); !slices.Equal(got, r.chain) {
						t.Fatalf("a request has chain %x, want %x", got, r.chain)
					}
				}
				distinct := map[block.Hash]bool{}
				for h := range dumb {
					distinct[h.hash] = true
				}
				stored := 0
				for first, s := range tree.byFirst {
					if stored += len(s.blocks); s.blocks[0] != first || len(s.users) == 0 {
						t.Fatalf("stretch %x is found by %x and has users %v", s.blocks, first, s.users)
					}
				}
				if stored != len(distinct) {
					t.Fatalf("%d blocks are kept for %d", stored, len(distinct))
				}
			},
		})
		for len(running) > 0 {
			leave(t, len(running)-1)
		}
		if len(tree.byFirst) != 0 || len(dumb) != 0 {
			t.Fatalf("all have left, %d stretches remain", len(tree.byFirst))
		}
	})
}

// TestActiveSplits draws the tree of the type's comment.
func TestActiveSplits(t *testing.T) {
	var a active
	one, two := branch(1, 1, 1, 1, 1), branch(1, 1, 1, 2)
	first, fresh := a.enter(1, one)
	if fresh != 5 || len(a.byFirst) != 1 {
		t.Errorf("the first request brings %d blocks in %d stretches, want 5 in 1", fresh, len(a.byFirst))
	}
	second, fresh := a.enter(2, two)
	if fresh != 4 || len(a.byFirst) != 3 {
		t.Errorf("the second one brings %d blocks to slot 2, in %d stretches, want 4 in 3", fresh, len(a.byFirst))
	}
	var got []string
	a.shared(branch(1, 1, 1, 1, 2), func(users []users, held int) { got = append(got, fmt.Sprint(len(users), held)) })
	if want := []string{"2 3", "1 4"}; !slices.Equal(got, want) {
		t.Errorf("users and blocks held: %q, want %q", got, want)
	}
	if freed := a.leave(1, first, nil); freed != 5 || len(a.byFirst) != 2 {
		t.Errorf("the first request frees %d blocks and leaves %d stretches, want 5 and 2", freed, len(a.byFirst))
	}
	if freed := a.leave(2, second, nil); freed != 4 || len(a.byFirst) != 0 {
		t.Errorf("the second one frees %d blocks and leaves %d stretches, want 4 and 0", freed, len(a.byFirst))
	}
}

// TestActiveOne is about chains without a block, and with one.
func TestActiveOne(t *testing.T) {
	var a active
	if last, fresh := a.enter(0, nil); last != nil || fresh != 0 || a.leave(0, last, nil) != 0 {
		t.Error("a chain without blocks is something")
	}
	one, _ := a.enter(0, branch(2))
	again, fresh := a.enter(0, branch(2))
	if one != again || fresh != 0 {
		t.Errorf("an equal chain of one block brings %d blocks, want none", fresh)
	}
	if freed := a.leave(0, one, nil); freed != 0 {
		t.Errorf("what another request holds is freed: %d blocks", freed)
	}
	if freed := a.leave(0, again, nil); freed != 1 || len(a.byFirst) != 0 {
		t.Errorf("the last request frees %d blocks and leaves %d stretches, want 1 and 0", freed, len(a.byFirst))
	}
}
