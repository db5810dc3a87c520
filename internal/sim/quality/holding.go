package quality

import (
	"fmt"

	"attache/internal/sim/trace"
	"attache/internal/sim/virtual"
)

// advised is how to hold requests back, if at all: shortest first, when every worker has sixteen steps of work before it.
const advised = ours + ":queue=wspt,ageing=60s,prefill_tokens=131072"

// holdings are ways to hold requests back while all workers are saturated, and none.
var holdings = []string{
	ours,
	ours + ":queue=fcfs,prefill_tokens=131072",
	ours + ":queue=wspt,ageing=10s,prefill_tokens=131072",
	advised,
	ours + ":queue=wspt,ageing=60s,prefill_tokens=16384",
	ours + ":queue=wspt,ageing=60s,prefill_tokens=1",
	ours + ":queue=wspt,ageing=60s,ttft=3s",
	ours + ":queue=wspt,ageing=60s,kv_share=0.9",
	ours + ":queue=wspt,ageing=60s,in_flight=32",
}

// Groups of holdingScenarios.
const (
	bursts   = "bursts"
	smooth   = "smooth"
	overload = "overload"
)

// holdingScenarios are workers that get more than they can do for three seconds, for long, or without end.
func holdingScenarios() []Scenario {
	rows := func(groupName, recording string, workers int, speedup float64) Scenario {
		return Scenario{
			Name: fmt.Sprintf("%s, %d workers, x%s", recording, workers, number(speedup)), Group: groupName,
			Workload: Recorded(recording, trace.Options{Rows: 4000, Speedup: speedup}), Cluster: virtual.Config{Workers: workers},
		}
	}
	endless, many := talk(8, 1, 2), selling(12)
	endless.Group, many.Group = overload, overload
	return []Scenario{
		rows(bursts, "conversation", 8, 2), rows(bursts, "conversation", 8, 4), rows(smooth, "conversation-jittered", 8, 4),
		rows(overload, "conversation", 8, 8), rows(overload, "conversation", 4, 4), rows(overload, "conversation", 4, 8),
		talk(8, 1, 1.4), endless, coding(8, .15), coding(8, .3), selling(10), many,
	}
}
