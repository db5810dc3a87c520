package quality

import (
	"testing"

	"attache/internal/sim/trace"
	"attache/internal/sim/virtual"
)

// Simulated against real time, with the scoring and the index of production, on one core: an hour of the conversation trace.
func BenchmarkConversation(b *testing.B) {
	for _, profile := range []string{virtual.DynamoMocker, secondEngine} {
		for _, name := range []string{"time", "dynamo", "round-robin"} {
			b.Run(profile+"/"+name, func(b *testing.B) {
				specs, err := ParseSpecs(name)
				if err != nil {
					b.Fatal(err)
				}
				w, err := trace.Open("conversation", trace.Options{})
				if err != nil {
					b.Fatal(err)
				}
				s := Scenario{Cluster: virtual.Config{Workers: 8, Profile: profile}}
				j := job{scenario: &s, policy: &specs[0], seed: 1, load: &loading{workload: w}}
				j.load.once.Do(func() {})
				span := 0.0
				for b.Loop() {
					row, err := j.run()
					if err != nil {
						b.Fatal(err)
					}
					span += row.SimulatedS
				}
				b.ReportMetric(span/b.Elapsed().Seconds(), "simulated/real")
			})
		}
	}
}
