package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// newPullWorld is a world whose feed pulls; there is no engine.
func newPullWorld(t *testing.T) *world {
	t.Helper()
	w := &world{clock: time.Unix(1000, 0), history: map[int]*publisher{}, block: pageTokens}
	l, err := New(Params{Config: DefaultConfig(), Pool: "p", BlockTokens: pageTokens, Now: func() time.Time { return w.clock },
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	w.feed = newFeed(context.Background(), l, "w", 3, Source{Pull: true, URL: "http://w:1/kv_cache_events"})
	return w
}

// page is an answer: the creation of the caches as event 0, and a block of a prompt as any other.
func page(events ...int) []byte {
	var all []string
	for _, id := range events {
		data := `{"type":"created","num_blocks_per_cache_level":[100,0]}`
		if id > 0 {
			data = fmt.Sprintf(`{"type":"stored","parent_hash":null,"blocks":[{"type":"stored_block","block_hash":%d,"tokens":[`+
				`{"type":"unique_token","token_id":7,"token_extra_id":0},{"type":"unique_token","token_id":0,"token_extra_id":0},`+
				`{"type":"unique_token","token_id":8,"token_extra_id":0},{"type":"unique_token","token_id":0,"token_extra_id":0}],`+
				`"lora_id":null,"cache_level":0,"priority":35}]}`, 100+id)
		}
		all = append(all, fmt.Sprintf(`{"event_id":%d,"window_size":1000,"data":%s}`, id, data))
	}
	return []byte("[" + strings.Join(all, ",") + "]")
}

func TestPulledEvents(t *testing.T) {
	t.Run("from the first on", func(t *testing.T) {
		w := newPullWorld(t)
		w.pulled(page(0), nil)
		w.expect(t, Live, Exact, 0)
		w.pulled(page(1), nil)
		w.expect(t, Live, Exact, 1)
	})
	t.Run("another asker had the first ones", func(t *testing.T) {
		w := newPullWorld(t)
		w.pulled(page(), nil)
		w.expect(t, Live, Partial, 0) // nothing to tell now is not nothing so far
		w.pulled(page(7), nil)
		w.expect(t, Live, Partial, 1)
	})
	t.Run("an answer is lost", func(t *testing.T) {
		w := newPullWorld(t)
		w.pulled(page(0, 1), nil)
		w.pulled(nil, errors.New("reset by peer"))
		w.pulled(page(3), nil)
		w.expect(t, Live, Partial, 1)
		if c := w.Status().Counts; c.Gaps != 1 {
			t.Errorf("counts %+v", c)
		}
	})
	t.Run("a restart", func(t *testing.T) {
		w := newPullWorld(t)
		w.pulled(page(0, 1), nil)
		w.pulled(page(0), nil)
		w.expect(t, Live, Exact, 0)
	})
}
