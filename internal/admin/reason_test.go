package admin

import "testing"

func TestReason(t *testing.T) {
	c := func(worker string, cached int, queue, prefill float64) Candidate {
		return Candidate{Worker: worker, CachedTokens: cached, Unit: "s", Eligible: true,
			Terms: []Term{{"queue", Known(queue)}, {"prefill", Known(prefill)}}, Total: Known(queue + prefill)}
	}
	passed := c("gpu-y", 9000, 0, 0.1)
	passed.Passed = true
	out := c("gpu-z", 9000, 0, 0)
	out.Eligible = false
	for _, test := range []struct {
		name string
		d    Decision
		want string
	}{
		{"common", Decision{Chosen: "gpu-b", PromptTokens: 4100, PredictedTTFTS: Known(0.21),
			Candidates: []Candidate{c("gpu-b", 3072, 0.1, 0.29), c("gpu-a", 0, 0, 0.48)}},
			"gpu-b: holds 3,072 of 4,100 prompt tokens, first token predicted in 210 ms; cost 390 ms, next best gpu-a 480 ms"},
		{"who holds more is busy", Decision{Chosen: "b", PromptTokens: 4100,
			Candidates: []Candidate{c("b", 0, 0, 0.5), c("a", 4100, 0.9, 0), c("d", 512, 0.1, 0.45)}},
			"b: holds none of 4,100 prompt tokens; cost 500 ms, next best d 550 ms; a holds 4,100 but costs 900 ms, mostly queue"},
		{"all of it", Decision{Chosen: "b", PromptTokens: 900, Candidates: []Candidate{c("b", 900, 0, 0.01), out}},
			"b: holds all 900 prompt tokens; the only eligible worker"},
		{"more were compared than kept", Decision{Chosen: "b", PromptTokens: 900, CandidatesTotal: 40,
			Candidates: []Candidate{c("b", 900, 0, 0.01)}},
			"b: holds all 900 prompt tokens; cost 10 ms"},
		{"others are passed over", Decision{Chosen: "b", PromptTokens: 900, Candidates: []Candidate{passed, c("b", 450, 0, 0.2)}},
			"b: holds 450 of 900 prompt tokens; cost 200 ms"},
		{"one is passed over, another is not", Decision{Chosen: "b", PromptTokens: 900,
			Candidates: []Candidate{c("b", 450, 0, 0.2), passed, c("a", 0, 0, 0.3)}},
			"b: holds 450 of 900 prompt tokens; cost 200 ms, next best a 300 ms"},
		{"level", Decision{Chosen: "b", PromptTokens: 10, Candidates: []Candidate{c("b", 0, 0, 1), c("a", 0, 0, 1.001)}},
			"b: holds none of 10 prompt tokens; cost 1.00 s, level with a"},
		{"drawn", Decision{Chosen: "b", PromptTokens: 10, Candidates: []Candidate{c("a", 0, 0, 0.5), c("b", 0, 0, 1)}},
			"b: holds none of 10 prompt tokens; cost 1.00 s, drawn although a costs 500 ms"},
		{"blocks", Decision{Chosen: "b", PromptTokens: 10, Candidates: []Candidate{
			{Worker: "b", Total: Known(12.34), Unit: "blocks", Eligible: true},
			{Worker: "a", Total: Known(1234.5), Unit: "blocks", Eligible: true}}},
			"b: holds none of 10 prompt tokens; cost 12.3 blocks, next best a 1234.5 blocks"},
		{"no prompt", Decision{Chosen: "b", PromptTokens: 10, Rung: "none"}, "b: chosen by load alone, the prompt was not understood"},
		{"not listed", Decision{Chosen: "b", PromptTokens: 1_234_567}, "b: chosen for 1,234,567 prompt tokens"},
		{"no costs", Decision{Chosen: "b", PromptTokens: 10,
			Candidates: []Candidate{{Worker: "b", Eligible: true}}}, "b: holds none of 10 prompt tokens"},
		{"other has no cost", Decision{Chosen: "b", PromptTokens: 10,
			Candidates: []Candidate{c("b", 0, 0, 1), {Worker: "a", Eligible: true}}},
			"b: holds none of 10 prompt tokens; cost 1.00 s"},
		{"retried", Decision{Chosen: "b", PromptTokens: 10, Served: "a", Attempts: 2, Candidates: []Candidate{c("b", 0, 0, 1)}},
			"b: holds none of 10 prompt tokens; the only eligible worker; answered by a on attempt 2"},
		{"elsewhere", Decision{Chosen: "b", Served: "a"}, "b: chosen by load alone, the prompt was not understood; answered by a"},
		{"turned away", Decision{Outcome: "no_worker"}, "not routed: no worker"},
		{"nothing known", Decision{}, "no worker was chosen"},
	} {
		if got := Reason(test.d); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
	}
}

func TestAmount(t *testing.T) {
	for _, c := range []struct {
		v    float64
		unit string
		want string
	}{
		{0, "s", "0.0 ms"}, {0.00414, "s", "4.1 ms"}, {0.00996, "s", "10 ms"}, {0.21, "s", "210 ms"},
		{0.9994, "s", "999 ms"}, {0.9996, "s", "1.00 s"},
		{12.34, "s", "12.3 s"}, {-0.5, "s", "-500 ms"}, {7, "blocks", "7.00 blocks"}, {123.4, "blocks", "123.4 blocks"},
		{2, "", "2.00"},
	} {
		if got := amount(c.v, c.unit); got != c.want {
			t.Errorf("amount(%v, %q) = %q, want %q", c.v, c.unit, got, c.want)
		}
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", -100: "-100", 1234567: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("grouped(%d) = %q, want %q", n, got, want)
		}
	}
}
