package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"attache/internal/admin"
)

// writeDump prints what a person wants to know first at night: what is wrong, then who serves, then how their caches are known.
func writeDump(out io.Writer, d *dumped) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "attache %s", printable(d.Status.Version))
	now := time.Now()
	if s, known := d.Status.UptimeS.Get(); known {
		up := time.Duration(s * float64(time.Second))
		now = d.Status.StartedAt.Add(up) // by its own clock
		fmt.Fprintf(&b, ", up %s", span(up))
	}
	fmt.Fprintf(&b, ", %d requests in flight\n", d.Status.InFlight)
	for _, w := range d.Status.Warnings {
		fmt.Fprintf(&b, "! %s\n", printable(w))
	}
	dumpWorkers(&b, d.Workers, now)
	dumpFeeds(&b, d.Feeds, now)
	dumpIndex(&b, d.Index)
	for _, w := range d.Prefixes {
		dumpRank(&b, w)
	}
	_, err := out.Write(b.Bytes())
	return err
}

func dumpWorkers(b *bytes.Buffer, workers []admin.Worker, now time.Time) {
	t := table{head: []string{"WORKER", "POOL", "STATE", "FOR", "OVERLAP", "#IN FLIGHT", "#KV USED", "#KNOWN BLOCKS", "CAUSE"}}
	for _, w := range workers {
		t.add(w.Name, w.Pool, w.State, since(w.Since, now), w.Overlap.Mode, strconv.Itoa(w.InFlight), percent(w.KVUsage),
			number(w.CachedBlocksKnown), w.Cause)
	}
	t.write(b, "\nWorkers", "none known")
}

func dumpFeeds(b *bytes.Buffer, feeds []admin.Feed, now time.Time) {
	t := table{head: []string{"FEED", "#RANK", "STATE", "FOR", "MODE", "#SEQUENCE", "#LAG", "#HEARD", "#GAPS", "#CLOSED", "#REPLAYS", "#FAILED",
		"#CLEARED", "#DEVICE", "#HOST", "#DISK", "#REMOTE", "REASON"}}
	for _, f := range feeds {
		t.add(f.Worker, strconv.Itoa(f.Rank), f.State, since(f.Since, now), f.Mode, number(f.Sequence), duration(f.LagS), ago(f.HeardAgeS),
			grouped(f.Gaps), grouped(f.GapsClosed), grouped(f.Replays), grouped(f.ReplaysFailed), grouped(f.Cleared),
			grouped(f.HeldBlocks.Device), grouped(f.HeldBlocks.Host), grouped(f.HeldBlocks.Disk), grouped(f.HeldBlocks.Remote), f.Reason)
	}
	t.write(b, "\nFeeds of KV events, blocks by tier", "none: overlap is known by attache's own decisions alone")
}

func dumpIndex(b *bytes.Buffer, pools []admin.Index) {
	told := table{head: []string{"POOL", "#MEMORY", "#OF", "#USED", "#BLOCKS HELD", "#DIFFERENT", "#RUNS", "#WAITING", "#EVICTED", "#REFUSED"}}
	sent := table{head: []string{"POOL", "#BLOCKS HELD", "#OF", "#USED", "#DIFFERENT"}}
	for _, p := range pools {
		x, y := p.Index, p.Indexer
		told.add(p.Pool, size(x.Bytes), size(x.MaxBytes), percent(admin.Share(x.Bytes, x.MaxBytes)), grouped(x.Held), grouped(x.Blocks),
			grouped(x.Runs), grouped(x.WaitingBlocks), grouped(x.Evicted), grouped(x.Refused))
		sent.add(p.Pool, grouped(y.Held), grouped(y.MaxBlocks), percent(admin.Share(y.Held, y.MaxBlocks)), grouped(y.Prefixes))
	}
	told.write(b, "\nIndex of KV events", "no pools")
	sent.write(b, "\nIndex of attache's own decisions", "no pools")
}

func dumpRank(b *bytes.Buffer, w admin.WorkerPrefixes) {
	t := table{head: []string{"SEQUENCE HASH", "#BLOCKS", "#TOKENS", "#USED"}}
	for _, p := range w.Prefixes {
		t.add(p.Hash, grouped(p.Blocks), grouped(p.Tokens), ago(p.AgeS))
	}
	t.write(b, fmt.Sprintf("\nPrefixes of %s, pool %s, rank %d, the most recently used first", printable(w.Worker), printable(w.Pool), w.Rank),
		"none: no prompt was sent there, or all are forgotten")
}

// table is text in columns. A heading that begins with # is one of numbers, which stand at the right.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) {
	for i, c := range cells {
		cells[i] = printable(c)
	}
	t.rows = append(t.rows, cells)
}

// write prints the table under a title; empty stands for a table without rows. The last column may be as long as it is.
func (t *table) write(b *bytes.Buffer, title, empty string) {
	if len(t.rows) == 0 {
		fmt.Fprintf(b, "%s: %s\n", title, empty)
		return
	}
	b.WriteString(title + "\n")
	right, width, head := make([]bool, len(t.head)), make([]int, len(t.head)), make([]string, len(t.head))
	for i, h := range t.head {
		head[i] = strings.TrimPrefix(h, "#")
		right[i] = head[i] != h
	}
	lines := slices.Concat([][]string{head}, t.rows)
	for _, line := range lines {
		for i, c := range line {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, line := range lines {
		var row strings.Builder
		for i, c := range line {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if right[i] {
				c = pad + c
			} else {
				c += pad
			}
			row.WriteString("  " + c)
		}
		b.WriteString(strings.TrimRight(row.String(), " ") + "\n")
	}
}

// unknown stands for a figure that nobody measured, or nothing to say.
const unknown = "-"

// printable keeps what came from engines and files from steering the terminal.
func printable(s string) string {
	if s == "" {
		return unknown
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// grouped writes 4100 as 4,100.
func grouped[T ~int | ~uint64](n T) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func number(f admin.Figure) string {
	v, known := f.Get()
	if !known {
		return unknown
	}
	return grouped(int(v))
}

func percent(f admin.Figure) string {
	v, known := f.Get()
	if !known {
		return unknown
	}
	return fmt.Sprintf("%.0f%%", v*100)
}

// duration writes a short time.
func duration(f admin.Figure) string {
	v, known := f.Get()
	switch {
	case !known:
		return unknown
	case v < 1 && v > -1:
		return fmt.Sprintf("%.1f ms", v*1000)
	default:
		return fmt.Sprintf("%.1f s", v)
	}
}

func ago(f admin.Figure) string {
	v, known := f.Get()
	if !known {
		return unknown
	}
	return span(time.Duration(v*float64(time.Second))) + " ago"
}

// since is how long something lasts; the zero instant is unknown.
func since(then, now time.Time) string {
	if then.IsZero() {
		return unknown
	}
	return span(now.Sub(then))
}

// span writes a long time in its two largest units.
func span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
}

// size writes bytes in the unit that leaves one to four digits.
func size(bytes int) string {
	v := float64(bytes)
	for _, unit := range []string{"B", "KiB", "MiB"} {
		if v < 1024 {
			return strconv.FormatFloat(v, 'f', map[bool]int{true: 1}[v < 10 && unit != "B"], 64) + " " + unit
		}
		v /= 1024
	}
	return fmt.Sprintf("%.1f GiB", v)
}
