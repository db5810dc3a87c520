package wire

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// record is one message of a recording. See testdata/recordings/README.md.
type record struct {
	kind   byte // 'P', 'Q' or 'R'
	frames [][]byte
	step   string
	seq    uint64
	want   any // nil where there is no batch
}

// recordings are the names of all.
func recordings(tb testing.TB) []string {
	tb.Helper()
	paths, err := filepath.Glob("testdata/recordings/*.bin")
	if err != nil || len(paths) == 0 {
		tb.Fatalf("no recordings: %v", err)
	}
	var names []string
	for _, p := range paths {
		names = append(names, strings.TrimSuffix(filepath.Base(p), ".bin"))
	}
	return names
}

// read reads a recording from both of its files.
func read(tb testing.TB, name string) []record {
	tb.Helper()
	b, err := os.ReadFile("testdata/recordings/" + name + ".bin")
	if err != nil {
		tb.Fatal(err)
	}
	var records []record
	for len(b) > 0 {
		r := record{kind: b[0]}
		n := binary.BigEndian.Uint32(b[9:])
		b = b[13:]
		for range n {
			size := binary.BigEndian.Uint32(b)
			r.frames = append(r.frames, b[4:4+size:4+size])
			b = b[4+size:]
		}
		records = append(records, r)
	}
	f, err := os.Open("testdata/recordings/" + name + ".json.gz")
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	var told struct {
		Records []struct {
			Kind    string   `json:"kind"`
			Step    string   `json:"step"`
			Frames  []string `json:"frames_hex"`
			Seq     uint64   `json:"seq"`
			Decoded any      `json:"decoded"`
		} `json:"records"`
	}
	in := json.NewDecoder(unzipped)
	in.UseNumber()
	if err := in.Decode(&told); err != nil {
		tb.Fatal(err)
	}
	if len(told.Records) != len(records) {
		tb.Fatalf("%s: %d records in .bin, %d in .json", name, len(records), len(told.Records))
	}
	for i, r := range told.Records {
		records[i].step, records[i].seq, records[i].want = r.Step, r.Seq, r.Decoded
		for k, frame := range r.Frames {
			if b, err := hex.DecodeString(frame); err != nil || !bytes.Equal(b, records[i].frames[k]) {
				tb.Fatalf("%s: record %d: frame %d differs between .bin and .json", name, i, k)
			}
		}
	}
	return records
}

// message parses the frames of a record by its kind; ok is false for requests and ends of replays.
func (r *record) message(tb testing.TB) (m Message, ok bool) {
	tb.Helper()
	var end bool
	var err error
	switch r.kind {
	case 'P':
		m, err = ParseLive(r.frames)
	case 'R':
		m, end, err = ParseReplay(r.frames)
	default:
		return Message{}, false
	}
	if err != nil {
		tb.Fatal(err)
	}
	if m.Seq != r.seq {
		tb.Fatalf("sequence number %d, want %d", m.Seq, r.seq)
	}
	return m, !end
}

func TestRecordings(t *testing.T) {
	for _, name := range recordings(t) {
		t.Run(name, func(t *testing.T) {
			var b Batch
			batches, live := 0, map[uint64]string{}
			for i, r := range read(t, name) {
				m, ok := r.message(t)
				if ok != (r.want != nil) {
					t.Errorf("record %d (%s): a batch: %v, want %v", i, r.step, ok, r.want != nil)
				}
				if !ok {
					continue
				}
				if err := b.Decode(m.Payload); err != nil {
					t.Errorf("record %d (%s): %v", i, r.step, err)
					continue
				}
				want, _ := describeTwin(jsonTree(r.want))
				if diff := cmp.Diff(want, describe(&b, m.Payload)); diff != "" {
					t.Errorf("record %d (%s): (-want +got)\n%s", i, r.step, diff)
				}
				if strings.Contains(want, "counts") {
					t.Errorf("record %d (%s): something is not understood: %s", i, r.step, want)
				}
				batches++
				// Replayed payloads are those of the live messages. (Ranks and restarted engines number from 0 again.)
				switch was, ok := live[m.Seq]; {
				case r.kind == 'P':
					live[m.Seq] = string(m.Payload)
				case ok && was != string(m.Payload) && !strings.Contains(name, "dp2") && !strings.Contains(name, "kill9"):
					t.Errorf("record %d: replay differs from live message %d", i, m.Seq)
				}
			}
			t.Logf("%d batches", batches)
		})
	}
}
