package direct

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"
)

func newHub(buffer int) *hub {
	count := func() prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "x_total", Help: "x"})
	}
	return &hub{buffer: buffer, figures: figures{cut: count(), sent: count(), received: count()}, subscribers: map[*subscriber]bool{}}
}

// plainSubscriber is what a subscriber should be, in the simplest words.
type plainSubscriber struct {
	*subscriber

	waiting []string
	over    error
}

// TestHub holds queues against lists: each subscriber is told everything published since it came, in order, and no queue grows beyond
// twice the buffer and what was published in one go.
func TestHub(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const buffer, most = 1000, 5000
		h := newHub(buffer)
		var all []*plainSubscriber
		next := 0
		some := func() *plainSubscriber {
			if len(all) == 0 {
				t.Skip("nobody")
			}
			return all[rapid.IntRange(0, len(all)-1).Draw(t, "who")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"subscribe": func(t *rapid.T) {
				s := &plainSubscriber{subscriber: newSubscriber(random{rapid.Byte().Draw(t, "process") % 8}, "")}
				for _, o := range all {
					if o.process == s.process && o.over == nil {
						o.over, o.waiting = errReplaced, nil
					}
				}
				if err := h.subscribe(s.subscriber); err != nil {
					t.Fatal(err)
				}
				all = append(all, s)
			},
			"publish": func(t *rapid.T) {
				var records [][]byte
				var texts []string
				for range rapid.IntRange(0, 5).Draw(t, "records") {
					next++
					text := strings.Repeat(fmt.Sprint(next, " "), rapid.IntRange(0, most/50).Draw(t, "length"))
					records, texts = append(records, []byte(text)), append(texts, text)
				}
				if err := h.publish(records); err != nil {
					t.Fatal(err)
				}
				for _, s := range all {
					if s.over == nil && errors.Is(s.why, errSlow) {
						s.over = errSlow
						if n := total(s.waiting) + total(texts); n <= buffer {
							t.Fatalf("cut off with %d bytes before it", n)
						}
						s.waiting = nil
					}
					if s.over == nil {
						s.waiting = append(s.waiting, texts...)
					}
				}
				for _, r := range records { // nobody may keep them
					clear(r)
				}
			},
			"take": func(t *rapid.T) {
				s := some()
				frame, _, more := h.take(s.subscriber)
				if more == (s.over != nil) {
					t.Fatalf("more %v, over %v", more, s.over)
				}
				n := 0
				if err := visit(frame.Materialize(), func(record []byte) {
					if n >= len(s.waiting) || string(record) != s.waiting[n] {
						t.Fatalf("told %q, where %d records wait, and %d were told", record, len(s.waiting), n)
					}
					n++
				}); err != nil {
					t.Fatal(err)
				}
				if s.waiting = s.waiting[n:]; n == 0 && len(s.waiting) > 0 {
					t.Fatalf("%d records wait, and none is told", len(s.waiting))
				}
			},
			"leave": func(t *rapid.T) {
				s := some()
				if why := h.leave(s.subscriber); !errors.Is(why, s.over) && (s.over == nil) != (why == nil) {
					t.Fatalf("left by %v, want %v", why, s.over)
				}
				if s.over == nil {
					s.over, s.waiting = errStopped, nil
				}
			},
			"": func(t *rapid.T) {
				living := 0
				for _, s := range all {
					if s.over == nil {
						living++
					}
					if s.bytes != s.subscriber.waiting.Len() || s.bytes > 2*buffer+most+100 {
						t.Fatalf("%d bytes wait, %d are counted", s.subscriber.waiting.Len(), s.bytes)
					}
				}
				if h.count() != living {
					t.Fatalf("%d subscribers, want %d", h.count(), living)
				}
			},
		})
	})
}

func total(records []string) (n int) {
	for _, r := range records {
		n += len(r) + 3
	}
	return n
}
