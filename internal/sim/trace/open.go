package trace

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"attache/internal/sim/trace/data"
)

// Names are the recorded open loops that Open knows. conversation-jittered is the first 4,000 rows of conversation without
// their tick of 3 s.
func Names() []string { return []string{"conversation", "conversation-jittered", "synthetic"} }

// Open reads a workload in the Mooncake format: one of Names, which come with the program, or a file.
func Open(name string, o Options) (w *Workload, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("trace %s: %w", name, err)
		}
	}()
	var r io.ReadCloser
	switch name {
	case "conversation":
		r, err = data.Open(data.Conversation)
	case "synthetic":
		r, err = data.Open(data.Synthetic)
	case "conversation-jittered":
		if o.arrivals, err = jittered(); err != nil {
			return nil, err
		}
		if o.Rows == 0 || o.Rows > len(o.arrivals) {
			o.Rows = len(o.arrivals)
		}
		r, err = data.Open(data.Conversation)
	default:
		if r, err = os.Open(name); os.IsNotExist(err) && !strings.ContainsAny(name, "./") {
			err = fmt.Errorf("neither a file nor one of %s", strings.Join(slices.Sorted(slices.Values(Names())), ", "))
		}
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // only read
	return Mooncake(r, o)
}

// jittered are the arrivals of conversation-jittered in ms, in the order of the rows.
func jittered() ([]float64, error) {
	f, err := data.Open(data.Jittered)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	var at []float64
	err = eachLine(f, 0, func(_ int, line []byte) error {
		t, err := strconv.ParseFloat(string(line), 64)
		at = append(at, t)
		return err
	})
	return at, err
}

// unzipped reads through gzip if that is what comes.
func unzipped(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	if magic, err := b.Peek(2); err != nil || magic[0] != 0x1f || magic[1] != 0x8b {
		return b, nil //nolint:nilerr // what is shorter is not compressed, and who reads on meets the error
	}
	return gzip.NewReader(b)
}
