package scoring

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"attache/internal/slot"
)

// experienced is a scorer that has seen 300 requests, with slot 1 twice as slow as slot 0.
func experienced(tb testing.TB) *Scorer {
	tb.Helper()
	s, c := newScorer(tb, DefaultConfig())
	for i := range 300 {
		one := candidates(2)[i%2:][:1]
		_, b := pick(s, ask(2000+i), one)
		c.wait(1)
		b.End()
		s.Observe(b, Outcome{EngineTTFT: time.Duration(float64(1+i%2) * b.own * float64(time.Second)), OutputTokens: 50})
	}
	return s
}

func TestLearntRoundTrip(t *testing.T) {
	was := experienced(t)
	saved := was.Learnt(map[slot.Slot]string{0: "a", 1: "b", 7: "never seen"})
	text, err := json.Marshal(saved)
	if err != nil {
		t.Fatal(err)
	}
	read, err := ReadLearnt(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(saved, read); diff != "" {
		t.Errorf("read otherwise than written (-want +got):\n%s", diff)
	}
	is, _ := newScorer(t, DefaultConfig())
	if err := is.Restore(read, map[string]slot.Slot{"a": 5, "b": 3, "c": 2}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"the pool's k", is.SpeedFactor(), was.SpeedFactor()},
		{"mean prefill", float64(is.own), float64(was.own)},
		{"mean output", float64(is.output), float64(was.output)},
		{"mean residence", float64(is.residence), float64(was.residence)},
		{"sums of a's slot, as a quotient", is.loads[5].own.factor(), was.loads[0].own.factor()},
		{"sums of b's slot, as a quotient", is.loads[3].own.factor(), was.loads[1].own.factor()},
		{"k of a slot that nothing is known of", is.Load(2).SpeedFactor, was.SpeedFactor()},
		{"requests that old sums count as", is.calibration.estimated / float64(is.own), oldCounts},
		{"requests that a slot's old sums count as", is.loads[3].own.estimated / float64(is.own), oldCounts},
	} {
		if !near(c.got, c.want, 1e-9*c.want) {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
}

// TestRestoreKeepsWhatIsKnown: it may come late, and twice.
func TestRestoreKeepsWhatIsKnown(t *testing.T) {
	old := experienced(t).Learnt(map[slot.Slot]string{0: "a", 1: "b"})
	s, c := newScorer(t, DefaultConfig())
	_, b := pick(s, ask(1000), candidates(1))
	c.wait(1)
	s.Observe(b, Outcome{EngineTTFT: 3 * time.Duration(b.own*float64(time.Second))})
	before := s.Learnt(map[slot.Slot]string{0: "a"})
	for range 2 {
		if err := s.Restore(old, map[string]slot.Slot{"a": 0, "b": 1}); err != nil {
			t.Fatal(err)
		}
		after := s.Learnt(map[slot.Slot]string{0: "a", 1: "b"})
		if got := after.Workers["b"]; !near(got.Estimated, oldCounts*old.PrefillSeconds, 1e-9) {
			t.Errorf("the worker that is new here knows %+v", got)
		}
		delete(after.Workers, "b")
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("what was known is replaced (-before +after):\n%s", diff)
		}
	}
}

// TestOldKnowledgeFades: engines that became three times slower over the restart are believed to be so after 100 requests.
func TestOldKnowledgeFades(t *testing.T) {
	s, _ := newScorer(t, DefaultConfig())
	if err := s.Restore(experienced(t).Learnt(nil), nil); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		_, b := pick(s, ask(2000), candidates(1))
		b.Prefilled()
		s.Observe(b, Outcome{EngineTTFT: time.Duration(4.5 * b.own * float64(time.Second))})
		b.End()
	}
	if k := s.SpeedFactor(); !near(k, 4.5, .4) {
		t.Errorf("k = %v, want about 4.5", k)
	}
}

func TestRestoreRefuses(t *testing.T) {
	good := experienced(t).Learnt(map[slot.Slot]string{0: "a", 1: "b"})
	for _, c := range []struct {
		name  string
		spoil func(*Learnt)
		want  string // part of the error
	}{
		{"nothing", func(l *Learnt) { *l = Learnt{} }, "version: 0: must be 1"},
		{"another version", func(l *Learnt) { l.Version = 2 }, "version: 2: must be 1"},
		{"another model", func(l *Learnt) { l.YardstickSeconds *= 1.01 }, "as the configured speed model has it"},
		{"no number", func(l *Learnt) { l.Pool.Observed = math.NaN() }, "pool.observed_seconds: NaN: must be"},
		{"no number to divide by", func(l *Learnt) { l.Pool.Estimated = math.NaN() }, "pool.estimated_seconds: NaN: must be"},
		{"infinite", func(l *Learnt) { l.Pool = Sums{math.Inf(1), math.Inf(1)} }, "pool.estimated_seconds: +Inf: must be"},
		{"negative", func(l *Learnt) { l.Pool = Sums{-1, -1} }, "pool.estimated_seconds: -1: must be"},
		{"too slow", func(l *Learnt) { l.Pool = Sums{10.1, 1} }, "pool.observed_seconds: 10.1: must be 0.1 to 10 times"},
		{"too fast", func(l *Learnt) { l.Pool = Sums{.09, 1} }, "pool.observed_seconds: 0.09: must be 0.1 to 10 times"},
		{"observed without estimate", func(l *Learnt) { l.Pool = Sums{1, 0} }, "pool.observed_seconds: 1: must be"},
		{"no mean", func(l *Learnt) { l.PrefillSeconds = 0 }, "prefill_seconds: 0: must be"},
		{"negative tokens", func(l *Learnt) { l.OutputTokens = -1 }, "output_tokens: -1: must be"},
		{"no tokens", func(l *Learnt) { l.OutputTokens = math.NaN() }, "output_tokens: NaN: must be"},
		{"for ever", func(l *Learnt) { l.ResidenceSeconds = math.Inf(1) }, "residence_seconds: +Inf: must be"},
		{"a worker", func(l *Learnt) { l.Workers["b"] = Sums{1, -1} }, `workers["b"].estimated_seconds: -1: must be`},
		{"a worker without a name", func(l *Learnt) { l.Workers[""] = Sums{1, 1} }, `workers: "": must have names`},
		{"a long name", func(l *Learnt) { l.Workers[strings.Repeat("x", 2000)] = Sums{1, 1} }, "must have names of 1 to 1024 bytes"},
	} {
		l := good
		l.Workers = map[string]Sums{"a": good.Workers["a"], "b": good.Workers["b"]}
		c.spoil(&l)
		s, _ := newScorer(t, DefaultConfig())
		before := s.Learnt(nil)
		err := s.Restore(l, map[string]slot.Slot{"a": 0, "b": 1})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.name, err, c.want)
		}
		if diff := cmp.Diff(before, s.Learnt(map[slot.Slot]string{0: "a", 1: "b"})); diff != "" {
			t.Errorf("%s: something is taken in all the same (-before +after):\n%s", c.name, diff)
		}
	}
}

func TestReadLearntRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "must be JSON"},
		{"null", "version: 0"},
		{"[]", "must be JSON"},
		{`{"version":1`, "must be JSON"},
		{`{"version":1} {}`, "must be JSON"},
		{`{"version":"1"}`, "must be JSON"},
		{`{"version":1,"pool":{"observed_seconds":1e999}}`, "must be JSON"},
		{`{"version":1}`, "prefill_seconds: 0: must be"},
		{strings.Repeat(" ", maxLearnt+1), "must be at most 8388608 bytes"},
	} {
		if _, err := ReadLearnt(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: error %v, want %q in it", c.text, err, c.want)
		}
	}
	broken := errors.New("broken")
	if _, err := ReadLearnt(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("error %v, want that of the reader", err)
	}
}

// FuzzRestore: whatever is read either is refused, or leaves a scorer that decides by finite figures and can be saved again.
func FuzzRestore(f *testing.F) {
	good, err := json.Marshal(experienced(f).Learnt(map[slot.Slot]string{0: "a", 1: "b"}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(bytes.ReplaceAll(good, []byte(`"estimated_seconds":`), []byte(`"estimated_seconds":0.0000`)))
	f.Add(bytes.ReplaceAll(good, []byte(`"a":`), []byte(`"b":`)))
	f.Add([]byte(`{"version":1,"workers":{"a":{"estimated_seconds":5e-324}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := ReadLearnt(bytes.NewReader(text))
		if err != nil {
			return
		}
		s, c := newScorer(t, DefaultConfig())
		if s.Restore(l, map[string]slot.Slot{"a": 0, "b": 1}) != nil {
			return
		}
		for range 3 {
			given := candidates(3)
			for i := range given {
				given[i].KVCapacityTokens, given[i].Live = 16_000, true
			}
			ranked, b := pick(s, ask(8000), given)
			for _, r := range ranked {
				if math.IsNaN(r.Terms.Total) || math.IsInf(r.Terms.Total, 0) || r.Terms.Total < 0 {
					t.Fatalf("slot %d costs %v", r.Slot, r.Terms.Total)
				}
			}
			c.wait(.1)
			b.Prefilled()
			b.End()
		}
		for i := range slot.Slot(3) {
			if k := s.Load(i).SpeedFactor; !(k >= fastest && k <= slowest) {
				t.Fatalf("slot %d has k = %v", i, k)
			}
		}
		again, err := json.Marshal(s.Learnt(map[slot.Slot]string{0: "a", 1: "b"}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadLearnt(bytes.NewReader(again)); err != nil {
			t.Fatalf("cannot read what was written: %v", err)
		}
	})
}
