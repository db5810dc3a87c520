package state

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// FuzzPosition: what is read as a position is written as it was.
func FuzzPosition(f *testing.F) {
	for _, s := range []string{"", "0-0:0", "1700000000000-3:42", "1-1", "1:1", "-", ":", "18446744073709551615-0:1", "18446744073709551614-1:2", "1-1:1x", "+1-1:1", "１-1:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePosition(s)
		switch {
		case err != nil:
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		case s == "" && p != position{}:
			t.Errorf("nothing is %v", p)
		case s != "" && p.String() != s:
			t.Errorf("%q was read as %q", s, p)
		}
	})
}

// FuzzRecord: records of a stream, of whoever wrote them, are read or refused.
func FuzzRecord(f *testing.F) {
	f.Add("1-0", "1", "value", "2-0", "2", uint64(0))
	f.Add("1700000000000-7", "18446744073709551615", "", "", "x", uint64(1<<64-2))
	f.Fuzz(func(t *testing.T, id, number, value, id2, number2 string, after uint64) {
		messages := []redis.XMessage{{ID: id, Values: map[string]any{"n": number, "v": value}}, {ID: id2, Values: map[string]any{"n": number2, "v": value}}}
		records, lost, err := parseRecords(messages, position{number: after})
		if err != nil {
			return
		}
		if len(records) != 2 || string(records[0].Value) != value {
			t.Fatalf("read %v", records)
		}
		if n, _ := strconv.ParseUint(number, 10, 64); lost == (after+1 == n) {
			t.Errorf("lost %v between %d and %d", lost, after, n)
		}
		for _, r := range records {
			if _, err := parsePosition(r.Position); err != nil {
				t.Errorf("a position that is none: %v", err)
			}
		}
		for _, fields := range []map[string]any{nil, {"n": number}, {"v": value}, {"n": 1, "v": value}, {"n": number, "v": nil}} {
			if _, _, err := parseRecord(redis.XMessage{ID: id, Values: fields}); err == nil {
				t.Errorf("%v is read as a record", fields)
			}
		}
	})
}

// FuzzMembers: what a group holds, of whoever wrote it, is read or refused.
func FuzzMembers(f *testing.F) {
	f.Add("a\nvalue\n1000")
	f.Add("a\nvalue\n1000\nb\n\n-1")
	f.Add("a\nvalue\n99999999999999999999\nb")
	f.Fuzz(func(t *testing.T, text string) {
		texts := strings.Split(text, "\n")
		members, err := parseMembers(texts)
		if err != nil {
			return
		}
		if len(members) != len(texts)/3 {
			t.Fatalf("%d members of %q", len(members), texts)
		}
		for i, m := range members {
			if m.Left < time.Millisecond || m.Left > maxTTL || i > 0 && members[i-1].Name > m.Name {
				t.Errorf("member %+v", m)
			}
		}
	})
}

// TestPositionsInOrder: their order is that of their times and sequences, and one comes back as what it was.
func TestPositionsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Uint64Range(0, 1<<64-2)
		p := position{number.Draw(t, "time"), number.Draw(t, "sequence"), number.Draw(t, "number")}
		q := position{number.Draw(t, "time"), number.Draw(t, "sequence"), number.Draw(t, "number")}
		if back, err := parsePosition(p.String()); err != nil || back != p || len(p.String()) > maxPosition {
			t.Fatalf("%v came back as %v, error %v", p, back, err)
		}
		if p.before(q) == q.before(p) && (p.time != q.time || p.sequence != q.sequence) {
			t.Fatalf("%v and %v have no order", p, q)
		}
	})
}

func TestScriptsAreThere(t *testing.T) {
	s, err := loadScripts()
	if err != nil {
		t.Fatal(err)
	}
	files, err := lua.ReadDir("lua")
	if err != nil {
		t.Fatal(err)
	}
	hashes := map[string]bool{}
	for _, script := range []*script{s.append, s.put, s.remove, s.members, s.acquire, s.release, s.saveFenced} {
		hashes[script.known.Hash()] = true
	}
	if len(hashes) != len(files)-1 { // common.lua is in each of them
		t.Errorf("%d scripts of %d files", len(hashes), len(files))
	}
}
