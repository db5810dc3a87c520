package events

import (
	"bytes"
	"compress/flate"
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"attache/indexer/events/wire"
	"attache/indexer/runs"
	"attache/internal/field"
	"attache/internal/slot"
)

// stream is what an engine with a full cache publishes: again and again it gives a prompt up and stores one.
type stream struct {
	fill   [][]byte // payloads that fill the cache
	steady [][]byte // then these, over and over
	blocks int      // of 16 tokens, stored by steady; as many are removed
}

// The prompts of a stream.
const (
	streamPrompts = 256
	streamTokens  = 8192
	streamEvent   = 256 // tokens of an event
	streamBlock   = 16
)

// newStream makes batches of one to eight events, each of 16 blocks of 16 tokens, in pages of the engine's size. Ids are
// distributed as those of text: most tokens are frequent.
func newStream(tb testing.TB, enc wire.Encoder, page, prompts int) *stream {
	tb.Helper()
	return newStreamOf(tb, 1, enc, page, prompts)
}

// newStreamOf makes another stream for each seed.
func newStreamOf(tb testing.TB, seed uint64, enc wire.Encoder, page, prompts int) *stream {
	tb.Helper()
	r := rand.New(rand.NewPCG(seed, uint64(page)))
	s := &stream{blocks: prompts * streamTokens / streamBlock}
	var fill, steady []wire.DraftEvent
	for range prompts {
		keys, ids := make([]uint64, streamTokens/page), make([]uint32, streamTokens)
		for i := range keys {
			keys[i] = r.Uint64()
		}
		for i := range ids {
			if ids[i] = r.Uint32N(20_000); r.IntN(5) == 0 {
				ids[i] = r.Uint32N(152_000)
			}
		}
		var stores, removes []wire.DraftEvent
		for from := 0; from < streamTokens; from += streamEvent {
			at := from / page
			e := wire.DraftEvent{
				Kind: wire.Stored, BlockTokens: uint32(page), Medium: "GPU", HasGroup: true, Spec: "full_attention",
				Hashes: keys[at : at+streamEvent/page], Tokens: ids[from : from+streamEvent],
			}
			if at > 0 {
				e.HasParent, e.Parent = true, keys[at-1]
			}
			stores = append(stores, e)
			gone := slices.Clone(e.Hashes)
			slices.Reverse(gone)
			removes = append(removes, wire.DraftEvent{Kind: wire.Removed, Hashes: gone, Medium: "GPU", HasGroup: true})
		}
		slices.Reverse(removes)
		fill = append(fill, stores...)
		steady = append(append(steady, removes...), stores...)
	}
	encode := func(events []wire.DraftEvent) (payloads [][]byte) {
		for len(events) > 0 {
			n := min(1+r.IntN(8), len(events))
			payloads = append(payloads, enc.Append(nil, wire.Draft{Time: 1.7e9, Events: events[:n]}))
			events = events[n:]
		}
		return payloads
	}
	s.fill, s.steady = encode(fill), encode(steady)
	return s
}

// taker does with a payload what a feed does.
type taker struct {
	batch   wire.Batch
	applier applier
	index   *runs.Index
}

func newTaker() *taker {
	x := runs.New(runs.Config{MaxBytes: field.GiB, MaxSlots: 1})
	x.Configure(0, runs.Settings{Blocks: [4]int{2 * streamPrompts * streamTokens / streamBlock}})
	return &taker{applier: applier{block: streamBlock, room: streamPrompts * streamTokens / streamBlock}, index: x}
}

func (t *taker) decode(payload []byte) {
	if err := t.batch.Decode(payload); err != nil || t.batch.Counts.Missed() > 0 {
		panic("a batch that cannot be read")
	}
}

func (t *taker) read(payload []byte) []change {
	t.decode(payload)
	changes, err := t.applier.read(&t.batch, payload)
	if err != nil {
		panic(err)
	}
	return changes
}

func (t *taker) take(payload []byte) {
	if apply(t.index, t.applier.slot, t.read(payload)) > 0 {
		panic("blocks were refused")
	}
}

// BenchmarkWire takes in what one engine publishes, up to a stage: decoded, turned into changes of the index (tokens are
// hashed, pages joined), visible to readers. An operation is a batch.
func BenchmarkWire(b *testing.B) {
	for _, form := range []struct {
		name string
		enc  wire.Encoder
		page int
	}{
		{"vLLM map", wire.Encoder{Dialect: wire.VLLMMap}, 16},
		{"vLLM array", wire.Encoder{Dialect: wire.VLLMArray}, 16},
		{"SGLang page 1", wire.Encoder{Dialect: wire.SGLangMap}, 1},
	} {
		s := newStream(b, form.enc, form.page, streamPrompts)
		for _, stage := range []struct {
			name string
			do   func(*taker, []byte)
		}{
			{"decoded", func(t *taker, p []byte) { t.decode(p) }},
			{"read", func(t *taker, p []byte) { t.read(p) }},
			{"visible", (*taker).take},
		} {
			b.Run(form.name+"/"+stage.name, func(b *testing.B) {
				t := newTaker()
				for _, p := range slices.Concat(s.fill, s.steady) {
					stage.do(t, p)
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					stage.do(t, s.steady[i])
					if i++; i == len(s.steady) {
						i = 0
					}
				}
				perBatch := float64(s.blocks) / float64(len(s.steady))
				b.ReportMetric(float64(b.N)*perBatch/b.Elapsed().Seconds()/1e6, "Mblocks/s")
			})
		}
	}
}

// TestReadDoesNotAllocate: from the bytes of a batch to changes of the index nothing is allocated once the buffers have grown.
func TestReadDoesNotAllocate(t *testing.T) {
	for enc, page := range map[wire.Encoder]int{{Dialect: wire.VLLMMap}: 16, {Dialect: wire.VLLMArray}: 16, {Dialect: wire.SGLangMap}: 1} {
		s := newStream(t, enc, page, 8)
		k := newTaker()
		for _, p := range slices.Concat(s.fill, s.steady) {
			k.read(p)
		}
		i := 0
		if n := testing.AllocsPerRun(1000, func() {
			k.read(s.steady[i%len(s.steady)])
			i++
		}); n > 0 {
			t.Errorf("%+v: %v allocations", enc, n)
		}
	}
}

// TestStream verifies that the benchmark measures what it says: after a round the index holds every prompt, once.
func TestStream(t *testing.T) {
	for _, page := range []int{16, 1} {
		enc := wire.Encoder{Dialect: wire.VLLMMap}
		if page < streamBlock {
			enc.Dialect = wire.SGLangMap
		}
		s := newStream(t, enc, page, 8)
		k := newTaker()
		for _, p := range slices.Concat(s.fill, s.steady) {
			k.take(p)
		}
		st := k.index.Stats()
		if st.Held != s.blocks || st.StoredBlocks != uint64(2*s.blocks) || st.RemovedBlocks != uint64(s.blocks) || st.UnknownBlocks+st.OrphanBlocks > 0 {
			t.Errorf("pages of %d tokens: %+v", page, st)
		}
	}
}

// BenchmarkSnapshot saves and restores what eight ranks hold, a million blocks together, and a million pages of one token. Writers
// wait for no longer than freezing takes.
func BenchmarkSnapshot(b *testing.B) {
	for _, c := range []struct {
		name                 string
		page, prompts, ranks int // prompts of each rank
	}{{"blocks", streamBlock, streamPrompts, 8}, {"pages of one token", 1, streamPrompts / 4, 2}} {
		b.Run(c.name, func(b *testing.B) {
			l := newLedger(b, streamBlock)
			following := map[key]*feed{}
			for rank := range c.ranks {
				f := newFeed(b.Context(), l, "w", slot.Slot(rank), Source{})
				f.ask = func(context.Context, uint64, func(wire.Message)) error { return nil }
				f.addr, f.complete = strconv.Itoa(rank), true
				for i, p := range newStreamOf(b, uint64(rank+1), wire.Encoder{Dialect: wire.VLLMMap}, c.page, c.prompts).fill {
					f.apply(wire.Message{Seq: uint64(i), Payload: p}, digest(p))
				}
				following[key{slot: f.slot}] = f
			}
			l.list(following)
			held := l.Stats().Held
			var freeze, write, restore time.Duration
			var size, small int64
			var most uint64 // bytes that freezing copied
			for b.Loop() {
				copied := allocated()
				began := time.Now()
				z := l.Freeze()
				freeze += time.Since(began)
				copied = allocated() - copied
				most = max(most, copied)
				var out bytes.Buffer
				deflate, err := flate.NewWriter(&out, flate.HuffmanOnly)
				if err != nil {
					b.Fatal(err)
				}
				began = time.Now()
				if size, err = z.WriteTo(deflate); err != nil || deflate.Close() != nil {
					b.Fatal(err)
				}
				write += time.Since(began)
				small = int64(out.Len())
				began = time.Now()
				again := newLedger(b, streamBlock)
				if err := again.Restore(flate.NewReader(&out)); err != nil {
					b.Fatal(err)
				}
				for rank := range c.ranks {
					f := newFeed(b.Context(), again, "w", slot.Slot(rank+1), Source{})
					f.ask, f.addr = following[key{slot: 0}].ask, strconv.Itoa(rank)
					again.resume(f)
				}
				restore += time.Since(began)
				if got := again.Stats().Held; got != held {
					b.Fatalf("%d blocks after restoring, want %d", got, held)
				}
			}
			ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 / float64(b.N) }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(held), "blocks")
			b.ReportMetric(ms(freeze), "freeze-ms")
			b.ReportMetric(float64(most)/1e6, "freeze-MB")
			b.ReportMetric(ms(write), "write-ms")
			b.ReportMetric(ms(restore), "restore-ms")
			b.ReportMetric(float64(size)/float64(held), "B/block")
			b.ReportMetric(float64(small)/float64(held), "compressed-B/block")
		})
	}
}

// allocated is how many bytes were allocated so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
