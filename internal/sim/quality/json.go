package quality

import (
	"encoding/json"
	"io"
	"math"
)

// document is a suite as JSON.
type document struct {
	Suite   string    `json:"suite"`
	About   string    `json:"about"`
	Seeds   int       `json:"seeds"`
	TookS   float64   `json:"took_s"`
	Summary []summary `json:"summary"`
	Targets []Target  `json:"targets"`
	Rows    []Row     `json:"rows"`
}

// summary is what is to be said of a policy over all scenarios; ratios are geometric means of mean TTFT.
type summary struct {
	Policy   string   `json:"policy"`
	Hit      *float64 `json:"hit"`
	Captured *float64 `json:"of_shared_cache"`
	Base     string   `json:"base"`
	ToBase   *float64 `json:"ttft_mean_to_base"`
	Least    *float64 `json:"ttft_mean_to_base_min"`
	Most     *float64 `json:"ttft_mean_to_base_max"`
	Tuned    string   `json:"tuned,omitempty"`
	ToTuned  *float64 `json:"ttft_mean_to_tuned"`
	ToEach   *float64 `json:"ttft_mean_to_tuned_in_each"`
	Regret   *float64 `json:"regret"`
}

// WriteJSON writes suites with all their rows: a list of objects.
func WriteJSON(w io.Writer, outcomes []*Outcome) error {
	var all []document
	for _, o := range outcomes {
		d := document{Suite: o.Name, About: o.About, Seeds: o.Results.Seeds, TookS: o.Took.Seconds(), Rows: o.Results.Rows, Summary: o.Results.summaries()}
		for _, t := range o.Targets {
			if math.IsNaN(t.Value) {
				t.Value = -1 // JSON has no such number; it fails anyway
			}
			d.Targets = append(d.Targets, t)
		}
		all = append(all, d)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(all)
}

func (r *Results) summaries() (list []summary) {
	base := r.Base()
	for _, policy := range r.Policies {
		least, most := r.Spread(TTFTMean, policy, base, all)
		regret, _ := r.Regret(policy, steady)
		s := summary{
			Policy: policy, Hit: finite(r.Hit(policy, all)), Base: base, ToBase: finite(r.Geomean(TTFTMean, policy, base, all)),
			Least: finite(least), Most: finite(most), Regret: finite(regret),
		}
		if r.Has(SharedCache) {
			s.Captured = finite(r.Captured(policy, all))
		}
		if r.Has(dynamo1) {
			s.Tuned = r.Tuned(dynamos, all)
			s.ToTuned, s.ToEach = finite(r.Geomean(TTFTMean, policy, s.Tuned, all)), finite(r.TunedEach(TTFTMean, policy, dynamos, all))
		}
		list = append(list, s)
	}
	return list
}

// finite is null in JSON for what is no number.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
