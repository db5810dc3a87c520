package yardstick

import "slices"

// The seeded input's shape.
const (
	workers   = 16
	groups    = 64
	perGroup  = 16
	shared    = 128 // leading blocks that a group has in common
	length    = 512
	perEvent  = 16
	questions = 20_000
)

// splitmix is the generator that the seeded input is drawn from.
type splitmix uint64

func (s *splitmix) next() uint64 {
	v := Mix(uint64(*s))
	*s += 0x9E3779B97F4A7C15
	return v
}

// local is the hash of the tokens of a block: kind 1 is shared by a group, 2 of one prompt, 3 of one query.
func local(kind, id, at uint64) uint64 { return Mix(42 ^ kind<<56 ^ id<<20 ^ at) }

// Synthetic is the seeded input: 16 workers; 1,024 prompts of 512 blocks in groups of 16 that share the first 128, each on one
// to three workers, in events of 16 blocks; 20,000 queries, of which a tenth leaves its prompt somewhere and a tenth is
// unknown. Of a quarter of the prompts the second half is removed. salted gives each worker engine hashes of its own,
// otherwise they are the sequence hashes.
func Synthetic(salted bool) *Input {
	rng := splitmix(42)
	in := &Input{Workers: workers, AfterStores: 384546497, AfterRemoves: 92100370}
	prompts := make([][]uint64, 0, groups*perGroup)
	for s := range uint64(groups * perGroup) {
		own := make([]uint64, length)
		for i := range own {
			if i < shared {
				own[i] = local(1, s/perGroup, uint64(i))
			} else {
				own[i] = local(2, s, uint64(i))
			}
		}
		prompts = append(prompts, own)
		first, copies, remove := rng.next()%workers, 1+rng.next()%3, rng.next()%4 == 0
		chain := Chain(own)
		for k := range copies {
			worker, salt := int((first+5*k)%workers), uint64(0)
			if salted {
				salt = Mix(uint64(worker) + 77)
			}
			engine := Engine(chain, salt)
			for c := 0; c < length; c += perEvent {
				e := Event{
					Worker: worker, Root: c == 0,
					Engine: engine[c : c+perEvent], Local: own[c : c+perEvent], Chain: chain[c : c+perEvent],
				}
				if c > 0 {
					e.Parent = engine[c-1]
				}
				in.Stores = append(in.Stores, e)
			}
			for c := length - perEvent; remove && c >= length/2; c -= perEvent {
				gone := slices.Clone(engine[c : c+perEvent])
				slices.Reverse(gone)
				in.Removes = append(in.Removes, Event{Worker: worker, Remove: true, Engine: gone})
			}
		}
	}
	for q := range uint64(questions) {
		s, kind, cut := rng.next()%(groups*perGroup), rng.next()%10, int(rng.next()%length)
		from := length
		switch {
		case kind == 8:
			from = cut
		case kind > 8:
			from = 0
		}
		own := slices.Clone(prompts[s])
		for i := from; i < length; i++ {
			own[i] = local(3, q, uint64(i))
		}
		in.Locals = append(in.Locals, own)
		in.Queries = append(in.Queries, Chain(own))
	}
	return in
}
