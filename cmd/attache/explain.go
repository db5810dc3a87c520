package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"attache/internal/admin"
)

type explainCmd struct {
	Body   string   `required:"" help:"The request's body in JSON; - reads standard input." placeholder:"FILE"`
	Path   string   `default:"/v1/chat/completions" help:"Where the request would be sent to."`
	Header []string `sep:"none" help:"A header of the request; may be repeated." placeholder:"NAME:VALUE"`
	Policy string   `help:"Decide by this policy, perhaps with weights: 'dynamo;overlap_score_credit=1'." placeholder:"NAME"`
	Server string   `default:"${admin_url}" aliases:"admin" help:"Where attache's admin API listens. Default: ${admin_url}." placeholder:"URL"`
	JSON   bool     `name:"json" help:"Print the API's answer."`
}

func (c *explainCmd) Run(ctx context.Context, out io.Writer) error {
	api, err := newAPI("--server", c.Server)
	if err != nil {
		return err
	}
	body, err := readInput(c.Body)
	if err != nil {
		return fmt.Errorf("--body: %w", err)
	}
	query := url.Values{"path": {c.Path}, "h": c.Header}
	if c.Policy != "" {
		query.Set("policy", c.Policy)
	}
	answer, err := api.post(ctx, "explain?"+query.Encode(), body)
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := out.Write(answer)
		return err
	}
	var x admin.Explanation
	if err := json.Unmarshal(answer, &x); err != nil {
		return fmt.Errorf("%s does not answer as attache does: %w; --server must be its admin.listen", api.base, err)
	}
	_, err = out.Write(explained(&x))
	return err
}

// readInput reads a file, or standard input.
func readInput(name string) ([]byte, error) {
	in := io.Reader(os.Stdin)
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	return io.ReadAll(io.LimitReader(in, maxInput))
}

// post sends a body and returns the answer.
func (a *api) post(ctx context.Context, path string, body []byte) ([]byte, error) {
	defer a.client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base+"/api/v1/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := a.client.Do(r)
	if err != nil {
		return nil, a.unreachable(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, a.unreachable(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return text, nil
	}
	var said struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &said) == nil && said.Error.Message != "" {
		return nil, fmt.Errorf("a client would be answered %d: %s", resp.StatusCode, printable(said.Error.Message))
	}
	return nil, a.refused(resp.StatusCode, r.URL.Path, text)
}

// explained writes an explanation: what would happen, then why, then what else could have.
func explained(x *admin.Explanation) []byte {
	var b bytes.Buffer
	b.WriteString(printable(x.Why) + "\n\n")
	if x.Refusal != nil {
		fmt.Fprintf(&b, "  client gets  %d\n", x.Refusal.Status)
	} else {
		fmt.Fprintf(&b, "  first token  expected in %s\n", secondsOf(x.PredictedTTFTS))
	}
	model := printable(x.Model)
	if x.SentModel != "" && x.SentModel != x.Model {
		model += ", sent as " + printable(x.SentModel)
	}
	fmt.Fprintf(&b, "  pool         %s, model %s, policy %s\n", printable(x.Pool), model, printable(x.Policy))
	fmt.Fprintf(&b, "  prompt       %s\n", promptOf(x))
	if x.PromptTokens > 0 && len(x.Candidates) > 0 {
		fmt.Fprintf(&b, "  cached       %s tokens on the chosen one, %s on the one that holds the most\n", grouped(x.Captured), grouped(x.Available))
	}
	if x.Queue.Class != "" {
		fmt.Fprintf(&b, "  queue        %s\n", queueOf(&x.Queue))
	}
	if len(x.Hints) > 0 {
		fmt.Fprintf(&b, "  hints        %s\n", printable(strings.Join(x.Hints, ", ")))
	}
	for _, h := range x.IgnoredHints {
		fmt.Fprintf(&b, "  not counted  %s: %s\n", printable(h.Hint), printable(h.Reason))
	}
	explainedCandidates(&b, x)
	explainedExcluded(&b, x)
	explainedOthers(&b, x)
	return b.Bytes()
}

func promptOf(x *admin.Explanation) string {
	switch {
	case x.Rung == "" || x.PromptTokens == 0 && x.Refusal != nil:
		return "not looked at"
	case x.PromptTokens == 0:
		return "not known: only load decides"
	case x.Rung == "approximate":
		return fmt.Sprintf("about %s tokens, by its length (%s)", grouped(x.PromptTokens), printable(x.RungReason))
	case x.RungReason != "":
		return fmt.Sprintf("%s tokens, %s (%s)", grouped(x.PromptTokens), printable(x.Rung), printable(x.RungReason))
	default:
		return fmt.Sprintf("%s tokens, %s", grouped(x.PromptTokens), printable(x.Rung))
	}
}

func queueOf(q *admin.QueuePlace) string {
	switch {
	case q.Waits:
		return fmt.Sprintf("it would wait in class %s behind %s; %s of %s places are taken", printable(q.Class), grouped(q.Ahead), grouped(q.Waiting), grouped(q.Capacity))
	case q.Capacity == 0:
		return "none: what finds all workers saturated is turned away"
	default:
		return fmt.Sprintf("it would not wait; %s of %s places are taken", grouped(q.Waiting), grouped(q.Capacity))
	}
}

func explainedCandidates(b *bytes.Buffer, x *admin.Explanation) {
	if len(x.Candidates) == 0 {
		b.WriteString("\nWho may serve: nobody\n")
		return
	}
	var names []string
	for _, c := range x.Candidates {
		for _, t := range c.Terms {
			if !slices.Contains(names, t.Name) {
				names = append(names, t.Name)
			}
		}
	}
	t := table{head: []string{"WORKER", "#TOKENS HELD", "KNOWN", "#IN FLIGHT"}}
	for _, name := range names {
		t.head = append(t.head, "#"+strings.ToUpper(name))
	}
	t.head = append(t.head, "#= COST", "#FIRST TOKEN", "NOTES")
	for i := range x.Candidates[:min(len(x.Candidates), maxRows)] {
		c := &x.Candidates[i]
		cells := []string{c.Name(), grouped(c.CachedTokens), c.Evidence, grouped(c.InFlight)}
		for _, name := range names {
			at := slices.IndexFunc(c.Terms, func(t admin.Term) bool { return t.Name == name })
			if at < 0 {
				cells = append(cells, "")
			} else {
				cells = append(cells, costOf(c.Terms[at].Value, c.Unit))
			}
		}
		t.add(append(cells, costOf(c.Total, c.Unit), secondsOf(c.PredictedTTFTS), notesOf(c))...)
	}
	t.write(b, "\nWho may serve, the best first; costs in "+unitOf(x), "")
	more(b, len(x.Candidates))
}

// maxRows is how many workers of a kind are shown; the first ones tell nearly all.
const maxRows = 25

func more(b *bytes.Buffer, rows int) {
	if rows > maxRows {
		fmt.Fprintf(b, "  and %s more; --json shows all\n", grouped(rows-maxRows))
	}
}

// unitOf is what the costs count, in words.
func unitOf(x *admin.Explanation) string {
	switch x.Candidates[0].Unit {
	case "s":
		return "seconds"
	case "none":
		return "nothing: the policy leaves all to chance"
	case "turns":
		return "turns: the lowest had its last one the longest ago"
	case "of 1":
		return "shares of the worst that there could be"
	case "in hash order":
		return "places in the order of the key's hashes, from 0 to 1"
	default:
		return x.Candidates[0].Unit
	}
}

func notesOf(c *admin.Contender) string {
	var notes []string
	if c.Saturated {
		notes = append(notes, "saturated")
	}
	if c.Passed {
		notes = append(notes, "passed over by the policy's rule")
	}
	if c.Bound {
		notes = append(notes, "answered the session before")
	}
	if c.Doubt > 0 {
		notes = append(notes, fmt.Sprintf("%.0f%% of what it holds is not counted on", c.Doubt*100))
	}
	if lower := c.TierBlocks.Host + c.TierBlocks.Disk + c.TierBlocks.Remote; lower > 0 {
		notes = append(notes, fmt.Sprintf("blocks on device %s, host %s, disk %s, remote %s", grouped(c.TierBlocks.Device),
			grouped(c.TierBlocks.Host), grouped(c.TierBlocks.Disk), grouped(c.TierBlocks.Remote)))
	}
	if c.Preference != 0 {
		notes = append(notes, fmt.Sprintf("preferred by %+g", c.Preference))
	}
	if k, known := c.SpeedFactor.Get(); known && (k < 0.8 || k > 1.25) {
		notes = append(notes, fmt.Sprintf("takes %.1f times as long as estimated", k))
	}
	return strings.Join(notes, "; ")
}

func explainedExcluded(b *bytes.Buffer, x *admin.Explanation) {
	if len(x.Excluded) == 0 {
		return
	}
	t := table{head: []string{"WORKER", "ADDRESS", "WHY", "DETAIL"}}
	for _, e := range x.Excluded[:min(len(x.Excluded), maxRows)] {
		t.add(e.Worker, e.Address, e.Text, e.Detail)
	}
	t.write(b, "\nWho may not", "")
	more(b, len(x.Excluded))
}

func explainedOthers(b *bytes.Buffer, x *admin.Explanation) {
	if len(x.Others) == 0 {
		return
	}
	t := table{head: []string{"POLICY", "WORKER", "#TOKENS HELD", "#FIRST TOKEN", "#COST", ""}}
	for _, o := range x.Others {
		c := admin.Contender{Worker: o.Worker, Rank: o.Rank}
		note := " "
		switch {
		case o.Policy == x.Policy:
			note = "decides"
		case !o.Same:
			note = "another"
		}
		cost := costOf(o.Total, o.Unit)
		if _, known := o.Total.Get(); known && o.Unit != "s" {
			cost += " " + o.Unit
		}
		t.add(o.Policy, c.Name(), grouped(o.CachedTokens), secondsOf(o.PredictedTTFTS), cost, note)
	}
	t.write(b, "\nWhat each policy would choose", "")
}

// costOf writes a cost: seconds with their unit, other things as numbers.
func costOf(f admin.Figure, unit string) string {
	v, known := f.Get()
	switch {
	case !known:
		return unknown
	case unit == "s":
		return fmt.Sprintf("%.3f s", v)
	case v == float64(int(v)):
		return grouped(int(v))
	case v < 10:
		return fmt.Sprintf("%.3f", v)
	default:
		return fmt.Sprintf("%.1f", v)
	}
}

func secondsOf(f admin.Figure) string { return costOf(f, "s") }
