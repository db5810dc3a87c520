package quality

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"attache/internal/sim/gateway"
	"attache/scoring"
	"attache/scoring/queue"
)

func names(specs []Spec) (list []string) {
	for i := range specs {
		list = append(list, specs[i].Name)
	}
	return list
}

func TestWhereSpecsBegin(t *testing.T) {
	for _, c := range []struct {
		texts []string
		want  []string
	}{
		{[]string{"time"}, []string{"time"}},
		{[]string{"round-robin,dynamo,time"}, []string{"round-robin", "dynamo", "time"}},
		{[]string{"dynamo:prefill_scale=16,time"}, []string{"dynamo:prefill_scale=16", "time"}},
		{[]string{"time:evict=0,first_tokens=clock"}, []string{"time:evict=0,first_tokens=clock"}},
		{[]string{"time:evict=0,room=0,dynamo:prefill_scale=4,time:evict=2"}, []string{"time:evict=0,room=0", "dynamo:prefill_scale=4", "time:evict=2"}},
		{[]string{"time:evict=0,room=0;dynamo", " time , random "}, []string{"time:evict=0,room=0", "dynamo", "time", "random"}},
		{[]string{"time,time", "time"}, []string{"time"}},
		{[]string{"time,,shared-cache;"}, []string{"time", "shared-cache"}},
	} {
		specs, err := ParseSpecs(c.texts...)
		if err != nil {
			t.Errorf("%q: %v", c.texts, err)
		} else if got := names(specs); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.texts, got, c.want)
		}
	}
}

func TestWhatSpecsSay(t *testing.T) {
	specs, err := ParseSpecs("time:evict=0.5,speed.per_token_us=7,speed_error=2,true_caches=true,lag=100ms,reuse=false,first_tokens=clock;dynamo:prefill_scale=16,temperature=.2")
	if err != nil {
		t.Fatal(err)
	}
	s := specs[0]
	if s.FirstTokens != gateway.Clock || !s.TrueCaches || s.Lag != 100*time.Millisecond || !s.NoReuse || s.Reference {
		t.Errorf("%+v", s)
	}
	want := scoring.DefaultConfig()
	want.Evict, want.Speed.PerTokenUS, want.Speed.Error, want.Speed.Profile = .5, 7, 2, "llama-3-8b-1xh100"
	if got, err := s.Scoring("llama-3-8b-1xh100"); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	want = scoring.DefaultConfig()
	want.Policy, want.Dynamo.PrefillLoadScale, want.Temperature = "dynamo", 16, .2
	if got, err := specs[1].Scoring(""); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if specs[1].Lag >= 0 || specs[1].NoReuse || specs[1].Queue.Enabled() {
		t.Errorf("%+v", specs[1])
	}
}

func TestSpecsThatHoldBack(t *testing.T) {
	specs, err := ParseSpecs("time:in_flight=8,prefill_tokens=16384,kv_share=.9,ttft=2s,ageing=1m,queue=wspt,lag=1s;time:queue=fcfs,in_flight=1")
	if err != nil {
		t.Fatal(err)
	}
	s := &specs[0]
	if want := (scoring.Limits{InFlight: 8, PrefillTokens: 16384, KVShare: .9, TTFT: 2 * time.Second}); s.Limits != want || s.Lag != time.Second {
		t.Errorf("%+v", s)
	}
	if c := s.Queue.Classes; !s.Queue.Enabled() || len(c) != 1 || c[0].Policy != "wspt" || c[0].Ageing != time.Minute {
		t.Errorf("%+v", s.Queue)
	}
	if c := specs[1].Queue.Classes; len(c) != 1 || c[0] != queue.DefaultClass() {
		t.Errorf("%+v", specs[1].Queue)
	}
}

// Errors name the spec, the key, and what there is.
func TestSpecsThatAreNone(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"tim", []string{`policy "tim"`, `"tim"`, "must be one of time, dynamo"}},
		{"dynamo:scale=16", []string{`policy "dynamo:scale=16"`, "scale: no such key", "prefill_load_scale", "prefill_scale", "first_tokens", "temperature", "speed.profile"}},
		{"time:prefill_load_scale=3", []string{"no such key", "dynamo.prefill_load_scale"}},
		{"time:evict=lots", []string{`policy "time:evict=lots"`, "evict=lots", "a value like the default's"}},
		{"time:evict=-1", []string{"evict", "-1", "must be 0"}},
		{"time:first_tokens=late", []string{"first_tokens=late", "live, events or clock"}},
		{"time:true_caches=2", []string{"true or false"}},
		{"time:speed_error=0", []string{"a factor between"}},
		{"time:lag=1", []string{"lag=1", "a time such as 100ms"}},
		{"time:replicas=0", []string{"replicas=0", "a number from 1 on"}},
		{"time:replicas=2,sync=never", []string{"sync=never", "a time such as 10ms, or off"}},
		{"time:replicas=2,queue=fcfs,in_flight=1", []string{"replicas", "a queue each"}},
		{"time:reuse=no", []string{"true or false"}},
		{"time:queue=wspt", []string{"in_flight, prefill_tokens, kv_share or ttft expected"}},
		{"time:ageing=1s", []string{"in_flight, prefill_tokens, kv_share or ttft expected"}},
		{"time:ttft=1s", []string{"queue=fcfs, or another order, expected"}},
		{"time:queue=fastest,in_flight=1", []string{"fastest", "must be one of fcfs, lcfs, wspt, edf"}},
		{"time:queue=wspt,in_flight=0", []string{"in_flight=0", "a number from 1 on"}},
		{"time:queue=wspt,prefill_tokens=some", []string{"prefill_tokens=some", "a number from 1 on"}},
		{"time:queue=wspt,kv_share=0", []string{"kv_share=0", "a share above 0"}},
		{"time:queue=wspt,ttft=0s", []string{"ttft=0s", "a time such as 500ms"}},
		{"time:queue=wspt,ageing=soon,in_flight=1", []string{"ageing=soon", "a time such as 10s"}},
		{"time:evict", []string{"key=value expected"}},
		{"shared-cache:evict=1", []string{"shared-cache has no settings"}},
		{"time:policy=dynamo", []string{"policy: no such key"}},
	} {
		_, err := ParseSpecs(c.text)
		if err == nil {
			t.Errorf("%s: no error", c.text)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q is missing in: %v", c.text, part, err)
			}
		}
	}
}

// However specs are put together, they come apart again.
func TestSpecsComeApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []string
		var text strings.Builder
		for i := range rapid.IntRange(1, 6).Draw(t, "specs") {
			name := rapid.SampledFrom([]string{"time", "dynamo", "round-robin", "least-load"}).Draw(t, "name")
			for k, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"evict=0.25", "room=2", "lag=1s", "first_tokens=events", "true_caches=true", "replicas=3", "sync=off"}), 0, 3, rapid.ID).Draw(t, "keys") {
				name += []string{":", ","}[min(k, 1)] + key
			}
			if i > 0 {
				text.WriteString(rapid.SampledFrom([]string{",", ";", " , "}).Draw(t, "separator"))
			}
			text.WriteString(name)
			if !slices.Contains(want, name) {
				want = append(want, name)
			}
		}
		specs, err := ParseSpecs(text.String())
		if err != nil {
			t.Fatal(err)
		}
		if got := names(specs); !slices.Equal(got, want) {
			t.Fatalf("%s: %q, want %q", text.String(), got, want)
		}
	})
}
