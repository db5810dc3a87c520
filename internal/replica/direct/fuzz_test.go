package direct

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// FuzzGreeting: what is read as a greeting is written as it was.
func FuzzGreeting(f *testing.F) {
	g := greeting{pool: "llama", name: "gateway-1", process: random{1}, nonce: random{2}}
	f.Add(g.append(nil))
	f.Add(append(g.append(nil), make([]byte, proofBytes)...))
	f.Add([]byte{version, 255})
	f.Add((&greeting{pool: strings.Repeat("p", mostText), name: strings.Repeat("n", mostText)}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var g greeting
		rest, err := g.decode(b)
		if err == nil && !bytes.Equal(append(g.append(nil), rest...), b) {
			t.Errorf("%x is read as %+v and %x", b, g, rest)
		}
	})
}

// FuzzFrame: whatever comes as a frame, its records lie in it one behind another.
func FuzzFrame(f *testing.F) {
	f.Add([]byte(append(framed([]byte("one")), framed(nil)...)))
	f.Add([]byte{5, 1})
	f.Add(binary.AppendUvarint(nil, 1<<63))
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		err := visit(b, func(record []byte) {
			if len(record) != cap(record) {
				t.Error("a record can be appended to: the next one would be overwritten")
			}
			again = append(again, framed(record)...)
		})
		if err == nil && len(again) > len(b) { // lengths may be written longer than need be, never shorter
			t.Errorf("%x is read as %x", b, again)
		}
	})
}

// FuzzHandshake: nobody who does not know the token is told anything, whatever he says.
func FuzzHandshake(f *testing.F) {
	w, cfg := newNetwork(), config()
	cfg.TokenFile = write(f, f.TempDir()+"/token", secret)
	n, err := newNode(Params{Config: cfg, Name: "a", Lookup: w, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()},
		w.listen("10.0.0.1:9004"), w.dial)
	if err != nil {
		f.Fatal(err)
	}
	m := run(f, n, nil)
	f.Cleanup(m.stop)
	link := m.Link("llama")
	g := greeting{pool: "llama", name: "stranger", process: random{1}, nonce: random{2}}
	f.Add(g.append(nil), make([]byte, proofBytes))
	f.Add(g.append(nil), prove(nil, ofFollower, &g, &g))
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		if err := w.call(t, "10.0.0.1:9004", first, second); err == nil {
			t.Error("the stream has ended without an error")
		}
		if n := link.hub.count(); n > 0 {
			t.Errorf("%d strangers were let in", n)
		}
	})
}
