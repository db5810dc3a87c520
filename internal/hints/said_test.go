package hints

import (
	"strings"
	"testing"
	"time"
)

func TestSaid(t *testing.T) {
	if names := new(Hints).Said().Names(); len(names) != 0 {
		t.Errorf("nothing was said, and %v", names)
	}
	all := Hints{
		PriorityFrom: FromHeader, strict: true, Objective: "o", PolicyClass: "c", Session: "s", ParentSession: "p", SessionFinal: true,
		Program: "p", ContextType: "t", PromptCacheKey: "k", OutputTokens: 1, TTFT: time.Second, TPOT: time.Second, Deadline: time.Second,
		CacheTTL: time.Second, SpeculativePrefill: true, Flow: "f", User: "u", Tenant: "t", Worker: "w", Ranked: true,
		Required: [MaxTaints]string{"x"}, Policy: "p", Weights: Weights{RouterTemperature: Number{Said: true}}, Model: "m",
	}
	names := all.Said().Names()
	if len(names) != int(kinds) {
		t.Errorf("%d kinds were said, want %d: %s", len(names), kinds, strings.Join(names, " "))
	}
	if some := (&Hints{Session: "s", Ranked: true}).Said().Names(); strings.Join(some, " ") != "session rank" {
		t.Errorf("%v", some)
	}
}
