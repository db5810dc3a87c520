package wire

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func frames(parts ...string) (f [][]byte) {
	for _, p := range parts {
		f = append(f, []byte(p))
	}
	return f
}

const (
	seq5   = "\x00\x00\x00\x00\x00\x00\x00\x05"
	seqEnd = "\xff\xff\xff\xff\xff\xff\xff\xff"
)

func TestParseLive(t *testing.T) {
	for name, c := range map[string]struct {
		in   [][]byte
		want Message
		ok   bool
	}{
		"with topic":       {frames("kv@pod@m", seq5, "p"), Message{[]byte("kv@pod@m"), 5, []byte("p")}, true},
		"without topic":    {frames("", seq5, "p"), Message{[]byte{}, 5, []byte("p")}, true},
		"too few frames":   {frames(seq5, "p"), Message{}, false},
		"too many frames":  {frames("", "", seq5, "p"), Message{}, false},
		"short sequence":   {frames("", "1234567", "p"), Message{}, false},
		"no frames at all": {nil, Message{}, false},
	} {
		got, err := ParseLive(c.in)
		var frame *FrameError
		if (err == nil) != c.ok || err != nil && !errors.As(err, &frame) {
			t.Errorf("%s: error %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

func TestParseReplay(t *testing.T) {
	for name, c := range map[string]struct {
		in      [][]byte
		want    Message
		end, ok bool
	}{
		"old":                          {frames("", seq5, "p"), Message{nil, 5, []byte("p")}, false, true},
		"new":                          {frames("", "t", seq5, "p"), Message{[]byte("t"), 5, []byte("p")}, false, true},
		"new, empty topic":             {frames("", "", seq5, "p"), Message{[]byte{}, 5, []byte("p")}, false, true},
		"old end":                      {frames("", seqEnd, ""), Message{nil, EndOfReplay, []byte{}}, true, true},
		"new end":                      {frames("", "", seqEnd, ""), Message{[]byte{}, EndOfReplay, []byte{}}, true, true},
		"delimiter taken off, old":     {frames(seq5, "p"), Message{nil, 5, []byte("p")}, false, true},
		"delimiter taken off, new":     {frames("t", seq5, "p"), Message{[]byte("t"), 5, []byte("p")}, false, true},
		"end by payload":               {frames("", seq5, ""), Message{nil, 5, []byte{}}, true, true},
		"payload behind the end":       {frames("", seqEnd, "p"), Message{}, false, false},
		"one frame":                    {frames("p"), Message{}, false, false},
		"too many frames":              {frames("", "t", "t", seq5, "p"), Message{}, false, false},
		"sequence where payload is":    {frames("", "t", seq5), Message{}, false, false},
		"nothing":                      {nil, Message{}, false, false},
		"four frames, first not empty": {frames("x", "t", seq5, "p"), Message{}, false, false},
	} {
		got, end, err := ParseReplay(c.in)
		var frame *FrameError
		if (err == nil) != c.ok || end != c.end || err != nil && !errors.As(err, &frame) {
			t.Errorf("%s: end %v, error %v", name, end, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// TestRecordedFrames checks what we write against what was on the wire.
func TestRecordedFrames(t *testing.T) {
	for _, name := range recordings(t) {
		for i, r := range read(t, name) {
			var want [][]byte
			switch m, ok := r.message(t); {
			case r.kind == 'Q':
				start, err := ParseReplayRequest(r.frames)
				if err != nil {
					if len(r.frames) == 2 {
						t.Errorf("%s: record %d: %v", name, i, err)
					}
					continue // the request that was recorded because it is wrong
				}
				want = ReplayRequest(start)
			case r.kind == 'P':
				want = LiveFrames(m)
			case ok:
				want = ReplayFrames(m, len(r.frames) == 4)
			default:
				want = ReplayEnd(len(r.frames) == 4)
			}
			if diff := cmp.Diff(want, r.frames); diff != "" {
				t.Errorf("%s: record %d (%s): (-ours +theirs)\n%s", name, i, r.step, diff)
			}
		}
	}
}

func TestParseReplayRequest(t *testing.T) {
	for _, bad := range [][][]byte{nil, frames(seq5), frames("", "1"), frames("", seq5, "")} {
		if _, err := ParseReplayRequest(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
	err := &FrameError{Want: "a sequence number has 8 bytes", Got: count(1, "byte")}
	if got, want := err.Error(), "frames: a sequence number has 8 bytes, found 1 byte"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
