package trace

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// What comes with the program is what its README says.
func TestRecordings(t *testing.T) {
	for _, c := range []struct {
		name             string
		o                Options
		requests, blocks int
		prompt, output   int // tokens
		last             time.Duration
	}{
		{"conversation", Options{}, 12031, 182790 * 8, 144793823, 4122048, 3536999 * time.Millisecond},
		{"conversation", Options{Rows: 4000, Speedup: 2}, 4000, 71424 * 8, 53249359, 1388321, 650999500 * time.Microsecond},
		{"conversation-jittered", Options{BlockTokens: 512}, 4000, 71424, 53249359, 1388321, 0},
		{"synthetic", Options{BlockTokens: 512}, 3993, 43924, 61194628, 595432, 0},
	} {
		w, err := Open(c.name, c.o)
		if err != nil {
			t.Fatal(err)
		}
		prompt, output := 0, 0
		for _, r := range w.All {
			prompt += r.Prompt
			output += r.Output
		}
		t.Logf("%s: %d requests, %d blocks, %d and %d tokens, last at %v", c.name, len(w.All), w.IDs, prompt, output, w.Heads[len(w.Heads)-1].Arrival)
		if len(w.All) != c.requests || w.IDs != c.blocks || prompt != c.prompt || output != c.output {
			t.Errorf("%s: %d requests, %d blocks, %d and %d tokens", c.name, len(w.All), w.IDs, prompt, output)
		}
		if at := w.Heads[len(w.Heads)-1].Arrival; c.last != 0 && at != c.last {
			t.Errorf("%s: the last arrives at %v, want %v", c.name, at, c.last)
		}
		checkWorkload(t, w)
	}
}

// The jittered arrivals are those of the rows, at most 3 s later.
func TestJitteredArrivals(t *testing.T) {
	plain, err := Open("conversation", Options{Rows: 4000, BlockTokens: 512})
	if err != nil {
		t.Fatal(err)
	}
	at, err := jittered()
	if err != nil {
		t.Fatal(err)
	}
	if len(at) != len(plain.All) {
		t.Fatalf("%d arrivals of %d rows", len(at), len(plain.All))
	}
	for i, r := range plain.All {
		if late := at[i] - ms(r.Arrival); late < 0 || late > 3000 {
			t.Fatalf("row %d arrives %v ms late", i+1, late)
		}
	}
}

type fataler interface {
	Fatalf(format string, args ...any)
}

// checkWorkload checks what simulations rely on.
func checkWorkload(t fataler, w *Workload) {
	waiting := make([]int, len(w.All))
	for i, r := range w.All {
		if r.Index != i || r.Prompt < 1 || r.Output < 1 || len(r.IDs) != len(r.Chain) || len(r.IDs) > r.Prompt/w.BlockTokens {
			t.Fatalf("request %d of blocks of %d: %+v", i, w.BlockTokens, *r)
		}
		for j, id := range r.IDs {
			if id < 0 || int(id) >= w.IDs || r.Chain[j] != mix(uint64(id)) || r.Think < 0 {
				t.Fatalf("request %d: block %d is %d, below %d expected, in the chain %x", i, j, id, w.IDs, r.Chain[j])
			}
		}
		for _, next := range r.Next {
			if w.All[next.Index] != next || next.Index <= i {
				t.Fatalf("request %d is followed by %d", i, next.Index)
			}
			waiting[next.Index]++
		}
	}
	heads := 0
	for i, n := range waiting {
		if w.All[i].After != n {
			t.Fatalf("request %d waits for %d answers, %d lead to it", i, w.All[i].After, n)
		}
		if n == 0 {
			heads++
		}
	}
	if heads != len(w.Heads) || !slices.IsSortedFunc(w.Heads, func(a, b *Request) int { return int(a.Arrival - b.Arrival) }) {
		t.Fatalf("%d heads of %d, sorted by arrival expected", len(w.Heads), heads)
	}
}

func TestMooncakeRows(t *testing.T) {
	const rows = `{"timestamp": 1000, "input_length": 1100, "output_length": 0, "hash_ids": [5, 6, 7]}
{"timestamp": 500.5, "input_length": 600, "output_length": 9, "hash_ids": [5, 9], "session_id": "a"}

{"delay": 50, "input_length": 1024, "output_length": 9, "hash_ids": [5, 6], "session_id": "a"}
{"timestamp": 500.5, "input_length": 640, "output_length": 9, "hash_ids": [6]}
`
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write([]byte(rows)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	for _, in := range []string{rows, zipped.String()} {
		w, err := Mooncake(strings.NewReader(in), Options{BlockTokens: 256, Speedup: 2})
		if err != nil {
			t.Fatal(err)
		}
		checkWorkload(t, w)
		var got []string
		for _, r := range w.All {
			got = append(got, fmt.Sprint(r.Arrival, r.Prompt, r.Output, r.IDs, r.Session, r.Turn, r.Think, len(r.Next)))
		}
		want := []string{
			"249.75ms 1100 1 [0 1 2 3] -1 0 0s 0",
			"0s 600 9 [0 1] 0 0 0s 1",
			"0s 1024 9 [0 1 2 3] 0 1 25ms 0",
			"0s 640 9 [8 9] -1 0 0s 0", // 6 without 5 before it is another block
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q\nwant %q", got, want)
		}
		if w.Heads[0] != w.All[1] || w.Heads[1] != w.All[3] || w.Heads[2] != w.All[0] || len(w.Heads) != 3 {
			t.Error("heads are not in order of arrival")
		}
	}
}

func TestMooncakeErrors(t *testing.T) {
	const good = `{"timestamp": 0, "input_length": 10, "output_length": 1, "hash_ids": [1]}` + "\n"
	for _, c := range []struct {
		want, in string
		o        Options
	}{
		{"no rows", "\n", Options{}},
		{"row 2: ", good + `{"timestamp": "now"}`, Options{}},
		{"row 2: input_length 0", good + `{"timestamp": 0, "output_length": 1}`, Options{}},
		{"row 1: input_length 99999999", `{"timestamp": 0, "input_length": 99999999}`, Options{}},
		{"row 1: output_length -1", `{"timestamp": 0, "input_length": 1, "output_length": -1}`, Options{}},
		{"row 1: 2 hash_ids", `{"timestamp": 0, "input_length": 512, "hash_ids": [1, 2]}`, Options{}},
		{"row 1: no timestamp", `{"input_length": 512}`, Options{}},
		{"row 1: delay", `{"input_length": 512, "timestamp": 0, "delay": -1}`, Options{}},
		{"row 2: it arrives", good + `{"input_length": 512, "timestamp": 1e300}`, Options{}},
		{"row 2: bufio.Scanner: token too long", good + strings.Repeat(" ", maxLine+1), Options{}},
		{"the one must divide the other", good, Options{BlockTokens: 100}},
		{"speedup", good, Options{Speedup: -1}},
		{"speedup", good, Options{Speedup: math.NaN()}},
		{"jitter", good, Options{Jitter: -1}},
		{"-1 rows", good, Options{Rows: -1}},
		{"unexpected EOF", "\x1f\x8b no", Options{}},
	} {
		if _, err := Mooncake(strings.NewReader(c.in), c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: error %v, want %q", c.in, err, c.want)
		}
	}
}

func TestOpen(t *testing.T) {
	if _, err := Open("monologue", Options{}); err == nil || !strings.Contains(err.Error(), "one of conversation, conversation-jittered, synthetic") {
		t.Errorf("error %v", err)
	}
	file := filepath.Join(t.TempDir(), "rows.jsonl")
	if _, err := Open(file, Options{}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("error %v", err)
	}
	if err := os.WriteFile(file, []byte(`{"timestamp": 0, "input_length": 10}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if w, err := Open(file, Options{}); err != nil || len(w.All) != 1 {
		t.Errorf("%v, error %v", w, err)
	}
}

// Jitter keeps arrivals within its bound, depends on the seed alone, and ends in order.
func TestJitter(t *testing.T) {
	plain, err := Open("conversation", Options{Rows: 500, BlockTokens: 512, Speedup: 2})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Rows: 500, BlockTokens: 512, Speedup: 2, Jitter: 3 * time.Second}
	var first [2][]time.Duration
	for seed := range 2 {
		for range 2 {
			o.Seed = uint64(seed)
			w, err := Open("conversation", o)
			if err != nil {
				t.Fatal(err)
			}
			checkWorkload(t, w)
			var at []time.Duration
			for i, r := range w.All {
				at = append(at, r.Arrival)
				if late := r.Arrival - plain.All[i].Arrival; late < -1500*time.Millisecond || late > 1500*time.Millisecond {
					t.Fatalf("request %d is %v late", i, late)
				}
			}
			if first[seed] != nil && !slices.Equal(first[seed], at) {
				t.Error("equal seeds, different arrivals")
			}
			first[seed] = at
		}
	}
	if slices.Equal(first[0], first[1]) {
		t.Error("different seeds, equal arrivals")
	}
}

func TestSessions(t *testing.T) {
	for _, blockTokens := range []int{64, 512} {
		o := SessionOptions{BlockTokens: blockTokens, Rate: .2, Horizon: 600, Seed: 1}
		w, err := AgentSessions(o)
		if err != nil {
			t.Fatal(err)
		}
		checkWorkload(t, w)
		if w.Horizon != 600*time.Second || len(w.Heads) < 60 {
			t.Errorf("horizon %v, %d sessions", w.Horizon, len(w.Heads))
		}
		shared, blocks := 0, 0
		for _, r := range w.All {
			if r.Prompt > 131072 || r.Think > 300*time.Second || len(r.IDs) != r.Prompt/blockTokens {
				t.Fatalf("%d tokens, %d blocks, think %v", r.Prompt, len(r.IDs), r.Think)
			}
			for _, next := range r.Next {
				for i, id := range next.IDs {
					if i < len(r.IDs) && id == r.IDs[i] {
						shared++
					}
				}
				blocks += len(next.IDs)
			}
		}
		if share := float64(shared) / float64(blocks); share < .8 || share > 1 {
			t.Errorf("turns share %.2f of their blocks with the turn before", share)
		}
	}
}

func TestSessionErrors(t *testing.T) {
	good := SessionOptions{Rate: 1, Horizon: 10}
	for _, c := range []struct {
		want, in string
		o        SessionOptions
	}{
		{"rate", "", SessionOptions{Horizon: 1}},
		{"horizon", "", SessionOptions{Rate: 1}},
		{"blocks of -1", "", SessionOptions{Rate: 1, Horizon: 1, BlockTokens: -1}},
		{"no rows", "", good},
		{"no session", `{"r": []}`, good},
		{"row 1: turn 1", `{"r": [{"in": 1}, {"in": 0}]}`, good},
		{"row 1: ", `{"r": 1}`, good},
	} {
		if _, err := Sessions(strings.NewReader(c.in), c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.in, err, c.want)
		}
	}
}

func TestB2B(t *testing.T) {
	o := DefaultB2B()
	o.Rate = 10
	w, err := B2B(o)
	if err != nil {
		t.Fatal(err)
	}
	checkWorkload(t, w)
	if n := len(w.All); n < 2500 || n > 3500 { // 3000 are expected, with a standard deviation of 55
		t.Errorf("%d requests", n)
	}
	for _, r := range w.All {
		if r.Prompt != 7200 || r.Output != 1000 || len(r.IDs) != 112 {
			t.Fatalf("%+v", r)
		}
		group := r.Session / 5
		for _, other := range w.All[:50] {
			same := 0
			for same < 112 && r.IDs[same] == other.IDs[same] {
				same++
			}
			want := 0
			if other.Session/5 == group {
				want = 93
			}
			if other.Session == r.Session {
				want = 112
			}
			if same != want {
				t.Fatalf("users %d and %d share %d blocks, want %d", r.Session, other.Session, same, want)
			}
		}
	}
	o.Groups = 0
	if _, err := B2B(o); err == nil {
		t.Error("no group, no error")
	}
}

// Programs fan out and in, whatever their shape, and prompts share what they should.
func TestAgents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := AgentsOptions{
			BlockTokens: rapid.IntRange(1, 64).Draw(t, "block tokens"), System: rapid.IntRange(0, 500).Draw(t, "system"),
			Role: rapid.IntRange(0, 300).Draw(t, "role"), Task: rapid.IntRange(1, 100).Draw(t, "task"), Agents: rapid.IntRange(1, 4).Draw(t, "agents"),
			Turns: rapid.IntRange(1, 3).Draw(t, "turns"), Rounds: rapid.IntRange(1, 3).Draw(t, "rounds"), Grow: rapid.IntRange(0, 200).Draw(t, "grow"),
			Output: rapid.IntRange(1, 50).Draw(t, "output"), Think: 1, Rate: 1, Horizon: 10, Seed: rapid.Uint64().Draw(t, "seed"),
		}
		w, err := Agents(o)
		if err != nil {
			t.Fatal(err)
		}
		checkWorkload(t, w)
		if each := 1 + o.Rounds*(o.Agents*o.Turns+1); len(w.All) != each*len(w.Heads) {
			t.Fatalf("%d requests of %d programs of %d", len(w.All), len(w.Heads), each)
		}
		for _, r := range w.All {
			if len(r.IDs) != r.Prompt/o.BlockTokens {
				t.Fatalf("%d blocks of %d tokens", len(r.IDs), r.Prompt)
			}
			for i, id := range r.IDs[:o.System/o.BlockTokens] {
				if id != w.All[0].IDs[i] {
					t.Fatalf("request %d does not begin with the platform's prompt", r.Index)
				}
			}
			if n := len(r.Next); n != 0 && n != 1 && n != o.Agents || r.After > 1 && r.After != o.Agents {
				t.Fatalf("request %d waits for %d and is followed by %d", r.Index, r.After, n)
			}
		}
	})
	for _, change := range []func(*AgentsOptions){
		func(o *AgentsOptions) { o.Rate = 0 },
		func(o *AgentsOptions) { o.Agents = 0 },
		func(o *AgentsOptions) { o.Think = math.NaN() },
		func(o *AgentsOptions) { o.Grow = maxTokens },
	} {
		o := DefaultAgents()
		o.Rate = 1
		if change(&o); o.Rate == 1 {
			if _, err := Agents(DefaultAgents()); err == nil {
				t.Error("no rate, no error")
			}
		}
		if _, err := Agents(o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

// Whatever is read, the result is a workload that simulations can rely on, or an error.
func FuzzMooncake(f *testing.F) {
	f.Add([]byte(`{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [5, 6, 7], "session_id": "a", "delay": 3}`), int64(0))
	f.Add([]byte("{\"timestamp\": 2, \"input_length\": 1}\n{\"timestamp\": 1, \"input_length\": 600, \"hash_ids\": [1]}"), int64(5))
	f.Fuzz(func(t *testing.T, in []byte, jitter int64) {
		w, err := Mooncake(bytes.NewReader(in), Options{Jitter: time.Duration(jitter)})
		if err == nil {
			checkWorkload(t, w)
		}
	})
}
