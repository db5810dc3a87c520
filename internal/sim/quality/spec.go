package quality

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"attache/internal/sim/gateway"
	"attache/scoring"
	"attache/scoring/queue"
)

// SharedCache is the name of the reference: all workers read one cache, and a request goes where the least work is before it.
const SharedCache = "shared-cache"

// Spec is one side of a comparison: a policy, its settings, and what its gateway knows.
type Spec struct {
	// Name is the spec as it was written.
	Name string
	// Reference says that it is SharedCache; nothing below means anything then.
	Reference bool
	// FirstTokens and TrueCaches are those of gateway.Options.
	FirstTokens gateway.Signal
	TrueCaches  bool
	// Lag of KV events; negative: that of the scenario.
	Lag time.Duration
	// NoReuse turns the engines' prefix caches off.
	NoReuse bool
	// Queue and Limits are those of gateway.Options: requests are held back if both are there.
	Queue  queue.Config
	Limits scoring.Limits
	// Replicas is how many gateways decide, each told what the others decide after Sync; 0 one.
	Replicas int
	Sync     time.Duration

	speedError float64
	settings   []setting
}

// setting is one value of router.scoring. section is empty for its own keys.
type setting struct{ section, key, value string }

// options are the keys of a spec that are none of router.scoring.
const options = "first_tokens, true_caches, speed_error, lag, reuse, replicas, sync, queue, ageing, in_flight, prefill_tokens, kv_share, ttft"

// aliases are short names of keys.
var aliases = map[string]string{"prefill_scale": "prefill_load_scale"}

// ParseSpecs reads specs as people write them: "name" or "name:key=value,key=value", several of them with ';' or ',' between. A
// part behind a ',' that has no '=', or a ':' before it, begins the next spec. Keys are those of the policy's section of
// router.scoring, those of router.scoring itself, "section.key", and
//
//	first_tokens=live|events|clock   how prefills are known to be over
//	true_caches=true                 evictions priced by the engines' caches
//	speed_error=2                    the router's speed model, times this
//	lag=1s                           of KV events
//	reuse=false                      engines without prefix cache
//	replicas=4                       so many gateways, any of which gets a request; they tell each other what they decide,
//	sync=10ms                        which takes so long; off: they do not
//	queue=fcfs|lcfs|wspt|edf         requests wait in this order while all workers are saturated, which they are by
//	in_flight=8                      requests in flight,
//	prefill_tokens=16384             prompt tokens that are not computed yet,
//	kv_share=0.9                     the share of the KV cache that requests in flight take, or
//	ttft=1s                          the predicted time to first token
//	ageing=10s                       of wspt and lcfs
//
// Errors name the spec, the key and the known ones.
func ParseSpecs(texts ...string) ([]Spec, error) {
	var names []string
	for _, text := range texts {
		for part := range strings.SplitSeq(text, ";") {
			begun := false
			for p := range strings.SplitSeq(part, ",") {
				p = strings.TrimSpace(p)
				key, _, isSetting := strings.Cut(p, "=")
				switch {
				case p == "":
				case begun && isSetting && !strings.Contains(key, ":"):
					names[len(names)-1] += "," + p
				default:
					names, begun = append(names, p), true
				}
			}
		}
	}
	specs := make([]Spec, 0, len(names))
	for _, name := range names {
		if slices.ContainsFunc(specs, func(s Spec) bool { return s.Name == name }) {
			continue
		}
		s, err := parseSpec(name)
		if err != nil {
			return nil, fmt.Errorf("policy %q: %w", name, err)
		}
		specs = append(specs, s)
	}
	return specs, nil
}

func parseSpec(name string) (Spec, error) {
	s := Spec{Name: name, Lag: -1, Queue: queue.DefaultConfig(), Sync: usualSync}
	policy, list, _ := strings.Cut(name, ":")
	if policy == SharedCache {
		s.Reference = true
		if list != "" {
			return s, fmt.Errorf("%s: %s has no settings", list, SharedCache)
		}
		return s, nil
	}
	known, err := readKeys(policy)
	if err != nil {
		return s, err
	}
	s.settings = append(s.settings, setting{"", "policy", policy})
	for part := range strings.SplitSeq(list, ",") {
		if part == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			return s, fmt.Errorf("%s: key=value expected", part)
		}
		if long, is := aliases[key]; is {
			key = long
		}
		if is, err := s.option(key, value); err != nil {
			return s, fmt.Errorf("%s=%s: %w", key, value, err)
		} else if is {
			continue
		}
		set, is := known.find(key)
		if !is {
			return s, fmt.Errorf("%s: no such key; known: %s", key, known)
		}
		set.value = value
		s.settings = append(s.settings, set)
	}
	if err := s.checkQueue(); err != nil {
		return s, err
	}
	_, err = s.Scoring("")
	return s, err
}

// usualSync is how long replicas take to hear of each other's decisions: what is gathered for a batch, the way to Redis and back, and
// some for a machine that is busy.
const usualSync = 10 * time.Millisecond

// checkQueue: an order without a limit, or the other way about, would mean nothing.
func (s *Spec) checkQueue() error {
	switch limited := s.Limits != (scoring.Limits{}); {
	case limited && len(s.Queue.Classes) == 0:
		return errors.New("in_flight, prefill_tokens, kv_share and ttft say when requests wait: queue=fcfs, or another order, expected beside them")
	case !limited && len(s.Queue.Classes) > 0:
		return errors.New("queue and ageing say how requests wait: in_flight, prefill_tokens, kv_share or ttft expected beside them")
	}
	if s.Replicas > 1 && s.Queue.Enabled() {
		return errors.New("replicas: several with a queue each are not simulated")
	}
	return s.Queue.Validate()
}

// option sets what is no key of router.scoring.
func (s *Spec) option(key, value string) (is bool, err error) {
	switch key {
	case "first_tokens":
		s.FirstTokens = gateway.Signal(value)
		if !slices.Contains([]gateway.Signal{gateway.Live, gateway.Events, gateway.Clock}, s.FirstTokens) {
			err = fmt.Errorf("%s, %s or %s expected", gateway.Live, gateway.Events, gateway.Clock)
		}
	case "true_caches":
		s.TrueCaches, err = truth(value)
	case "reuse":
		var reuse bool
		reuse, err = truth(value)
		s.NoReuse = !reuse
	case "speed_error":
		s.speedError, err = strconv.ParseFloat(value, 64)
		if err != nil || !(s.speedError >= 1e-3 && s.speedError <= 1e3) {
			err = errors.New("a factor between 0.001 and 1000 expected")
		}
	case "lag":
		s.Lag, err = time.ParseDuration(value)
		if err != nil || s.Lag < 0 {
			err = errors.New("a time such as 100ms expected")
		}
	case "replicas":
		s.Replicas, err = atLeastOne(value)
	case "sync":
		if s.Sync = gateway.Alone; value == "off" {
			break
		}
		s.Sync, err = time.ParseDuration(value)
		if err != nil || s.Sync < 0 {
			err = errors.New("a time such as 10ms, or off, expected")
		}
	default:
		return s.holding(key, value)
	}
	return true, err
}

// holding sets how requests are held back.
func (s *Spec) holding(key, value string) (is bool, err error) {
	class := queue.DefaultClass()
	if len(s.Queue.Classes) > 0 {
		class = s.Queue.Classes[0]
	}
	switch key {
	case "queue":
		class.Policy = value
	case "ageing":
		class.Ageing, err = time.ParseDuration(value)
	case "in_flight":
		s.Limits.InFlight, err = atLeastOne(value)
		return true, err
	case "prefill_tokens":
		s.Limits.PrefillTokens, err = atLeastOne(value)
		return true, err
	case "kv_share":
		s.Limits.KVShare, err = strconv.ParseFloat(value, 64)
		if err != nil || !(s.Limits.KVShare > 0 && s.Limits.KVShare <= 10) {
			err = errors.New("a share above 0, at most 10 expected")
		}
		return true, err
	case "ttft":
		s.Limits.TTFT, err = time.ParseDuration(value)
		if err != nil || s.Limits.TTFT <= 0 {
			err = errors.New("a time such as 500ms expected")
		}
		return true, err
	default:
		return false, nil
	}
	if err != nil {
		err = errors.New("a time such as 10s expected")
	}
	s.Queue.Limits.Requests, s.Queue.Classes = unbounded, []queue.ClassConfig{class}
	return true, err
}

// unbounded is room for all requests of any workload.
const unbounded = 1e7

func atLeastOne(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return 0, errors.New("a number from 1 on expected")
	}
	return n, nil
}

func truth(value string) (bool, error) {
	if value != "true" && value != "false" {
		return false, errors.New("true or false expected")
	}
	return value == "true", nil
}

// Scoring is the configuration on engines of a profile; empty is the default one.
func (s *Spec) Scoring(profile string) (scoring.Config, error) {
	c := scoring.DefaultConfig()
	if profile != "" {
		c.Speed.Profile = profile
	}
	c.Speed.Error = s.speedError
	for _, set := range s.settings {
		text := set.key + ": " + set.value
		if set.section != "" {
			text = set.section + ": {" + text + "}"
		}
		if err := yaml.Unmarshal([]byte(text), &c); err != nil {
			return c, fmt.Errorf("%s=%s: a value like the default's expected (docs/configuration.md, router.scoring)", set.key, set.value)
		}
	}
	return c, c.Validate()
}

// keys are those of router.scoring that a spec may have, as the file spells them.
type keys struct {
	section string   // the policy's
	inside  []string // that section
	top     []string
	dotted  []string // of all sections
}

// readKeys asks the configuration itself.
func readKeys(policy string) (keys, error) {
	k := keys{section: strings.ReplaceAll(policy, "-", "_")}
	text, err := yaml.Marshal(scoring.DefaultConfig())
	if err != nil {
		return k, err
	}
	var all yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(text, &all, yaml.UseOrderedMap()); err != nil {
		return k, err
	}
	for _, item := range all {
		name := fmt.Sprint(item.Key)
		section, is := item.Value.(yaml.MapSlice)
		if !is && name != "policy" {
			k.top = append(k.top, name)
		}
		for _, inner := range section {
			key := fmt.Sprint(inner.Key)
			k.dotted = append(k.dotted, name+"."+key)
			if name == k.section {
				k.inside = append(k.inside, key)
			}
		}
	}
	return k, nil
}

func (k keys) find(key string) (setting, bool) {
	switch section, inner, dotted := strings.Cut(key, "."); {
	case slices.Contains(k.inside, key):
		return setting{section: k.section, key: key}, true
	case slices.Contains(k.top, key):
		return setting{key: key}, true
	case dotted && slices.Contains(k.dotted, key):
		return setting{section: section, key: inner}, true
	}
	return setting{}, false
}

// String lists what there is, the nearest first.
func (k keys) String() string {
	own := slices.Clone(k.inside)
	for short, long := range aliases {
		if slices.Contains(own, long) {
			own = append(own, short)
		}
	}
	rest := slices.DeleteFunc(slices.Clone(k.dotted), func(key string) bool { return strings.HasPrefix(key, k.section+".") })
	return strings.Join(slices.Concat(own, []string{options}, k.top, rest), ", ")
}
