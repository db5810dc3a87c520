package scoring

// tuning is what follows from a configuration. It does not change: another configuration makes another one.
type tuning struct {
	policies    map[string]Policy
	policy      Policy // of requests that ask for none
	speed       Speed
	temperature float64
	yardstick   float64 // raw seconds of a cold prompt of so many tokens: the unit of what was learnt
}

// tuning of a configuration that was validated.
func (c Config) tuning() *tuning {
	speed, _ := c.Speed.speed()
	t := &tuning{policies: c.policies(speed), speed: speed, temperature: c.Temperature, yardstick: speed.Prefill(yardstick, 0)}
	t.policy = t.policies[c.Policy]
	return t
}

// policyOf is the policy that decides on a request which asks for this one; "" asks for none.
func (t *tuning) policyOf(asked string) Policy {
	if p := t.policies[asked]; p != nil {
		return p
	}
	return t.policy
}

// Reconfigure decides by another configuration from now on. Bookings stay as they are, and so does what was learnt: of another speed
// model it is converted, so that what is predicted of the backlogs does not jump. A request is decided by one configuration, whichever
// is in effect when it is picked, and judged by the same one later. The error names what Validate refuses; then nothing changes.
func (s *Scorer) Reconfigure(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	next := cfg.tuning()
	s.mu.Lock()
	defer s.mu.Unlock()
	ratio := next.yardstick / s.tuning.Load().yardstick
	for _, l := range s.loads {
		if l != nil {
			s.update(l) // by what was believed until now
			l.convert(ratio)
		}
	}
	s.calibration.convert(ratio)
	s.own *= mean(ratio)
	s.tuning.Store(next)
	return nil
}

// raw converts raw seconds of a booking, which are of the speed model that it was decided by, to those of now. The lock must be held.
func (s *Scorer) raw(b *Booking, seconds float64) float64 {
	return seconds * (s.tuning.Load().yardstick / b.tuning.yardstick)
}

// convert takes the backlog over to a speed model by which everything takes so many times as long.
func (l *slotLoad) convert(ratio float64) {
	l.own.convert(ratio)
	l.left *= ratio
	for b := l.head; b != nil; b = b.next {
		b.left, b.prefill = b.left*ratio, max(b.prefill*ratio, minPrefill)
	}
}

// convert takes the sums over to such a model, within the bounds of k.
func (c *calibration) convert(ratio float64) {
	c.estimated *= ratio
	c.observed = min(max(c.observed, fastest*c.estimated), slowest*c.estimated)
}
