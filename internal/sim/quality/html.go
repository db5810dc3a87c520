package quality

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
)

//go:embed report.html
var reportText string

// report is the page; it needs nothing beside itself.
var report = template.Must(template.New("report").Parse(reportText))

// WriteHTML writes a report that needs nothing from elsewhere: charts are drawings in the page.
func WriteHTML(w io.Writer, outcomes []*Outcome) error {
	var p page
	for _, o := range outcomes {
		p.Suites = append(p.Suites, o.view())
		p.Reached += len(o.Targets) - len(o.Failed())
		p.Targets += len(o.Targets)
	}
	return report.Execute(w, p)
}

// page is what report.html is about.
type page struct {
	Suites           []suiteView
	Reached, Targets int
}

type suiteView struct {
	Name, About, Took string
	Seeds, Runs       int
	Reached           int
	Targets           []Target
	Parts             []partView
	Heat              heatView
	Charts            []chart
}

type partView struct {
	Title string
	Head  []string
	Rows  [][]string
}

// heatView is a table of ratios, each cell with a colour.
type heatView struct {
	Base string
	Head []string
	Rows []heatRow
}

type heatRow struct {
	Name  string
	Cells []heatCell
}

// heatCell is a ratio. Good and Bad are how much of a colour it has, in percent.
type heatCell struct {
	Text      string
	Good, Bad int
}

func (o *Outcome) view() suiteView {
	r := o.Results
	v := suiteView{
		Name: o.Name, About: o.About, Took: fmt.Sprintf("%.0f s", o.Took.Seconds()), Seeds: r.Seeds, Runs: len(r.Rows),
		Reached: len(o.Targets) - len(o.Failed()), Targets: o.Targets, Heat: r.heat(),
	}
	for _, p := range r.overview() {
		v.Parts = append(v.Parts, partView{p.title, p.table[0], p.table[1:]})
	}
	for i := range r.Scenarios {
		v.Charts = append(v.Charts, r.chart(r.Scenarios[i].Name))
	}
	return v
}

// heat has the ratio of mean TTFT to the base in each scenario.
func (r *Results) heat() heatView {
	base := r.Base()
	h := heatView{Base: base, Head: r.Policies}
	for i := range r.Scenarios {
		row := heatRow{Name: r.Scenarios[i].Name}
		for _, policy := range r.Policies {
			ratio := r.Ratio(TTFTMean, row.Name, policy, base)
			cell := heatCell{Text: fixed(ratio, 2)}
			if ratio >= 100 {
				cell.Text = fixed(ratio, 0)
			}
			// Half and double are as far as colours go.
			if strength := int(min(1, math.Abs(math.Log2(ratio))) * 70); ratio < 1 {
				cell.Good = strength
			} else {
				cell.Bad = strength
			}
			row.Cells = append(row.Cells, cell)
		}
		h.Rows = append(h.Rows, row)
	}
	return h
}

// chart is the mean TTFT of all policies in a scenario: a label, under it a bar, the range over the seeds as a line on it.
type chart struct {
	Name          string
	Width, Height int
	Bars          []bar
}

// bar is one policy. Positions are in units of the drawing.
type bar struct {
	Label, Value, Class   string
	LabelY, BarY, MiddleY int
	Width                 float64
	Low, High             float64 // of the range
	Ranged, Clipped       bool
	ValueX                float64
}

// What a chart is drawn with.
const (
	chartWidth = 330
	barRoom    = 262 // the rest is for the figure behind the bar
	rowHeight  = 29
)

// chart draws. Bars beyond two and a half times the base are cut off and say so.
func (r *Results) chart(scenario string) chart {
	c := chart{Name: scenario, Width: chartWidth, Height: len(r.Policies)*rowHeight + 4}
	longest, limit := 0.0, 2.5*r.Mean(scenario, r.Base(), TTFTMean.of)
	for _, policy := range r.Policies {
		longest = max(longest, r.Mean(scenario, policy, TTFTMean.of))
	}
	scale := barRoom / min(longest, limit)
	for i, policy := range r.Policies {
		mean := r.Mean(scenario, policy, TTFTMean.of)
		low, high := r.Range(scenario, policy, TTFTMean.of)
		b := bar{
			Label: policy, Value: short(mean), Class: class(policy), LabelY: i*rowHeight + 11, BarY: i*rowHeight + 15, MiddleY: i*rowHeight + 20,
			Width: max(1, min(mean*scale, barRoom)), Low: low * scale, High: min(high*scale, barRoom+4), Clipped: mean*scale > barRoom+.5,
		}
		b.Ranged = !b.Clipped && b.High-b.Low > 1
		b.ValueX = max(b.Width, b.High*truthful(b.Ranged)) + 6
		c.Bars = append(c.Bars, b)
	}
	return c
}

func truthful(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// class is how a policy looks.
func class(policy string) string {
	switch policy {
	case ours:
		return "ours"
	case SharedCache:
		return "reference"
	case dynamo1, dynamo4, dynamo16:
		return "dynamo"
	}
	if len(policy) > len(ours) && policy[:len(ours)+1] == ours+":" {
		return "variant"
	}
	return "other"
}
