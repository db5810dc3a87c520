package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rowsOf are three requests of Mooncake's format, two with a common beginning.
const rowsOf = `{"timestamp": 0, "input_length": 1100, "output_length": 3, "hash_ids": [1, 2, 3]}
{"timestamp": 9000, "input_length": 1200, "output_length": 3, "hash_ids": [1, 2, 4]}
{"timestamp": 20000, "input_length": 600, "output_length": 3, "hash_ids": [9, 10]}
`

func TestSimulation(t *testing.T) {
	dir := t.TempDir()
	file, results := filepath.Join(dir, "rows.jsonl"), filepath.Join(dir, "out.json")
	if err := os.WriteFile(file, []byte(rowsOf), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	args := "sim --workers 2 --seeds 2 --policy round-robin,dynamo:prefill_scale=16,time --policy time:evict=0,room=0 --trace " + file + " --json " + results
	if status := run(t.Context(), strings.Fields(args), &out, &errs); status != 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	// Lone requests take what a prefill takes: nothing here depends on chance, but who serves the first.
	want := `, 2 x dynamo-mocker

policy                   seed  completed     hit  ttft_mean_ms  ttft_p50_ms  ttft_p90_ms  ttft_p99_ms  tpot_mean_ms  tpot_p99_ms  e2e_mean_ms
round-robin                 1          3  0.0000          37.4         39.5         41.1         41.1           5.8          5.8         49.0
round-robin                 2          3  0.0000          37.4         39.5         41.1         41.1           5.8          5.8         49.0
dynamo:prefill_scale=16     1          3  0.3531          32.0         31.5         39.5         39.5           5.8          5.8         43.6
`
	if _, rest, ok := strings.Cut(out.String(), "rows.jsonl x1"); !ok || !strings.HasPrefix(rest, want) {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
	if !strings.Contains(out.String(), "\nmean of 2 seeds\n") || !strings.Contains(out.String(), "\ntime:evict=0,room=0  ") {
		t.Errorf("printed\n%s", out.String())
	}
	text, err := os.ReadFile(results)
	var rows []struct {
		Policy    string
		Seed      int
		Delivered int `json:"delivered_tokens"`
	}
	if err == nil {
		err = json.Unmarshal(text, &rows)
	}
	if err != nil || len(rows) != 8 || rows[0].Delivered != 0 || rows[7].Policy != "time:evict=0,room=0" || rows[7].Delivered != 1024 {
		t.Errorf("%v: %+v", err, rows)
	}
}

// A worker that fails takes its cache along, and one that is slow is slow.
func TestSimulatedTrouble(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(file, []byte(rowsOf), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	args := "sim --workers 2 --seeds 1 --policy time --speeds 0.5,0.5 --fail 0@5s --fail 1@19s --join 0@6s --trace " + file
	if status := run(t.Context(), strings.Fields(args), &out, &errs); status != 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	if !strings.Contains(out.String(), "\ntime       1          3  ") {
		t.Errorf("printed\n%s", out.String())
	}
}

// A suite is judged only if that is asked for.
func TestSuiteOfSimulations(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute under the race detector")
	}
	dir := t.TempDir()
	var out, errs bytes.Buffer
	args := "sim --suite ci --only b2b --seeds 1 --policy random --check --html " + dir + "/r.html --markdown " + dir + "/r.md --json " + dir + "/r.json"
	if status := run(t.Context(), strings.Fields(args), &out, &errs); status != 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	if !strings.Contains(out.String(), "\nrandom  ") || strings.Contains(out.String(), "\nTargets") {
		t.Errorf("printed\n%s", out.String())
	}
	for file, part := range map[string]string{"r.html": "<svg ", "r.md": "| random |", "r.json": `"suite": "ci"`} {
		if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !strings.Contains(string(text), part) {
			t.Errorf("%s has no %s: %v", file, part, err)
		}
	}
}

func TestSimulationsThatAreNone(t *testing.T) {
	for args, want := range map[string]string{
		"--policy tim":                            `policy "tim": policy: "tim": must be one of time, dynamo`,
		"--policy dynamo:scale=16":                `policy "dynamo:scale=16": scale: no such key; known: `,
		"--trace nowhere --policy time --seeds 1": "policy time, seed 1: trace nowhere: neither a file nor one of conversation, conversation-jittered, synthetic",
		"--engine cray":                           `profile "cray": one of ["dynamo-mocker" `,
		"--fail 3":                                "--fail 3: a worker's number, @ and a time expected, such as 3@20m",
		"--join x@3s":                             "--join x@3s: a worker's number",
		"--fail 9@1s --rows 10":                   "change at 1s of worker 9: there are 8 workers",
		"--speeds 1,2 --rows 10":                  "2 speeds for 8 workers: one each expected",
		"--agentic-rate 1 --b2b-qps 2":            "--agentic-rate, --b2b-qps, --agents-rate: one workload at a time",
		"--b2b-qps=-2":                            "a rate of -2 per second: must not be negative",
		"--seeds 5000":                            "--seeds 5000: between 1 and 1000 expected",
		"--warmup 1":                              "--warmup 1: a share from 0, below 1 expected",
		"--rows 10 --block-size 100":              "blocks of 100 tokens in a trace with blocks of 512: the one must divide the other",
		"--suite third":                           `suite "third": all or one of dynamo, second`,
		"--suite ci --only nothing":               `no scenario of suite ci has "nothing" in its name`,
		"--check":                                 "--only, --check, --markdown and --html are for suites: --suite is missing",
		"--suite ci --trace x.gz --speedup 2":     "--suite has its own workloads and clusters: --trace, --speedup mean nothing with it",
	} {
		var out, errs bytes.Buffer
		if status := run(t.Context(), append([]string{"sim"}, strings.Fields(args)...), &out, &errs); status != 1 || !strings.Contains(errs.String(), want) {
			t.Errorf("sim %s: status %d, %s\nwant %s", args, status, errs.String(), want)
		}
	}
}
