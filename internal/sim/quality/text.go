package quality

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// table is rows of cells; the first row is its head.
type table [][]string

func (t *table) add(cells ...string) { *t = append(*t, cells) }

// text aligns: the first column to the left, the others to the right.
func (t table) text() string {
	var widths []int
	for _, row := range t {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range t {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				line.WriteString(cell + pad)
			} else {
				line.WriteString("  " + pad + cell)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// markdown is the same for documents.
func (t table) markdown() string {
	var b strings.Builder
	for i, row := range t {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			b.WriteString("|---" + strings.Repeat("|---:", len(row)-1) + "|\n")
		}
	}
	return b.String()
}

// fixed is a number with decimals; NaN is a dash.
func fixed(v float64, decimals int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// short is a time in ms with as many decimals as matter.
func short(v float64) string {
	if v >= 1000 {
		return fixed(v, 0)
	}
	return fixed(v, 1)
}

// seedTable has a line per policy and seed of one scenario.
func (r *Results) seedTable(scenario string) table {
	t := table{{"policy", "seed", "completed", "hit"}}
	for _, m := range latencies {
		t[0] = append(t[0], m.Name)
	}
	for _, policy := range r.Policies {
		for _, row := range r.at[[2]string{scenario, policy}] {
			cells := []string{policy, strconv.Itoa(row.Seed), strconv.Itoa(row.Completed), fixed(row.Hit, 4)}
			for _, m := range latencies {
				cells = append(cells, fixed(m.of(&row), 1))
			}
			t.add(cells...)
		}
	}
	return t
}

// meanTable has a line per policy of one scenario: means over the seeds, and the range of the mean TTFT.
func (r *Results) meanTable(scenario string) table {
	t := table{{"policy", "completed", "hit"}}
	for _, m := range latencies {
		t[0] = append(t[0], m.Name)
	}
	t[0] = append(t[0], "ttft_mean_min..max")
	for _, policy := range r.Policies {
		completed := r.Mean(scenario, policy, func(x *Row) float64 { return float64(x.Completed) })
		cells := []string{policy, fixed(completed, 0), fixed(r.Mean(scenario, policy, hit), 4)}
		for _, m := range latencies {
			cells = append(cells, fixed(r.Mean(scenario, policy, m.of), 1))
		}
		least, most := r.Range(scenario, policy, TTFTMean.of)
		t.add(append(cells, fixed(least, 1)+".."+fixed(most, 1))...)
	}
	return t
}

// warnings say what a reader of latencies must know.
func (r *Results) warnings(scenario string) (lines []string) {
	for _, policy := range r.Policies {
		if n := r.Mean(scenario, policy, func(x *Row) float64 { return float64(x.Refused) }); n > 0 {
			lines = append(lines, fmt.Sprintf("%s: the engines refused %s requests, whose prompts do not fit into their memory; latencies are without them",
				policy, fixed(n, 0)))
		}
	}
	return lines
}

// WriteRuns prints all rows and their means, scenario by scenario.
func (r *Results) WriteRuns(w io.Writer) error {
	var b strings.Builder
	for i := range r.Scenarios {
		name := r.Scenarios[i].Name
		fmt.Fprintf(&b, "%s\n\n%s\n", name, r.seedTable(name).text())
		if r.Seeds > 1 {
			fmt.Fprintf(&b, "mean of %d seeds\n\n%s\n", r.Seeds, r.meanTable(name).text())
		}
		for _, line := range r.warnings(name) {
			b.WriteString(line + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteText prints a suite: each scenario, then what is to be said of all, then the targets.
func (o *Outcome) WriteText(w io.Writer) error {
	r := o.Results
	var b strings.Builder
	fmt.Fprintf(&b, "== suite %s: %s\n\n", o.Name, o.About)
	for i := range r.Scenarios {
		name := r.Scenarios[i].Name
		fmt.Fprintf(&b, "%s\n\n%s\n", name, r.meanTable(name).text())
		for _, line := range r.warnings(name) {
			b.WriteString(line + "\n")
		}
	}
	for _, p := range r.overview() {
		fmt.Fprintf(&b, "%s\n\n%s\n", p.title, p.table.text())
	}
	if len(o.Targets) > 0 {
		fmt.Fprintf(&b, "%s\n%s\n", o.verdict(), targetTable(o.Targets).text())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// verdict counts the targets.
func (o *Outcome) verdict() string {
	missed := len(o.Failed())
	return fmt.Sprintf("Targets of suite %s: %d of %d reached", o.Name, len(o.Targets)-missed, len(o.Targets))
}

// WriteMarkdown prints suites for a document, with one line per scenario.
func WriteMarkdown(w io.Writer, outcomes []*Outcome) error {
	var b strings.Builder
	for _, o := range outcomes {
		o.markdown(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (o *Outcome) markdown(b *strings.Builder) {
	r := o.Results
	fmt.Fprintf(b, "## Suite %s\n\n%s\n\n", o.Name, o.About)
	for _, p := range append(r.overview(), r.scenarioTable()) {
		fmt.Fprintf(b, "%s:\n\n%s\n", p.title, p.table.markdown())
	}
	if len(o.Targets) > 0 {
		fmt.Fprintf(b, "%s:\n\n%s\n", o.verdict(), targetTable(o.Targets).markdown())
	}
}

// maxColumns is how many policies fit beside each other in a document.
const maxColumns = 10

// scenarioTable has the mean TTFT of each policy in each scenario, with its range over the seeds where there is one. Of many
// policies it has the main ones.
func (r *Results) scenarioTable() part {
	columns := r.Policies
	if len(columns) > maxColumns {
		columns = nil
		for _, policy := range append([]string{ideal}, append(slices.Clone(everyone), production, production+",speed_error=2", "time:first_tokens=clock")...) {
			if r.Has(policy) {
				columns = append(columns, policy)
			}
		}
	}
	t := table{append([]string{"scenario"}, columns...)}
	for i := range r.Scenarios {
		name := r.Scenarios[i].Name
		cells := []string{name}
		for _, policy := range columns {
			least, most := r.Range(name, policy, TTFTMean.of)
			cell := short(r.Mean(name, policy, TTFTMean.of))
			if short(least) != short(most) {
				cell += " (" + short(least) + ".." + short(most) + ")"
			}
			cells = append(cells, cell)
		}
		t.add(cells...)
	}
	return part{"Mean TTFT in ms, simulated: mean over the seeds (least..most)", t}
}
