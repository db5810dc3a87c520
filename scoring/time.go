package scoring

// timePolicy estimates in seconds; the package documentation has the formula, with the same names.
type timePolicy struct {
	speed Speed
	alpha float64
}

func (*timePolicy) Name() string { return nameTime }

func (p *timePolicy) Cost(d Demand, c Candidate, l Load, at Situation) Terms {
	n, cached := l.InFlight+foreign(c, l), c.counted()
	t := Terms{
		Queue:        l.QueueSeconds,
		Prefill:      at.SpeedFactor * p.speed.Prefill(d.PromptTokens-cached, cached) * (1 + p.alpha*float64(n)),
		CachedTokens: c.CachedTokens,
		InFlight:     n,
		Tie:          float64(n), // then random
		Unit:         Seconds,
	}
	resident := l.ContextTokens
	if c.KVCapacityTokens > 0 { // what does not fit waits, and slows nobody down
		resident = min(resident, c.KVCapacityTokens)
	}
	t.Decode = at.SpeedFactor * p.speed.PerKVToken * float64(resident)
	t.Total = t.Queue + t.Prefill + t.Decode
	return t
}
