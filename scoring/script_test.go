package scoring

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"attache/internal/golden"
	"attache/internal/slot"
)

// TestScripts runs testdata/*.txt: decisions that a reader can check by hand. A part is comments, a command, a line of
// dashes, and what it prints. Commands:
//
//	policy NAME [alpha=N] [scale=N] [decay=N] [requests=N] [pool=N] [tracking=0] [tree-size=1] [tau=N]
//	                                    start anew
//	workers w0 [running=N] [waiting=N] [use=N] [stale=1] [held=TOKENS] [device=BLOCKS] [host=N] [disk=N] [remote=N]
//	        [preference=N] [decode=1] [bound=1] [batch=TOKENS] [memory=GB] [distance=N] [id=N]
//	                                    what is known of a worker from now on
//	request ID PROMPT w0=CACHED w1=...  choose among these workers; prints all, best first. Also [key=N] [pool=TOKENS], and what
//	                                    replaces weights of dynamo: [credit=N] [scale=N] [multiplier=N]
//	prefilled|end ID, move ID wN, observe ID DURATION, wait DURATION
//	loads                               prints what is booked
func TestScripts(t *testing.T) {
	golden.Scripts(t, func(t *testing.T) func([]string) string { return (&stage{t: t}).run })
}

type stage struct {
	t        *testing.T
	scorer   *Scorer
	clock    *clock
	bookings map[string]*Booking
	engines  [10]Candidate
}

func (s *stage) run(words []string) string {
	switch words[0] {
	case "policy":
		s.start(words[1], words[2:])
	case "workers":
		c := &s.engines[worker(words[1])]
		for _, w := range words[2:] {
			key, n := setting(w)
			learn(c, key, n)
		}
	case "request":
		return s.request(words[1], int(number(words[2])), words[3:])
	case "prefilled":
		s.bookings[words[1]].Prefilled()
	case "end":
		s.bookings[words[1]].End()
	case "move":
		s.bookings[words[1]].Move(worker(words[2]))
	case "observe":
		s.scorer.Observe(s.bookings[words[1]], Outcome{EngineTTFT: duration(words[2])})
		return fmt.Sprintf("k = %.3f\n", s.scorer.SpeedFactor())
	case "wait":
		s.clock.Time = s.clock.Add(duration(words[1]))
	case "loads":
		return s.loads()
	default:
		panic("unknown command " + words[0])
	}
	return "ok\n"
}

func (s *stage) start(policy string, settings []string) {
	cfg := DefaultConfig()
	cfg.Policy = policy
	cfg.Alpha, cfg.Again, cfg.Crowd = .03, 0, 0 // times alone
	for _, w := range settings {
		switch key, n := setting(w); key {
		case "alpha":
			cfg.Alpha = n
		case "scale":
			cfg.Dynamo.PrefillLoadScale = n
		case "decay":
			cfg.Dynamo.OverlapScoreCreditDecay = n
		case "requests":
			cfg.Dynamo.DecodeActiveRequestWeight = n
		case "pool":
			cfg.Dynamo.SharedCacheMultiplier = n
		case "tracking":
			cfg.Dynamo.TrackPrefillTokens = n != 0
		case "tree-size":
			cfg.Dynamo.TieBreak = tieTreeSize
		case "tau":
			cfg.Sticky.TauTokens = n
		default:
			panic("unknown setting " + key)
		}
	}
	s.scorer, s.clock = newScorer(s.t, cfg)
	s.bookings = map[string]*Booking{}
	s.engines = [10]Candidate{}
}

// learn changes what is known of a worker.
func learn(c *Candidate, key string, n float64) {
	switch key {
	case "running":
		c.EngineRunning = int(n)
	case "waiting":
		c.EngineWaiting = int(n)
	case "use":
		c.EngineKVUse = n
	case "stale":
		c.Stale = n != 0
	case "held":
		c.KVHeldTokens = int(n)
	case "device":
		c.Tiers[slot.Device] = int32(n)
	case "host":
		c.Tiers[slot.Host] = int32(n)
	case "disk":
		c.Tiers[slot.Disk] = int32(n)
	case "remote":
		c.Tiers[slot.Remote] = int32(n)
	case "preference":
		c.Preference = n
	case "decode":
		c.Decode = n != 0
	case "bound":
		c.Bound = n != 0
	case "batch":
		c.BatchTokens = int(n)
	case "memory":
		c.Memory = n * 1e9
	case "distance":
		c.Distance = n
	case "id":
		c.ID = uint64(n)
	default:
		panic("nothing known of a worker is called " + key)
	}
}

func (s *stage) request(id string, prompt int, workers []string) string {
	d, pool := ask(prompt), 0
	d.Dynamo = &DynamoOverride{}
	var candidates []Candidate
	for _, w := range workers {
		switch key, n := setting(w); key {
		case "key":
			d.Key = uint64(n)
		case "pool":
			pool = int(n)
		case "credit":
			d.Dynamo.OverlapScoreCredit = &n
		case "scale":
			d.Dynamo.PrefillLoadScale = &n
		case "multiplier":
			d.Dynamo.SharedCacheMultiplier = &n
		default:
			c := s.engines[worker(key)]
			c.Slot, c.CachedTokens = worker(key), int(n)
			candidates = append(candidates, c)
		}
	}
	for i := range candidates {
		candidates[i].SharedTokens = pool
	}
	ranked, b := pick(s.scorer, d, candidates)
	s.bookings[id] = b
	var out strings.Builder
	for _, r := range ranked {
		fmt.Fprintf(&out, "w%d: %v\n", r.Slot, r.Terms)
	}
	fmt.Fprintf(&out, "first token predicted in %v\n", b.PredictedTTFT.Round(time.Millisecond))
	return out.String()
}

func (s *stage) loads() string {
	var out strings.Builder
	for i := range s.scorer.loads {
		l := s.scorer.Load(slot.Slot(i))
		fmt.Fprintf(&out, "w%d: %d in flight, backlog %.3f s and %d tokens, context %d tokens in %d blocks\n",
			i, l.InFlight, l.QueueSeconds, l.PrefillTokens, l.ContextTokens, l.ContextBlocks)
	}
	return out.String()
}

func worker(name string) slot.Slot { return slot.Slot(number(strings.TrimPrefix(name, "w"))) }

func setting(word string) (key string, value float64) {
	key, text, _ := strings.Cut(word, "=")
	return key, number(text)
}

func number(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}
