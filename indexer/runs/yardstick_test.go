package runs

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"attache/internal/block"
	"attache/internal/field"
	"attache/internal/slot"
)

// The yardstick: one seeded input that every index can be run on, and the answers it must give.

func mix(z uint64) uint64 {
	z += 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

type splitmix uint64

func (s *splitmix) next() uint64 {
	v := mix(uint64(*s))
	*s += 0x9E3779B97F4A7C15
	return v
}

// chainOf chains local hashes.
func chainOf(local []uint64) []block.Hash {
	chain := make([]block.Hash, len(local))
	var parent block.Hash
	for i, l := range local {
		parent = block.Next(parent, l, i == 0)
		chain[i] = parent
	}
	return chain
}

// event is one store, or a removal when remove.
type event struct {
	Stored

	holder Holder
	remove bool
}

func (e *event) apply(x *Index) {
	if e.remove {
		x.Remove(e.holder, e.Engine)
	} else {
		x.Store(e.holder, e.Stored)
	}
}

type yardstick struct {
	stores, removes []event
	queries         [][]block.Hash
	workers         int
}

func blocksOf(events []event) (n int) {
	for i := range events {
		n += len(events[i].Engine)
	}
	return n
}

// engineOf makes a worker's engine hashes of a chain; salt 0 keeps them equal.
func engineOf(chain []block.Hash, salt uint64) []uint64 {
	if salt == 0 {
		return chain
	}
	engine := make([]uint64, len(chain))
	for i, h := range chain {
		engine[i] = mix(h ^ salt)
	}
	return engine
}

// synthetic is the seeded input: 16 workers, 1024 prompts of 512 blocks in groups that share the first 128, each on up to
// three workers, in events of 16 blocks. chained says which of our hashes the events carry.
func synthetic(chained, salted bool) *yardstick {
	const workers, groups, perGroup, shared, length, queries, step = 16, 64, 16, 128, 512, 20000, 16
	local := func(kind, id, at uint64) uint64 { return mix(42 ^ kind<<56 ^ id<<20 ^ at) }
	rng := splitmix(42)
	y := &yardstick{workers: workers}
	locals := make([][]uint64, 0, groups*perGroup)
	for s := range uint64(groups * perGroup) {
		own := make([]uint64, length)
		for i := range own {
			if i < shared {
				own[i] = local(1, s/perGroup, uint64(i))
			} else {
				own[i] = local(2, s, uint64(i))
			}
		}
		chain := chainOf(own)
		first, copies, remove := rng.next()%workers, 1+rng.next()%3, rng.next()%4 == 0
		for k := range copies {
			h := Holder{Slot: slot.Slot((first + 5*k) % workers)}
			salt := uint64(0)
			if salted {
				salt = mix(uint64(h.Slot) + 77)
			}
			engine, hashes := engineOf(chain, salt), own
			if chained {
				hashes = chain
			}
			for c := 0; c < length; c += step {
				e := event{holder: h, Stored: Stored{
					Root: c == 0, Engine: engine[c : c+step], Hashes: hashes[c : c+step], Chained: chained,
				}}
				if c > 0 {
					e.Parent = engine[c-1]
				}
				y.stores = append(y.stores, e)
			}
			for c := length - step; remove && c >= 256; c -= step {
				gone := slices.Clone(engine[c : c+step])
				slices.Reverse(gone)
				y.removes = append(y.removes, event{holder: h, Stored: Stored{Engine: gone}, remove: true})
			}
		}
		locals = append(locals, own)
	}
	for q := range uint64(queries) {
		s, kind, cut := rng.next()%(groups*perGroup), rng.next()%10, int(rng.next()%length)
		from := length
		switch {
		case kind == 8:
			from = cut
		case kind > 8:
			from = 0
		}
		own := slices.Clone(locals[s])
		for i := from; i < length; i++ {
			own[i] = local(3, q, uint64(i))
		}
		y.queries = append(y.queries, chainOf(own))
	}
	return y
}

// trace is the input made of the first rows of a trace: a file of JSON lines, gzipped or not.
func trace(tb testing.TB, path string, rows, expand int) *yardstick {
	tb.Helper()
	file, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	var in io.Reader = file
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(file); err != nil {
			tb.Fatal(err)
		}
	}
	const workers = 8
	y := &yardstick{workers: workers}
	have := [workers]map[uint64]bool{}
	for i := range have {
		have[i] = map[uint64]bool{}
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for n := 0; n < rows && lines.Scan(); n++ {
		var row struct {
			IDs []uint64 `json:"hash_ids"`
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			tb.Fatal(err)
		}
		own := make([]uint64, 0, len(row.IDs)*expand)
		for _, id := range row.IDs {
			for j := range expand {
				own = append(own, mix(id*64+uint64(j)))
			}
		}
		chain := chainOf(own)
		y.queries = append(y.queries, chain)
		mine, from := have[n%workers], 0
		for from < len(chain) && mine[chain[from]] {
			from++
		}
		if from == len(chain) {
			continue
		}
		for _, h := range chain[from:] {
			mine[h] = true
		}
		e := event{holder: Holder{Slot: slot.Slot(n % workers)}, Stored: Stored{
			Root: from == 0, Engine: chain[from:], Hashes: chain[from:], Chained: true,
		}}
		if from > 0 {
			e.Parent = chain[from-1]
		}
		y.stores = append(y.stores, e)
	}
	return y
}

func (o *Overlap) checksum() (sum uint64) {
	for i := range o.Hits {
		sum += (uint64(o.Hits[i].Slot) + 1) * uint64(o.Hits[i].Upto(slot.Remote))
	}
	return sum
}

func checksum(x *Index, queries [][]block.Hash) (sum uint64) {
	var o Overlap
	for _, q := range queries {
		x.Overlap(q, &o)
		sum += o.checksum()
	}
	return sum
}

func apply(x *Index, events []event) time.Duration {
	start := time.Now()
	for i := range events {
		events[i].apply(x)
	}
	return time.Since(start)
}

// roomy is a configuration that nothing here fills.
func roomy() Config { return Config{MaxBytes: 8 * field.GiB, MaxOrphans: 1 << 20, MaxSlots: 1 << 12} }

func TestYardstick(t *testing.T) {
	for _, chained := range []bool{true, false} {
		y := synthetic(chained, !chained)
		if got := [4]int{len(y.stores), blocksOf(y.stores), len(y.removes), blocksOf(y.removes)}; got != [4]int{65632, 1050112, 8528, 136448} {
			t.Fatalf("input of %v events and blocks", got)
		}
		x := New(roomy())
		apply(x, y.stores)
		if got := checksum(x, y.queries); got != 384546497 {
			t.Errorf("chained %v: checksum %d after the stores, want 384546497", chained, got)
		}
		apply(x, y.removes)
		if got := checksum(x, y.queries[:5000]); got != 92100370 {
			t.Errorf("chained %v: checksum %d after the removes, want 92100370", chained, got)
		}
		check(t, x)
	}
}

// TestTrace runs a trace when its file is given.
func TestTrace(t *testing.T) {
	path := os.Getenv("ATTACHE_CONVERSATION_TRACE")
	if path == "" {
		t.Skip("ATTACHE_CONVERSATION_TRACE names no file")
	}
	for expand, want := range map[int]uint64{8: 3732608, 32: 14930432} {
		y := trace(t, path, 2000, expand)
		x := New(roomy())
		apply(x, y.stores)
		if got := checksum(x, y.queries); got != want {
			t.Errorf("%d blocks per hash: checksum %d, want %d", expand, got, want)
		}
		check(t, x)
	}
}

// result is what the yardstick prints.
type result struct {
	FindP50        float64 `json:"find_p50_us"`
	FindP99        float64 `json:"find_p99_us"`
	Queries        float64 `json:"queries_per_s"`
	Store          float64 `json:"store_mblocks_per_s"`
	Remove         float64 `json:"remove_events_per_s"`
	ChecksumStore  uint64  `json:"checksum_store"`
	ChecksumRemove uint64  `json:"checksum_remove"`
	Heap           float64 `json:"heap_mb"`
	BytesPerBlock  float64 `json:"bytes_per_held_block"`
	BytesCounted   float64 `json:"counted_mb"`
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// measure runs the input. Phases are timed apart; the store phase is the best of rounds.
func measure(y *yardstick, fresh func() *Index, rounds int) (r result) {
	before := heap()
	var x *Index
	best := time.Hour
	for range rounds {
		x = fresh()
		runtime.GC()
		best = min(best, apply(x, y.stores))
	}
	after := heap()
	r.Store = float64(blocksOf(y.stores)) / best.Seconds() / 1e6
	r.Heap = (after - before) / 1e6
	r.BytesPerBlock = (after - before) / float64(x.Stats().Held)
	r.BytesCounted = float64(x.Stats().Bytes) / 1e6
	r.FindP50, r.FindP99, r.Queries, r.ChecksumStore = find(x, y.queries)
	if len(y.removes) > 0 {
		r.Remove = float64(len(y.removes)) / apply(x, y.removes).Seconds()
		_, _, _, r.ChecksumRemove = find(x, y.queries[:len(y.queries)/4])
	}
	runtime.KeepAlive(y)
	return r
}

func find(x *Index, queries [][]block.Hash) (p50, p99, perSecond float64, sum uint64) {
	var o Overlap
	for _, q := range queries[:min(500, len(queries))] {
		x.Overlap(q, &o)
	}
	took := make([]time.Duration, 0, len(queries))
	start := time.Now()
	for _, q := range queries {
		from := time.Now()
		x.Overlap(q, &o)
		took = append(took, time.Since(from))
		sum += o.checksum()
	}
	perSecond = float64(len(queries)) / time.Since(start).Seconds()
	slices.Sort(took)
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	return us(took[len(took)/2]), us(took[len(took)*99/100]), perSecond, sum
}

// presized makes an index that was told how much each of the workers can hold.
func presized(workers, blocks int) *Index {
	x := New(roomy())
	for s := range workers {
		x.Configure(slot.Slot(s), Settings{Blocks: [tiers]int{blocks}})
	}
	return x
}

// long is 100 prompts of 6,250 blocks, each on four workers.
func long() *yardstick {
	y := &yardstick{workers: 8}
	for p := range uint64(100) {
		own := make([]uint64, 6250)
		for i := range own {
			own[i] = mix(p<<32 | uint64(i))
		}
		chain := chainOf(own)
		for k := range uint64(4) {
			y.queries = append(y.queries, chain)
			y.stores = append(y.stores, event{holder: Holder{Slot: slot.Slot((p + k) % 8)}, Stored: Stored{
				Root: true, Engine: chain, Hashes: chain, Chained: true,
			}})
		}
	}
	return y
}

// TestPrintYardstick prints the figures as JSON lines when asked to.
func TestPrintYardstick(t *testing.T) {
	if os.Getenv("ATTACHE_YARDSTICK") == "" {
		t.Skip("ATTACHE_YARDSTICK is not set")
	}
	show := func(name string, r result) {
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%-22s %s", name, line)
	}
	y := synthetic(true, false)
	show("synthetic presized", measure(y, func() *Index { return presized(16, 65536) }, 5))
	show("synthetic growing", measure(y, func() *Index { return New(roomy()) }, 5))
	show("synthetic local hashes", measure(synthetic(false, true), func() *Index { return New(roomy()) }, 5))
	y = long()
	show("6250 blocks presized", measure(y, func() *Index { return presized(8, 320000) }, 3))
	show("6250 blocks growing", measure(y, func() *Index { return New(roomy()) }, 3))
	if path := os.Getenv("ATTACHE_CONVERSATION_TRACE"); path != "" {
		show("trace x8", measure(trace(t, path, 2000, 8), func() *Index { return New(roomy()) }, 3))
		show("trace x32", measure(trace(t, path, 2000, 32), func() *Index { return New(roomy()) }, 3))
	}
}
