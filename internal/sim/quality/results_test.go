package quality

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// sheet is two scenarios with two seeds; TTFT by policy, scenario and seed.
func sheet() *Results {
	p := &Plan{Scenarios: []Scenario{{Name: "one", Group: "g"}, {Name: "two", Group: "h"}, {Name: "edge", Group: "h", Collapse: true}}, Seeds: 2}
	var rows []Row
	add := func(policy string, hits float64, ttft ...float64) {
		p.Policies = append(p.Policies, Spec{Name: policy})
		for i, v := range ttft {
			rows = append(rows, Row{Scenario: p.Scenarios[i/2].Name, Policy: policy, Seed: i%2 + 1, TTFTMean: v, Hit: hits, Asked: 100, Delivered: int(100 * hits),
				TTFTP99: v, TPOTP99: v, TTFTP50: v, E2EMean: v, Completed: 7})
		}
	}
	add(dynamo1, .25, 100, 100, 200, 200, 10, 10)
	add(dynamo16, .4, 50, 50, 300, 100, 20, 20)
	add(ours, .45, 40, 60, 100, 100, 90, 90)
	add(SharedCache, .5, 10, 10, 10, 10, 1000, 1000)
	return NewResults(p, rows)
}

func TestFigures(t *testing.T) {
	r := sheet()
	least, most := r.Spread(TTFTMean, ours, dynamo1, steady)
	worst, where := r.Worst(TTFTMean, ours, dynamo1, all)
	steadyWorst, steadyWhere := r.Worst(TTFTMean, ours, dynamo16, steady)
	regret, regretWhere := r.Regret(dynamo16, steady)
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"mean over seeds", r.Mean("two", dynamo16, TTFTMean.of), 200},
		{"geometric mean of .5 and .5", r.Geomean(TTFTMean, ours, dynamo1, steady), .5},
		{"of .5 and 1", r.Geomean(TTFTMean, dynamo16, dynamo1, steady), math.Sqrt(.5)},
		{"of one group", r.Geomean(TTFTMean, dynamo16, dynamo1, group("g")), .5},
		{"of both", r.Geomean(TTFTMean, dynamo16, dynamo1, both(group("h"), steady)), 1},
		{"least of a seed: .4 and .5", least, math.Sqrt(.4 * .5)},
		{"most of a seed: .6 and .5", most, math.Sqrt(.6 * .5)},
		{"worst", worst, 9},
		{"worst outside collapse", steadyWorst, 1},
		{"against the best of each: 1 and .5", r.TunedEach(TTFTMean, ours, dynamos, steady), math.Sqrt(.5)},
		{"reuse captured", r.Captured(ours, all), .9},
		{"regret: 1 in one, 2 in two", regret, 2},
		{"no such policy", r.Mean("one", "none", TTFTMean.of), math.NaN()},
	} {
		if math.Abs(c.got-c.want) > 1e-9 || math.IsNaN(c.got) != math.IsNaN(c.want) {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
	if where != "edge" || steadyWhere != "one" || regretWhere != "two" {
		t.Errorf("worst in %s and %s, regret in %s", where, steadyWhere, regretWhere)
	}
	if tuned := r.Tuned(dynamos, steady); tuned != dynamo16 {
		t.Errorf("tuned over the steady ones: %s", tuned)
	}
	if tuned := r.Tuned(dynamos, func(s *Scenario) bool { return s.Name == "edge" }); tuned != dynamo1 {
		t.Errorf("tuned on the edge: %s", tuned)
	}
}

// Every suite can be run: specs are good, names are unique, and targets find what they speak of.
func TestSuitesAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Suites() {
		specs, err := ParseSpecs(s.Policies...)
		if err != nil || seen[s.Name] || s.About == "" || s.Seeds < 1 {
			t.Errorf("suite %s: %v", s.Name, err)
		}
		seen[s.Name] = true
		names := map[string]bool{}
		p := &Plan{Scenarios: s.Scenarios, Policies: specs, Seeds: 1}
		var rows []Row
		for i := range s.Scenarios {
			if x := &s.Scenarios[i]; names[x.Name] || x.Group == "" || x.Workload.Key == "" {
				t.Errorf("suite %s: scenario %q", s.Name, x.Name)
			}
			names[s.Scenarios[i].Name] = true
			for k := range specs {
				rows = append(rows, Row{Scenario: s.Scenarios[i].Name, Policy: specs[k].Name, Seed: 1, Hit: .5, TTFTMean: 1, TTFTP50: 1, TTFTP99: 1, TPOTP99: 1, E2EMean: 1,
					Asked: 2, Delivered: 1, SimulatedS: 4000, WallS: 1})
			}
		}
		r := NewResults(p, rows)
		targets := s.targets(r)
		if len(targets) == 0 {
			t.Errorf("suite %s has no targets", s.Name)
		}
		for _, x := range targets {
			if math.IsNaN(x.Value) || x.Value <= 0 {
				t.Errorf("suite %s: %s is %v", s.Name, x.Name, x.Value)
			}
		}
		o := []*Outcome{{Suite: s, Results: r, Targets: targets}}
		var text, html, js, md bytes.Buffer
		for _, err := range []error{o[0].WriteText(&text), WriteHTML(&html, o), WriteJSON(&js, o), WriteMarkdown(&md, o)} {
			if err != nil {
				t.Errorf("suite %s: %v", s.Name, err)
			}
		}
		for _, bad := range []string{"NaN", "Inf", "%!"} {
			if strings.Contains(text.String()+html.String()+js.String()+md.String(), bad) {
				t.Errorf("suite %s prints %s", s.Name, bad)
			}
		}
		for _, outside := range []string{"http://", "https://", "<script", "src="} {
			if strings.Contains(html.String(), outside) {
				t.Errorf("the report has %s", outside)
			}
		}
	}
	if n := len(secondScenarios()); n != 27 {
		t.Errorf("%d scenarios, want 27", n)
	}
}

func TestPick(t *testing.T) {
	if all, err := Pick("all"); err != nil || len(all) != len(Suites())-1 {
		t.Errorf("%d suites, %v", len(all), err)
	}
	if two, err := Pick("second", "ci"); err != nil || len(two) != 2 || two[1].Name != "ci" {
		t.Errorf("%v, %v", two, err)
	}
	if _, err := Pick("third"); err == nil || !strings.Contains(err.Error(), `suite "third": all or one of dynamo, second`) {
		t.Errorf("%v", err)
	}
}

func TestTargetsRead(t *testing.T) {
	var j judge
	j.most("a", .5, .905, "")
	j.least("b", 10000.123, 2000)
	j.most("c", math.NaN(), 1, "")
	j.most("d", .2, 1./6, "")
	want := table{
		{"target", "bound", "measured", "", "where"},
		{"a", "<= 0.905", "0.5000", "pass", ""}, {"b", ">= 2000", "10000", "pass", ""}, {"c", "<= 1", "-", "FAIL", ""}, {"d", "<= 0.167", "0.2000", "FAIL", ""},
	}
	if got := targetTable(j.targets); got.text() != want.text() {
		t.Errorf("%s\nwant\n%s", got.text(), want.text())
	}
}

// What programs read has the names that the table has.
func TestJSON(t *testing.T) {
	r := sheet()
	o := &Outcome{Suite: Suite{Name: "s"}, Results: r, Targets: []Target{{Name: "t", Value: math.NaN()}}}
	var b bytes.Buffer
	if err := WriteJSON(&b, []*Outcome{o}); err != nil {
		t.Fatal(err)
	}
	var got []struct {
		Suite   string
		Summary []struct {
			Policy string
			Ratio  float64 `json:"ttft_mean_to_base"`
		}
		Rows []map[string]any
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || len(got) != 1 || len(got[0].Rows) != len(r.Rows) {
		t.Fatalf("%v: %s", err, b.String())
	}
	for _, m := range latencies {
		if _, there := got[0].Rows[0][m.Name]; !there {
			t.Errorf("%s is missing", m.Name)
		}
	}
}

func TestTables(t *testing.T) {
	x := table{{"policy", "hit"}, {"é", "0.5"}, {"longer", "12.25"}}
	if want := "policy    hit\né         0.5\nlonger  12.25\n"; x.text() != want {
		t.Errorf("%q, want %q", x.text(), want)
	}
	if want := "| policy | hit |\n|---|---:|\n| é | 0.5 |\n| longer | 12.25 |\n"; x.markdown() != want {
		t.Errorf("%q, want %q", x.markdown(), want)
	}
}
