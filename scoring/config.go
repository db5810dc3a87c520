package scoring

import (
	"slices"
	"strings"

	"attache/internal/field"
)

// Config says how a worker is chosen.
type Config struct {
	// Policy is "time" (predicted seconds: prefix reuse, queues and running answers weighed against each other), "dynamo"
	// (the linear block cost of NVIDIA Dynamo's router), "weighted" (a blend of cache, load and latency), "lmetric" (uncached
	// tokens times requests), "token-load" (uncached tokens), "sticky" (the same, but only among warm workers until they are
	// saturated), "least-load" (fewest requests in flight, then least booked prefill), "power-of-two" (the less busy of two drawn
	// at random), "chwbl" (by a hash of the prompt's beginning, with bounded loads), "session" (where the session was answered
	// before), "round-robin" or "random". To compare with, there are restatements of rules that other gateways publish:
	// "sglang-cache-aware", "aibrix-prefix", "blend-3-2-2" and "preble".
	Policy string `yaml:"policy"`
	// Temperature spreads decisions over good candidates instead of always taking the best: the chance of a candidate falls
	// with exp(-cost / (temperature * (highest - lowest cost))). 0: always the best, and chance only among equals, as it
	// should be with one or a few gateways. 0.1 to 0.5 keeps many gateways that do not know of each other from running to
	// the same worker; 1 and more is nearly random.
	Temperature float64 `yaml:"temperature"`
	// Alpha is how much a prefill counts more for each request that it slows down on the worker, as a share of its time
	// (policy "time"). 0: not at all, then cold workers stay idle while loads are low; above 0.3 it scatters prefixes.
	Alpha float64 `yaml:"alpha"`
	// Again is how much more a prefill counts than the time it takes, as a share of that (policy "time"): what is computed
	// where it was not held takes memory once more, and delays others. 0: nothing more; above 1 it keeps prefixes together where
	// queues are long.
	Again float64 `yaml:"again"`
	// Crowd weighs how full a worker's KV cache is with running requests, before any has to wait, as a share of the time that
	// requests stay (policy "time"). 0: not at all, then workers fill up one by one when answers are long.
	Crowd float64 `yaml:"crowd"`
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
	// Weighted are the parameters of policy "weighted".
	Weighted WeightedConfig `yaml:"weighted"`
	// Sticky are the parameters of policy "sticky".
	Sticky StickyConfig `yaml:"sticky"`
	// CHWBL are the parameters of policy "chwbl".
	CHWBL CHWBLConfig `yaml:"chwbl"`
}

// DynamoOverride replaces weights of policy dynamo for one request; nil leaves one as it is. Dynamo's assume_kv_reuse is not
// among them: without it a Demand has no Chain.
type DynamoOverride struct {
	OverlapScoreCredit, PrefillLoadScale, SharedCacheMultiplier, Temperature *float64

	TrackPrefillTokens *bool
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
	// HostCacheHitWeight is what a block in a worker's host memory takes off the prefill, 0 to 1 blocks. 0: such blocks do not
	// count.
	HostCacheHitWeight float64 `yaml:"host_cache_hit_weight"`
	// DiskCacheHitWeight is the same for a block on disk or beyond.
	DiskCacheHitWeight float64 `yaml:"disk_cache_hit_weight"`
	// SharedCacheMultiplier is the same for a block of a pool that all workers load from, beyond the worker's own device
	// blocks. 0: they do not count. Such a block counts as well if it is in host memory or on disk, as with Dynamo.
	SharedCacheMultiplier float64 `yaml:"shared_cache_multiplier"`
	// TrackPrefillTokens counts prefill at all, this prompt's and what is booked. False: only resident blocks and requests
	// count, as suits workers that only decode; on those cached blocks then come off the resident ones.
	TrackPrefillTokens bool `yaml:"track_prefill_tokens"`
	// TieBreak says who gets a request that costs the same on several workers: "random" or, as older versions of Dynamo had
	// it, "tree-size": who holds the fewest blocks, as far as events tell, then chance.
	TieBreak string `yaml:"tie_break"`
}

// DefaultConfig predicts seconds; its dynamo section is what Dynamo's own defaults are.
func DefaultConfig() Config {
	return Config{
		Policy:      nameTime,
		Temperature: 0,
		Alpha:       0.04,
		Again:       0.35,
		Crowd:       0.07,
		Evict:       1,
		Room:        1,
		Speed:       SpeedConfig{Profile: profiles[0].name},
		Dynamo: DynamoConfig{
			OverlapScoreCredit: 1, PrefillLoadScale: 1, HostCacheHitWeight: 0.75, DiskCacheHitWeight: 0.25,
			TrackPrefillTokens: true, TieBreak: tieRandom,
		},
		Weighted: WeightedConfig{Cache: 0.6, Load: 0.3, Latency: 0.1, Batch: 0.5, Memory: 0.3, Distance: 0.2},
		Sticky:   StickyConfig{Threshold: 0.8, TauTokens: 286_704},
		CHWBL:    CHWBLConfig{LoadFactor: 1.25},
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
	nameTime             = "time"
	nameDynamo           = "dynamo"
	nameWeighted         = "weighted"
	nameLMetric          = "lmetric"
	nameTokenLoad        = "token-load"
	nameSticky           = "sticky"
	nameLeastLoad        = "least-load"
	namePowerOfTwo       = "power-of-two"
	nameCHWBL            = "chwbl"
	nameSession          = "session"
	nameRoundRobin       = "round-robin"
	nameRandom           = "random"
	nameSGLangCacheAware = "sglang-cache-aware"
	nameAIBrixPrefix     = "aibrix-prefix"
	nameBlend            = "blend-3-2-2"
	namePreble           = "preble"
)

var policies = []string{
	nameTime, nameDynamo, nameWeighted, nameLMetric, nameTokenLoad, nameSticky, nameLeastLoad, namePowerOfTwo, nameCHWBL, nameSession,
	nameRoundRobin, nameRandom, nameSGLangCacheAware, nameAIBrixPrefix, nameBlend, namePreble,
}

// The ways to break ties of policy dynamo.
const (
	tieRandom   = "random"
	tieTreeSize = "tree-size"
)

// policies makes all policies, by name.
func (c Config) policies(speed Speed) map[string]Policy {
	all := map[string]Policy{}
	for _, p := range []Policy{
		&timePolicy{speed: speed, alpha: c.Alpha, again: c.Again, evict: c.Evict, room: c.Room, crowd: c.Crowd, marginal: speed.marginal()},
		c.Dynamo.policy(), &weighted{c.Weighted}, lmetric{}, tokenLoad{}, &stickyPolicy{c.Sticky}, leastLoad{}, powerOfTwo{},
		&chwbl{c.CHWBL.LoadFactor}, session{}, roundRobin{}, random{}, sglangCacheAware{}, aibrixPrefix{}, blend{}, &preble{speed},
	} {
		all[p.Name()] = p
	}
	return all
}

func (c *DynamoConfig) policy() Policy {
	return &dynamoPolicy{
		weights: dynamoWeights{
			credit: c.OverlapScoreCredit, decay: c.OverlapScoreCreditDecay, scale: c.PrefillLoadScale, host: c.HostCacheHitWeight,
			disk: c.DiskCacheHitWeight, shared: c.SharedCacheMultiplier, request: c.DecodeActiveRequestWeight,
		},
		tracking: c.TrackPrefillTokens, treeSize: c.TieBreak == tieTreeSize,
	}
}

// mostWeight is more than any weight needs to be; larger ones would lose what they are added to.
const mostWeight = 1e9

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	_, known := c.Speed.speed()
	check.Check(slices.Contains(policies, c.Policy), "policy", c.Policy, "must be one of "+strings.Join(policies, ", "))
	check.Check(c.Temperature >= 0 && c.Temperature <= 100, "temperature", c.Temperature, "must be 0 (always the best) to 100")
	check.Check(c.Again >= 0 && c.Again <= 100, "again", c.Again, "must be 0 (nothing more) to 100")
	check.Check(c.Crowd >= 0 && c.Crowd <= 100, "crowd", c.Crowd, "must be 0 (not at all) to 100")
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
		{"dynamo.shared_cache_multiplier", c.Dynamo.SharedCacheMultiplier},
		{"weighted.cache", c.Weighted.Cache}, {"weighted.load", c.Weighted.Load}, {"weighted.latency", c.Weighted.Latency},
		{"weighted.batch", c.Weighted.Batch}, {"weighted.memory", c.Weighted.Memory}, {"weighted.distance", c.Weighted.Distance},
		{"sticky.tau_tokens", c.Sticky.TauTokens},
	} {
		check.Check(f.value >= 0 && f.value <= mostWeight, f.key, f.value, "must be 0 to 1000000000")
	}
	for _, f := range []struct {
		key   string
		value float64
	}{
		{"dynamo.host_cache_hit_weight", c.Dynamo.HostCacheHitWeight}, {"dynamo.disk_cache_hit_weight", c.Dynamo.DiskCacheHitWeight},
	} {
		check.Check(f.value >= 0 && f.value <= 1, f.key, f.value, "must be 0 to 1")
	}
	check.Check(c.Dynamo.TieBreak == tieRandom || c.Dynamo.TieBreak == tieTreeSize, "dynamo.tie_break", c.Dynamo.TieBreak,
		"must be "+tieRandom+" or "+tieTreeSize)
	w := &c.Weighted
	check.Check(w.Cache != 0 || w.Load != 0 || w.Latency != 0, "weighted.cache", w.Cache, "must not be 0 while load and latency are")
	check.Check(w.Batch != 0 || w.Memory != 0 || w.Distance != 0, "weighted.batch", w.Batch,
		"must not be 0 while memory and distance are")
	check.Check(c.Sticky.Threshold > 0 && c.Sticky.Threshold <= 1, "sticky.threshold", c.Sticky.Threshold, "must be above 0, to 1")
	check.Check(c.CHWBL.LoadFactor >= 1 && c.CHWBL.LoadFactor <= 1000, "chwbl.load_factor", c.CHWBL.LoadFactor, "must be 1 to 1000")
	check.Check(c.Speed.ChunkTokens >= 0 && c.Speed.ChunkTokens <= 1<<24, "speed.chunk_tokens", c.Speed.ChunkTokens,
		"must be 0 (as the profile) to 16777216 tokens")
	return check.Err()
}
