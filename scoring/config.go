package scoring

import (
	"slices"
	"strings"

	"attache/internal/field"
)

// Config says how a worker is chosen.
type Config struct {
	// Policy is "time" (predicted seconds: prefix reuse, queues and running answers weighed against each other), "dynamo"
	// (the linear block cost of NVIDIA Dynamo's router), "least-load" (fewest requests in flight, then least booked
	// prefill), "round-robin" or "random". The last three do not look at prefixes at all.
	Policy string `yaml:"policy"`
	// Temperature spreads decisions over good candidates instead of always taking the best: the chance of a candidate falls
	// with exp(-cost / (temperature * (highest - lowest cost))). 0: always the best, and chance only among equals, as it
	// should be with one or a few gateways. 0.1 to 0.5 keeps many gateways that do not know of each other from running to
	// the same worker; 1 and more is nearly random.
	Temperature float64 `yaml:"temperature"`
	// Alpha is how much a prefill counts more for each request that it slows down on the worker, as a share of its time
	// (policy "time"). 0: not at all, then cold workers stay idle while loads are low; above 0.3 it scatters prefixes.
	Alpha float64 `yaml:"alpha"`
	// Evict weighs the time for computing again what a prompt would push out of a worker's cache, as far as it is likely to
	// be asked for (policy "time"; needs the size of the cache, which engines tell). 1: as estimated. 0: not at all, which
	// costs agents that come back after minutes a tenth of their time to first token and more.
	Evict float64 `yaml:"evict"`
	// Room weighs the wait for KV memory on a worker whose running requests nearly fill it (policy "time"). 0: not at all;
	// workers with small caches then collapse under long prompts.
	Room float64 `yaml:"room"`
	// Speed is how fast engines are, in proportion. Policy "time" decides with it; every policy predicts with it.
	Speed SpeedConfig `yaml:"speed"`
	// Dynamo are the parameters of policy "dynamo".
	Dynamo DynamoConfig `yaml:"dynamo"`
}

// DynamoOverride replaces weights of policy dynamo for one request; nil leaves one as it is.
type DynamoOverride struct {
	OverlapScoreCredit, PrefillLoadScale, Temperature *float64
}

// DynamoConfig are the parameters of Dynamo's linear cost, by its names.
type DynamoConfig struct {
	// OverlapScoreCredit is what a cached block takes off the prefill, in blocks. 0: cached blocks do not count; above 1
	// they also outweigh other requests' work.
	OverlapScoreCredit float64 `yaml:"overlap_score_credit"`
	// OverlapScoreCreditDecay shrinks that credit on a worker whose booked prefill exceeds the least of all, per prompt
	// length in excess. 0: never.
	OverlapScoreCreditDecay float64 `yaml:"overlap_score_credit_decay"`
	// PrefillLoadScale is the weight of prefill blocks against resident ones. At 1 a resident block counts as much as one
	// to compute, which costs a thousand times more; 16 is a better value for most loads. 0: prefill does not count.
	PrefillLoadScale float64 `yaml:"prefill_load_scale"`
	// DecodeActiveRequestWeight is what each request in flight counts, in blocks. 0: nothing.
	DecodeActiveRequestWeight float64 `yaml:"decode_active_request_weight"`
}

// DefaultConfig predicts seconds; its dynamo section is what Dynamo's own defaults are.
func DefaultConfig() Config {
	return Config{
		Policy:      nameTime,
		Temperature: 0,
		Alpha:       0.03,
		Evict:       1,
		Room:        3,
		Speed:       SpeedConfig{Profile: profiles[0].name},
		Dynamo:      DynamoConfig{OverlapScoreCredit: 1, PrefillLoadScale: 1},
	}
}

// UnmarshalYAML reads a section over what is set already; one that stands alone, as a pool's own scoring does, is read
// over the defaults, so that naming a policy is enough.
func (c *Config) UnmarshalYAML(unmarshal func(any) error) error {
	type plain Config
	p := plain(*c)
	if *c == (Config{}) {
		p = plain(DefaultConfig())
	}
	if err := unmarshal(&p); err != nil {
		return err
	}
	*c = Config(p)
	return nil
}

// The names of the policies.
const (
	nameTime       = "time"
	nameDynamo     = "dynamo"
	nameLeastLoad  = "least-load"
	nameRoundRobin = "round-robin"
	nameRandom     = "random"
)

var policies = []string{nameTime, nameDynamo, nameLeastLoad, nameRoundRobin, nameRandom}

// policies makes all policies, by name.
func (c Config) policies(speed Speed) map[string]Policy {
	all := map[string]Policy{}
	for _, p := range []Policy{
		&timePolicy{speed: speed, alpha: c.Alpha, evict: c.Evict, room: c.Room, marginal: speed.marginal()},
		&dynamoPolicy{dynamoWeights{
			credit: c.Dynamo.OverlapScoreCredit, decay: c.Dynamo.OverlapScoreCreditDecay,
			scale: c.Dynamo.PrefillLoadScale, request: c.Dynamo.DecodeActiveRequestWeight, host: 0.75, disk: 0.25,
		}},
		leastLoad{}, roundRobin{}, random{},
	} {
		all[p.Name()] = p
	}
	return all
}

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	_, known := c.Speed.speed()
	check.Check(slices.Contains(policies, c.Policy), "policy", c.Policy, "must be one of "+strings.Join(policies, ", "))
	check.Check(c.Temperature >= 0 && c.Temperature <= 100, "temperature", c.Temperature, "must be 0 (always the best) to 100")
	check.Check(c.Evict >= 0 && c.Evict <= 100, "evict", c.Evict, "must be 0 (not at all) to 100")
	check.Check(c.Room >= 0 && c.Room <= 100, "room", c.Room, "must be 0 (not at all) to 100")
	check.Check(c.Alpha >= 0 && c.Alpha <= 10, "alpha", c.Alpha, "must be 0 to 10")
	names := make([]string, len(profiles))
	for i, p := range profiles {
		names[i] = p.name
	}
	check.Check(known, "speed.profile", c.Speed.Profile, "must be one of "+strings.Join(names, ", "))
	for _, f := range []struct {
		key   string
		value float64
	}{
		{"speed.overhead_ms", c.Speed.OverheadMS}, {"speed.weights_ms", c.Speed.WeightsMS},
		{"speed.per_token_us", c.Speed.PerTokenUS}, {"speed.per_pair_ns", c.Speed.PerPairNS},
		{"speed.per_kv_token_ns", c.Speed.PerKVTokenNS},
		{"dynamo.overlap_score_credit", c.Dynamo.OverlapScoreCredit},
		{"dynamo.overlap_score_credit_decay", c.Dynamo.OverlapScoreCreditDecay},
		{"dynamo.prefill_load_scale", c.Dynamo.PrefillLoadScale},
		{"dynamo.decode_active_request_weight", c.Dynamo.DecodeActiveRequestWeight},
	} {
		check.Check(f.value >= 0 && f.value <= 1e9, f.key, f.value, "must be 0 to 1000000000")
	}
	check.Check(c.Speed.ChunkTokens >= 0 && c.Speed.ChunkTokens <= 1<<24, "speed.chunk_tokens", c.Speed.ChunkTokens,
		"must be 0 (as the profile) to 16777216 tokens")
	return check.Err()
}
