package yardstick

// Long is 100 prompts of 6,250 blocks, 100,000 tokens each, every one on four of eight workers, in one event each, and asked for
// four times in a row.
func Long() *Input {
	const prompts, blocks, copies, fleet = 100, 6250, 4, 8
	in := &Input{Workers: fleet}
	for p := range uint64(prompts) {
		own := make([]uint64, blocks)
		for i := range own {
			own[i] = Mix(p<<32 | uint64(i))
		}
		chain := Chain(own)
		for k := range uint64(copies) {
			worker := int((copies*p + k) % fleet)
			in.Queries, in.Locals = append(in.Queries, chain), append(in.Locals, own)
			in.Stores = append(in.Stores, Event{Worker: worker, Root: true, Engine: chain, Local: own, Chain: chain})
			in.AfterStores += copies * Sum(worker, blocks)
		}
	}
	return in
}
