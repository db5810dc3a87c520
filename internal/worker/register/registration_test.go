package register

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"attache/internal/bubble"
	"attache/internal/worker"
)

// whole is a registration with every member.
const whole = `{"name":"gpu-a","pool":"chat","address":"10.0.0.1:8000","engine":"vllm","role":"decode","models":["qwen"],
	"capacity":{"max_in_flight":64,"kv_blocks":9000,"block_tokens":16,"max_model_tokens":32768},"labels":{"tier":"gold"},"topology":{"zone":"a"},
	"events":{"endpoint":"tcp://10.0.0.1:5557","replay":"tcp://10.0.0.1:5657","topic":"kv","ranks":2,"first_rank":1},"ttl_s":10}`

func TestAWholeRegistrationMakesAWorker(t *testing.T) {
	said, err := Parse([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	r := record{Registration: *said, Draining: true}
	spec := r.spec()
	want := worker.Spec{
		Name: "gpu-a", Pool: "chat", Address: "10.0.0.1:8000", Engine: worker.VLLM, Drain: true,
		Labels: map[string]string{"tier": "gold", "zone": "a", "role": "decode", "max_in_flight": "64"},
		Events: worker.EventSource{Endpoint: "tcp://10.0.0.1:5557", Replay: "tcp://10.0.0.1:5657", Topic: "kv", Ranks: 2, FirstRank: 1},
	}
	if diff := cmp.Diff(want, spec, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{whole, ``, `body: must be one JSON object, and ends early`},
		{whole, `{"name":"a"`, `body: must be one JSON object, and ends early`},
		{whole, `{"name":"a",}`, `body: byte 13: invalid character '}' looking for beginning of object key string`},
		{whole, `[]`, `body: byte 1: must be of type object, is array`},
		{whole, whole + `{}`, `body: byte `},
		{`"name"`, `"label"`, `body: unknown field "label"`},
		{`"ranks":2`, `"rank":2`, `body: unknown field "rank"`},
		{`"gpu-a"`, `5`, `name: byte 9: must be of type string, is number`},
		{`"ranks":2`, `"ranks":"2"`, `events.ranks: byte `},
		{`"gpu-a"`, `""`, `name: "": must be letters, digits and "._:@-", 1 to 128 of them`},
		{`"gpu-a"`, `"gpu a"`, `name: "gpu a": must be letters`},
		{`"gpu-a"`, `"../drain"`, `name: "../drain": must be letters`},
		{`"gpu-a"`, `"` + strings.Repeat("n", 129) + `"`, `name: "nnn`},
		{`"chat"`, `"` + strings.Repeat("n", 257) + `"`, `pool: "nnn`},
		{`"10.0.0.1:8000"`, `"10.0.0.1"`, `address: "10.0.0.1": must be host:port, such as 10.0.0.1:8000 or [fd00::1]:8000`},
		{`"vllm"`, `"tgi"`, `engine: "tgi": must be "auto", "vllm", "sglang" or "trtllm"`},
		{`"decode"`, `"both"`, `role: "both": must be "prefill", "decode", or empty for both`},
		{`["qwen"]`, `["qwen",""]`, `models[1]: "": must be a model's name`},
		{`["qwen"]`, `["m"` + strings.Repeat(`,"m"`, 256) + `]`, `models: 257: must be at most 256 names`},
		{`"max_in_flight":64`, `"max_in_flight":-1`, `capacity.max_in_flight: -1: must be 0 (not known) to 1000000`},
		{`"block_tokens":16`, `"block_tokens":1.5`, `capacity.block_tokens: byte `},
		{`"tier":"gold"`, `"":"gold"`, `labels.: "gold": must have a name`},
		{`"tier":"gold"`, `"zone":"b"`, `topology.zone: "a": is among the labels as well`},
		{`"tier":"gold"`, `"role":"prefill"`, `labels.role: "prefill": must be as role says, which is "decode"`},
		{`"tier":"gold"`, `"distance":"far"`, `labels.distance: "far": must be a number from 0 to 1e+09`},
		{`"tier":"gold"`, `"tier":"\u0007"`, `labels.tier: "\a": must have a name, and be at most 256 bytes without control characters`},
		{`"tcp://10.0.0.1:5557"`, `"10.0.0.1:5557"`, `events.endpoint: "10.0.0.1:5557": must be tcp://host:port or ipc://path`},
		{`"tcp://10.0.0.1:5557"`, `"tcp://10.0.0.1"`, `events.endpoint: "tcp://10.0.0.1": must be tcp://host:port, such as tcp://10.0.0.1:5557`},
		{`"tcp://10.0.0.1:5557"`, `""`, `events.replay: "tcp://10.0.0.1:5657": needs events.endpoint as well`},
		{`"ranks":2`, `"ranks":257`, `events.ranks: 257: must be 0 (as its metrics show) to 256`},
		{`"first_rank":1`, `"first_rank":-1`, `events.first_rank: -1: must be 0 to 1000000`},
		{`"ttl_s":10`, `"ttl_s":0.5`, `ttl_s: 0.5: must be 0 (as the gateway has it) or at least 1 second`},
		{`"kv"`, `"` + strings.Repeat("k", MaxBody) + `"`, `body: must be at most 65536 bytes`},
	} {
		_, err := Parse([]byte(strings.Replace(whole, c.from, c.to, 1)))
		var refusal *RefusedError
		if !errors.As(err, &refusal) || !strings.HasPrefix(refusal.Text, c.want) {
			t.Errorf("%.60s: got %v\nwant %s", c.to, err, c.want)
		}
	}
}

func TestHeartbeats(t *testing.T) {
	if h, err := ParseHeartbeat([]byte(" \n")); err != nil || *h != (Heartbeat{}) {
		t.Errorf("without figures: %v, %v", h, err)
	}
	if h, err := ParseHeartbeat([]byte(`{"load":{"running":3,"waiting":1,"kv_usage":0.5}}`)); err != nil || h.Load != (Load{3, 1, .5}) {
		t.Errorf("with figures: %v, %v", h, err)
	}
	for text, want := range map[string]string{
		`{"load":{"running":-1}}`:       `load.running: -1: must be 0 to 1000000 requests`,
		`{"load":{"waiting":10000000}}`: `load.waiting: 10000000: must be 0 to 1000000 requests`,
		`{"load":{"kv_usage":1.5}}`:     `load.kv_usage: 1.5: must be 0 to 1`,
		`{"lod":{}}`:                    `body: unknown field "lod"`,
		`{} {}`:                         `body: byte 4: must be one JSON object, and goes on`,
	} {
		if _, err := ParseHeartbeat([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// TestRecordsOfTheStore: what another gateway wrote is checked like what a worker said.
func TestRecordsOfTheStore(t *testing.T) {
	good := `{"name":"a","pool":"p","address":"h:1","addr":"10.0.0.1:1","lease_s":5,"news":"of a later version"}`
	if r, err := decodeRecord("a", []byte(good)); err != nil || r.ttl() != 5*time.Second {
		t.Errorf("%v, %v", r, err)
	}
	for _, c := range []struct{ from, to string }{
		{good, "null"}, {good, "{"}, {`"a"`, `"b"`}, {`"h:1"`, `"h"`}, {`"10.0.0.1:1"`, `""`}, {`"10.0.0.1:1"`, `"h:1"`}, {`:5`, `:0`}, {`:5`, `:3601`}, {`"p"`, `""`},
	} {
		if _, err := decodeRecord("a", []byte(strings.Replace(good, c.from, c.to, 1))); err == nil || !strings.HasPrefix(err.Error(), "worker a in the store: ") {
			t.Errorf("%s: got %v", c.to, err)
		}
	}
}

func TestTheLocalStore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := NewLocal()
		names := func(group string) string {
			members, err := s.Members(t.Context(), group)
			if err != nil {
				t.Error(err)
			}
			var all []string
			for _, m := range members {
				all = append(all, m.Name+"="+string(m.Value)+" "+m.Left.String())
			}
			return strings.Join(all, ", ")
		}
		_ = s.Put(t.Context(), "g", "b", []byte("1"), 2*time.Second)
		_ = s.Put(t.Context(), "g", "a", []byte("2"), 4*time.Second)
		_ = s.Put(t.Context(), "other", "c", nil, time.Second)
		time.Sleep(time.Second)
		if got := names("g"); got != "a=2 3s, b=1 1s" {
			t.Error(got)
		}
		_ = s.Put(t.Context(), "g", "a", []byte("3"), time.Second)
		time.Sleep(time.Second)
		if got := names("g") + names("other") + names("none"); got != "" {
			t.Error(got)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"name":"a","address":"h:1"}`))
	f.Add([]byte(`{"load":{"running":1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if h, err := ParseHeartbeat(text); err == nil && (h.Load.Running < 0 || h.Load.KVUsage > 1) {
			t.Errorf("%+v", h)
		}
		_, _ = decodeRecord("a", text)
		said, err := Parse(text)
		if err != nil {
			var refusal *RefusedError
			if !errors.As(err, &refusal) || refusal.Text == "" {
				t.Fatalf("refused by %v", err)
			}
			return
		}
		again, err := json.Marshal(said)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) > MaxBody {
			return // escapes made it longer
		}
		twice, err := Parse(again)
		if err != nil {
			t.Fatalf("%s\nis accepted, but not as it is written again:\n%s\n%v", text, again, err)
		}
		if third, _ := json.Marshal(twice); string(third) != string(again) {
			t.Fatalf("%s\nbecomes\n%s", again, third)
		}
	})
}
