package quality

import (
	"fmt"

	"attache/internal/sim/trace"
	"attache/internal/sim/virtual"
)

// holdings are ways to hold requests back while all workers are saturated, and none.
var holdings = []string{
	ours,
	ours + ":queue=fcfs,prefill_tokens=16384",
	ours + ":queue=wspt,prefill_tokens=1",
	ours + ":queue=wspt,prefill_tokens=16384",
	ours + ":queue=wspt,prefill_tokens=65536",
	ours + ":queue=wspt,ttft=1s",
	ours + ":queue=wspt,kv_share=0.9",
	ours + ":queue=wspt,in_flight=32",
}

// holdingScenarios are workers that have more to do than they can for a while, and two that have not.
func holdingScenarios() []Scenario {
	rows := func(recording, groupName string, workers int, speedup float64) Scenario {
		return Scenario{
			Name: fmt.Sprintf("%s, %d workers, x%s", recording, workers, number(speedup)), Group: groupName,
			Workload: Recorded(recording, trace.Options{Rows: 4000, Speedup: speedup}), Cluster: virtual.Config{Workers: workers},
		}
	}
	return []Scenario{
		rows("conversation", "bursts", 8, 2), rows("conversation", "bursts", 8, 4),
		rows("conversation-jittered", "smooth", 8, 2), rows("conversation-jittered", "smooth", 8, 4),
		rows("conversation", "overload", 8, 8), rows("conversation", "overload", 4, 4), rows("conversation", "overload", 4, 8),
		talk(8, 1, 1.4), selling(10),
	}
}
