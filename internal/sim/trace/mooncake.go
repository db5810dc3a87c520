package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"
)

// Options say how rows of the Mooncake format become a workload.
type Options struct {
	// BlockTokens is the size of the engines' blocks in tokens; 0 is 64. It divides TraceBlock.
	BlockTokens int
	// TraceBlock is how many tokens one of the rows' hash_ids stands for; 0 is 512.
	TraceBlock int
	// Rows cuts the workload to its first rows; 0 is all.
	Rows int
	// Speedup divides arrivals and delays; 0 is 1.
	Speedup float64
	// Jitter moves each arrival by up to so much, before the speedup, and sorts again: for recordings on a coarse tick.
	Jitter time.Duration
	// Seed is that of the jitter.
	Seed uint64

	// arrivals, in ms, are used instead of those of the rows.
	arrivals []float64
}

// row is one line. Others than the first of a session have a delay, in ms, after the answer before.
type row struct {
	Timestamp *float64 `json:"timestamp"`
	Delay     float64  `json:"delay"`
	Prompt    int      `json:"input_length"`
	Output    int      `json:"output_length"`
	IDs       []uint64 `json:"hash_ids"`
	Session   string   `json:"session_id"`
}

// Mooncake reads rows of the format of Mooncake's traces (FAST'25), plain or compressed with gzip: one JSON object per line,
// with timestamp in ms, input_length and output_length in tokens, hash_ids, and, for a closed loop, session_id and delay in
// ms. The first arrival becomes 0. Errors name the row, counted from 1.
func Mooncake(r io.Reader, o Options) (*Workload, error) {
	if o.BlockTokens == 0 {
		o.BlockTokens = 64
	}
	if o.TraceBlock == 0 {
		o.TraceBlock = 512
	}
	if o.Speedup == 0 {
		o.Speedup = 1
	}
	switch {
	case o.BlockTokens < 1 || o.TraceBlock < 1 || o.TraceBlock%o.BlockTokens != 0:
		return nil, fmt.Errorf("blocks of %d tokens in a trace with blocks of %d: the one must divide the other", o.BlockTokens, o.TraceBlock)
	case !(o.Speedup > 0) || math.IsInf(o.Speedup, 0):
		return nil, fmt.Errorf("speedup %v: must be above 0", o.Speedup)
	case o.Jitter < 0 || o.Jitter > maxTime:
		return nil, fmt.Errorf("jitter %v: must be between 0 and %v", o.Jitter, maxTime)
	case o.Rows < 0:
		return nil, fmt.Errorf("%d rows: must not be negative", o.Rows)
	}
	m := mooncake{
		Options: o, w: &Workload{BlockTokens: o.BlockTokens}, blocks: map[link]int{}, last: map[string]*Request{},
		rand: rand.New(rand.NewPCG(o.Seed, 0)),
	}
	if err := eachLine(r, o.Rows, m.add); err != nil {
		return nil, err
	}
	return m.done()
}

// mooncake reads one trace.
type mooncake struct {
	Options

	w      *Workload
	blocks map[link]int        // the first number of each block of the trace
	last   map[string]*Request // of each session
	heads  []float64           // arrivals of w.Heads in ms
	rand   *rand.Rand
}

// link names a block of the trace and, by its parent's number, all before it.
type link struct {
	parent int
	id     uint64
}

// add is one row.
func (m *mooncake) add(n int, line []byte) error {
	var row row
	if err := json.Unmarshal(line, &row); err != nil {
		return err
	}
	switch most := (row.Prompt + m.TraceBlock - 1) / m.TraceBlock; {
	case row.Prompt < 1 || row.Prompt > maxTokens:
		return fmt.Errorf("input_length %d: must be between 1 and %d", row.Prompt, maxTokens)
	case row.Output < 0 || row.Output > maxTokens:
		return fmt.Errorf("output_length %d: must be between 0 and %d", row.Output, maxTokens)
	case len(row.IDs) > most:
		return fmt.Errorf("%d hash_ids: %d tokens have at most %d blocks of %d", len(row.IDs), row.Prompt, most, m.TraceBlock)
	case row.Delay < 0 || row.Delay/m.Speedup > ms(maxTime):
		return fmt.Errorf("delay %v: must be between 0 and a hundred years", row.Delay)
	}
	ids, err := m.ids(&row)
	if err != nil {
		return err
	}
	before := m.last[row.Session]
	r := m.w.newRequest(Request{Prompt: row.Prompt, Output: max(1, row.Output), IDs: ids, Session: -1})
	if row.Session != "" {
		m.last[row.Session] = r
		if before != nil {
			r.Session, r.Turn, r.Think = before.Session, before.Turn+1, fromMS(row.Delay/m.Speedup)
			follow(before, r)
			return nil
		}
		r.Session = len(m.last) - 1
	}
	var at float64
	switch {
	case n <= len(m.arrivals):
		at = m.arrivals[n-1]
	case row.Timestamp != nil:
		at = *row.Timestamp
	default:
		return errors.New("no timestamp")
	}
	if m.Jitter > 0 {
		at += m.rand.Float64() * ms(m.Jitter)
	}
	m.w.Heads, m.heads = append(m.w.Heads, r), append(m.heads, at)
	return nil
}

// ids numbers the full blocks of a row's prompt, as far as they are named.
func (m *mooncake) ids(row *row) ([]int32, error) {
	per, parent := m.TraceBlock/m.BlockTokens, -1
	n := min(row.Prompt/m.BlockTokens, len(row.IDs)*per)
	ids := make([]int32, 0, n)
	for _, id := range row.IDs {
		first, known := m.blocks[link{parent, id}]
		if !known {
			first = m.w.IDs
			if first+per > math.MaxInt32 {
				return nil, fmt.Errorf("more than %d different blocks", math.MaxInt32)
			}
			m.blocks[link{parent, id}] = first
			m.w.IDs += per
		}
		for i := 0; i < per && len(ids) < n; i++ {
			ids = append(ids, int32(first+i))
		}
		parent = first
	}
	return ids, nil
}

// done sets the arrivals.
func (m *mooncake) done() (*Workload, error) {
	first := math.Inf(1)
	for _, at := range m.heads {
		first = min(first, at)
	}
	for i, r := range m.w.Heads {
		at := (m.heads[i] - first) / m.Speedup
		if !(at <= ms(maxTime)) {
			return nil, fmt.Errorf("row %d: it arrives %v ms after the first: at most a hundred years expected", r.Index+1, at)
		}
		r.Arrival = fromMS(at)
	}
	m.w.order()
	return m.w, nil
}

func ms(d time.Duration) float64     { return float64(d) / float64(time.Millisecond) }
func fromMS(t float64) time.Duration { return time.Duration(math.Round(t * float64(time.Millisecond))) }

// maxLine bounds a line in bytes.
const maxLine = 16 << 20

// eachLine calls f with the first rows of a file (0: all) that are not empty and their numbers, from 1, and names the row in
// errors.
func eachLine(r io.Reader, rows int, f func(n int, line []byte) error) error {
	r, err := unzipped(r)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	n := 0
	for (rows == 0 || n < rows) && lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		n++
		if err := f(n, lines.Bytes()); err != nil {
			return fmt.Errorf("row %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("row %d: %w (lines of at most %d bytes expected)", n+1, err, maxLine)
	}
	if n == 0 {
		return errors.New("no rows")
	}
	return nil
}
