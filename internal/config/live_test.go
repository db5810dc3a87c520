package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestEverySettingHasAnEffect: whoever adds a setting says whether a change of it takes effect while the process runs.
func TestEverySettingHasAnEffect(t *testing.T) {
	used := map[string]bool{}
	for _, key := range keys(reflect.TypeFor[Config](), "") {
		rule, _ := ruleOf(key)
		if _, known := Live(key); !known {
			t.Errorf("%s: is neither said to change live nor to need a restart: add it to effects", key)
		}
		used[rule] = true
	}
	for rule := range effects {
		if !used[rule] {
			t.Errorf("%s: there is no such setting, or all below it have rules of their own", rule)
		}
	}
	for path, want := range map[string][2]bool{
		"pools.workers": {live, true}, "pools.name": {restart, true}, "router.scoring.dynamo": {live, true}, "xds.gateway": {restart, true},
		"router": {false, false}, "pools": {false, false}, "tracing": {false, false}, "nothing": {false, false},
	} {
		if takes, known := Live(path); takes != want[0] || known != want[1] {
			t.Errorf("%s: %v, %v; want %v", path, takes, known, want)
		}
	}
}

func parsed(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestChanges(t *testing.T) {
	for _, c := range []struct{ name, before, after, live, restart string }{
		{"nothing", "", "# a comment", "", ""},
		{"a number", "", "router: {alternatives: 2}", "router.alternatives: 3 -> 2", ""},
		{"a duration, and one that is written in another way", "router: {retry_after: 60s}", "router: {retry_after: 1m, booking_ttl: 90m}",
			"router.booking_ttl: 1h0m0s -> 1h30m0s", ""},
		{"a list", "", "pools: [{name: default, workers: ['10.0.0.1:8000', '10.0.0.2:8000']}]",
			`pools[0].workers: unset -> ["10.0.0.1:8000", "10.0.0.2:8000"]`, ""},
		{"a listener", "", "extproc: {listen: '127.0.0.1:1', max_body: 1MiB}", "extproc.max_body: 16MiB -> 1MiB",
			`extproc.listen: "127.0.0.1:9002" -> "127.0.0.1:1"`},
		{"a pool's own scoring", "", "pools: [{name: default, scoring: {policy: dynamo}}]", "pools[0].scoring: unset -> ...", ""},
		{"and within it", "pools: [{name: default, scoring: {policy: dynamo}}]", "pools: [{name: default, scoring: {policy: random}}]",
			"pools[0].scoring.policy: dynamo -> random", ""},
		{"pools", "pools: [{name: a, models: [m], workers_file: x}, {name: b, models: [p]}]", "pools: [{name: b, models: [p, o]}, {name: a, models: [m]}]",
			"pools[0].workers_file: x -> empty; pools[1].models: [p] -> [p, o]", "pools: a, b -> b, a"},
		{"a name that the host gives", "replica: gateway-7", "", "", ""},
		{"another name", "replica: gateway-7", "replica: gateway-8", "", "replica: gateway-7 -> gateway-8"},
		{"classes of the queue", "", "router: {queue: {classes: [{name: batch}]}}", "router.queue.classes: unset -> ...", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, after := parsed(t, c.before), parsed(t, c.after)
			var live, restart []string
			for _, change := range Changes(before, after) {
				text := change.String()
				if strings.Contains(change.After, "{") {
					text = change.Path + ": " + change.Before + " -> ..."
				}
				if change.Live {
					live = append(live, text)
				} else {
					restart = append(restart, text)
				}
			}
			if a, b := strings.Join(live, "; "), strings.Join(restart, "; "); a != c.live || b != c.restart {
				t.Errorf("live: %s\nwant: %s\nrestart: %s\nwant: %s", a, c.live, b, c.restart)
			}
			merged, err := Merge(before, after)
			if err != nil {
				t.Fatal(err)
			}
			left := Changes(merged, after)
			if len(Changes(before, merged)) != len(live) || len(left) != len(restart) || slices.ContainsFunc(left, func(c Change) bool { return c.Live }) {
				t.Errorf("merged: %v, and still to come: %v", Changes(before, merged), left)
			}
		})
	}
}

// TestMergeKeepsBoth: the configurations that are merged do not change, and are not shared where they could be changed.
func TestMergeKeepsBoth(t *testing.T) {
	before, after := parsed(t, "pools: [{name: a}]"), parsed(t, "pools: [{name: a, workers: ['10.0.0.1:1']}]\nlog: {level: debug, format: json}")
	merged, err := Merge(before, after)
	if err != nil {
		t.Fatal(err)
	}
	if len(before.Pools[0].Workers) != 0 || before.Log.Level != "info" || len(merged.Pools[0].Workers) != 1 || merged.Log != (Log{"debug", "text"}) {
		t.Errorf("before %+v, merged %+v", before, merged)
	}
}

// TestMergeOfWhatDoesNotGoTogether: what is live is held against what stays.
func TestMergeOfWhatDoesNotGoTogether(t *testing.T) {
	after := Default()
	after.Router.Queue.Limits.Requests, after.Router.Queue.Limits.MaxWait = 10, 10*time.Minute
	after.XDS.Gateway.MaxMessageTimeout, after.XDS.Gateway.IdleTimeout = time.Hour, 2*time.Hour
	if err := after.Validate(); err != nil {
		t.Fatal(err)
	}
	before := Default()
	_, err := Merge(&before, &after)
	if err == nil || !strings.Contains(err.Error(), "needs a restart: router.queue.limits.max_wait: 10m0s: ") {
		t.Errorf("error %v", err)
	}
}
