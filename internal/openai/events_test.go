package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// eventsOf reads all events of a stream, and the error that ends it unless it is the end itself.
func eventsOf(r io.Reader) (events []string, err error) {
	e := NewEventReader(r)
	for {
		data, err := e.Next()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events = append(events, string(data))
	}
}

func TestEventReader(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, c := range []struct {
		name, stream string
		want         []string
	}{
		{"a stream of an engine", "data: {\"a\":1}\n\ndata: {\"b\":2}\n\ndata: [DONE]\n\n", []string{`{"a":1}`, `{"b":2}`, Done}},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
		{"comments, names, ids and retry times", ": ping\n\nevent: message_start\nid: 7\nretry: 10\ndata: a\n\nevent: ping\n\n", []string{"a"}},
		{"several lines", "data: a\ndata:b\ndata:  c\ndata\n\n", []string{"a\nb\n c\n"}},
		{"empty data", "data:\n\n" + "data: a\n\n", []string{"", "a"}},
		{"fields that only begin alike", "database: x\ndata: a\n data: b\n\n", []string{"a"}},
		{"blank lines galore", "\n\n\ndata: a\n\n\n\n", []string{"a"}},
		{"no blank line at the end", "data: a\n\ndata: b\n", []string{"a", "b"}},
		{"no newline at the end", "data: a\n\ndata: [DONE]", []string{"a", Done}},
		{"long lines", "data: " + long + "\n\ndata: b\n\n", []string{long, "b"}},
		{"nothing", "", nil},
	} {
		for way, r := range map[string]io.Reader{
			"at once": strings.NewReader(c.stream), "by bytes": iotest.OneByteReader(strings.NewReader(c.stream)),
			"with the error beside the data": iotest.DataErrReader(strings.NewReader(c.stream)),
		} {
			got, err := eventsOf(r)
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%s, %s: %v (-want +got):\n%s", c.name, way, err, diff)
			}
		}
	}
}

func TestEventReaderEndsOnce(t *testing.T) {
	e := NewEventReader(strings.NewReader("data: a"))
	if data, err := e.Next(); string(data) != "a" || err != nil {
		t.Fatalf("%q, %v", data, err)
	}
	for range 2 {
		if data, err := e.Next(); len(data) != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("after the end: %q, %v", data, err)
		}
	}
}

func TestEventReaderDropsWhatIsCutShort(t *testing.T) {
	broken := errors.New("connection reset")
	got, err := eventsOf(io.MultiReader(strings.NewReader("data: a\n\ndata: {\"b\":"), iotest.ErrReader(broken)))
	if diff := cmp.Diff([]string{"a"}, got); diff != "" || !errors.Is(err, broken) {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestEventReaderBoundsEvents(t *testing.T) {
	for _, c := range []struct {
		name, stream string
		err          error
	}{
		{"the longest line", "data: " + strings.Repeat("x", MaxEvent-6) + "\n\n", nil},
		{"one line", "data: " + strings.Repeat("x", MaxEvent+20<<10) + "\n\n", ErrEventTooLong},
		{"a line without data", ": " + strings.Repeat("x", 2*MaxEvent), ErrEventTooLong},
		{"many lines", strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n", 1100) + "\n", ErrEventTooLong},
	} {
		e := NewEventReader(strings.NewReader(c.stream))
		if _, err := e.Next(); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.name, err, c.err)
		}
		if _, err := e.Next(); err == nil {
			t.Errorf("%s: goes on", c.name)
		}
	}
}

// plainEvents is the dumb twin: it has the whole stream in hand.
func plainEvents(stream []byte) (events []string) {
	var data []string
	flush := func() {
		if data != nil {
			events = append(events, strings.Join(data, "\n"))
		}
		data = nil
	}
	for line := range strings.SplitSeq(string(stream), "\n") {
		line = strings.TrimSuffix(line, "\r")
		name, value, _ := strings.Cut(line, ":")
		switch {
		case line == "":
			flush()
		case name == "data":
			data = append(data, strings.TrimPrefix(value, " "))
		}
	}
	flush()
	return events
}

func FuzzEventReader(f *testing.F) {
	f.Add([]byte("data: a\n\ndata: b\ndata:c\r\n\r\n: x\nevent: y\n\ndata"))
	f.Add(fmt.Appendf(nil, "data: %s\n\n", strings.Repeat("x", 20<<10)))
	f.Fuzz(func(t *testing.T, stream []byte) {
		want := plainEvents(stream)
		for _, r := range []io.Reader{bytes.NewReader(stream), iotest.HalfReader(bytes.NewReader(stream))} {
			got, err := eventsOf(r)
			if err == nil && !cmp.Equal(want, got) {
				t.Errorf("%q: %q, want %q", stream, got, want)
			}
		}
	})
}
