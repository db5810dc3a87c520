package scoring

// timePolicy estimates in seconds; the package documentation has the formula, with the same names.
type timePolicy struct {
	speed    Speed
	alpha    float64
	again    float64 // weight of computing anything, beside its time
	evict    float64 // weight of what is evicted
	room     float64 // weight of the wait for KV memory
	crowd    float64 // weight of its coming to an end
	marginal float64 // raw seconds of one more token
}

func (*timePolicy) Name() string { return nameTime }

func (p *timePolicy) Score(x *Contest) {
	d := x.Demand
	for i, l := range x.Loads {
		c, t := &x.Candidates[i], &x.Terms[i]
		n, cached, k := l.InFlight+foreign(c, l), c.counted(), l.SpeedFactor
		resident := l.ContextTokens
		if c.KVCapacityTokens > 0 { // what does not fit waits, and slows nobody down
			resident = min(resident, c.KVCapacityTokens)
		}
		t.Queue = l.QueueSeconds
		t.Prefill = k * p.speed.Prefill(d.PromptTokens-cached, cached) * p.slowed(n)
		t.Decode = k * p.speed.PerKVToken * float64(resident)
		t.Evict = p.evict * k * p.marginal * float64(d.BlockTokens) * l.EvictionBlocks
		t.Room = p.room*l.RoomSeconds + p.crowd*l.CrowdSeconds
		t.Total = t.Queue + t.Prefill + t.Decode + t.Evict + t.Room
		t.Tie = float64(n) // then random
		t.shown(c, l, Seconds)
	}
}

// slowed is how much more a prefill counts than it takes, among n requests in flight.
func (p *timePolicy) slowed(n int) float64 { return 1 + p.again + p.alpha*float64(n) }
