package router

import (
	"fmt"

	"attache/scoring"
)

// settings are one configuration with what follows from it. They do not change: a request has the same ones from begin to end.
type settings struct {
	Config

	models models
}

// scoringOf is the configuration of a pool's scoring.
func (c *Config) scoringOf(p *PoolConfig) scoring.Config {
	if p.Scoring != nil {
		return *p.Scoring
	}
	return c.Scoring
}

// Reconfigure routes by another configuration, which must have been validated, from now on. Requests on their way keep the one they began
// with; those that wait keep their place, and are let through by the new limits. Bookings, sessions, what is remembered of prompts and what was learnt of engines stay. The
// pools must be the same, in the same order; and nothing else may differ than Config's max_in_flight, saturation, queue, affinity,
// retry_after, alternatives, feedback_ttl, booking_ttl, tenants and scoring, and PoolConfig's models, aliases and scoring: of the rest
// the effect is undefined. It is for one caller at a time.
func (r *Router) Reconfigure(cfg Config, pools []PoolConfig) error {
	if len(pools) != len(r.pools) {
		return fmt.Errorf("router: %d pools: must be the %d that it was made with", len(pools), len(r.pools))
	}
	for i := range pools {
		if is, was := pools[i].Name, r.pools[i].name; is != was {
			return fmt.Errorf("router: pools[%d].name: %q: must be %q, as it was made with", i, is, was)
		}
		if err := cfg.scoringOf(&pools[i]).Validate(); err != nil {
			return fmt.Errorf("router: pools[%d].scoring: %w", i, err)
		}
	}
	for i := range pools {
		p := r.pools[i]
		if err := p.scorer.Reconfigure(cfg.scoringOf(&pools[i])); err != nil {
			return err // it was validated above
		}
		p.sessions.limit(cfg.Affinity.Sessions)
		p.tenants.most.Store(int64(cfg.Tenants))
	}
	s := &settings{Config: cfg, models: newModels(pools, r.pools)}
	r.settings.Store(s)
	for _, p := range r.pools {
		p.gate.reconfigure(s)
	}
	return nil
}
