package sim

import "time"

// DemoEngine is an engine as the demo and its load assume: the default machine, four times as fast, with a KV cache of
// 144,000 tokens. That is room for its share of the conversations on four engines, and for a third of all of them.
func DemoEngine() Config {
	cfg := DefaultConfig()
	cfg.Speed = 4
	cfg.KVBlocks = 9000
	return cfg
}

// DemoLoad is a load for four DemoEngines on a machine of two cores that they share with Envoy and the client: 25 to 45
// requests a second with bodies of 12 to 90 KB. Prefixes are worth much here and there is no room to keep them everywhere,
// as with agents on real engines; with round robin the engines are busy nine tenths of the time. URL and Model are missing.
func DemoLoad() Load {
	return Load{
		Workload: Workload{
			Seed:         1,
			Prompts:      12,
			SystemBytes:  8_000,
			TaskBytes:    Range[int]{4_000, 10_000},
			StepBytes:    Range[int]{2_000, 6_000},
			Turns:        Range[int]{7, 14},
			OutputTokens: Range[int]{16, 48},
			Think:        Range[time.Duration]{300 * time.Millisecond, 1700 * time.Millisecond},
		},
		Duration:      20 * time.Second,
		Conversations: 48,
		Waves:         8,
		Wave:          500 * time.Millisecond,
		Timeout:       30 * time.Second,
		ProgressEvery: time.Second,
	}
}
