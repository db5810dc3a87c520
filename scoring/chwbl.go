package scoring

import "math"

// CHWBLConfig are the parameters of policy "chwbl".
type CHWBLConfig struct {
	// LoadFactor is how many times its fair share of the requests in flight a worker may have, at least 1. 1: keys move as soon
	// as loads differ; a large value: hot keys overload their worker.
	LoadFactor float64 `yaml:"load_factor"`
}

// chwbl is hashing with bounded loads: a key's candidates have an order of their own, and the first that is not full is taken.
//
//	key     Demand.Key; else the hash of the first two blocks of the prompt (of one, if it has no more); else a drawn one
//	order   by mix(key, candidate), highest first: rendezvous hashing. A candidate that comes or goes moves only its own keys
//	full    n + 1 > ceil(factor * (sum n + 1) / N)
//
// Published implementations walk a ring instead; with the same bound.
type chwbl struct{ factor float64 }

func (*chwbl) Name() string { return nameCHWBL }

func (p *chwbl) Score(x *Contest) {
	key := keyOf(x)
	sum := 0
	for _, l := range x.Loads {
		sum += l.InFlight
	}
	bound := math.Ceil(p.factor*float64(sum+1)/float64(len(x.Loads)) - rounding)
	for i, l := range x.Loads {
		c, t := &x.Candidates[i], &x.Terms[i]
		t.Total = 1 - float64(place(c, key))/(1<<64)
		t.Passed = float64(l.InFlight+1) > bound
		t.shown(c, l, Order)
	}
}

// rounding is more than what products of small numbers are wrong by.
const rounding = 1e-9

// prefixBlocks are the blocks that requests must share to have the same key.
const prefixBlocks = 2

// keyOf is what the request is hashed by.
func keyOf(x *Contest) uint64 {
	d := x.Demand
	switch {
	case d.Key != 0:
		return d.Key
	case len(d.Chain) > 0: // a sequence hash stands for all blocks before it
		return d.Chain[min(prefixBlocks, len(d.Chain))-1]
	}
	return math.Float64bits(x.Draws[0])
}

// place is where a candidate stands for a key: higher comes first.
func place(c *Candidate, key uint64) uint64 {
	id := c.ID
	if id == 0 {
		id = uint64(c.Slot) + 1
	}
	return mix(key ^ mix(id))
}

// mix spreads every bit of v over all bits: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014), one to one.
func mix(v uint64) uint64 {
	v += 0x9e3779b97f4a7c15
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}
