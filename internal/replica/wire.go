package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"attache/internal/block"
)

// A record, in this order; numbers are unsigned varints unless said otherwise, times microseconds, hashes 8 bytes little-endian,
// texts a length and so many bytes:
//
//	version, marks            a byte each
//	name, life, number        of the sender, of its process, of the record
//	waiting                   requests, prompt tokens, body bytes
//	kept                      with markLeave: how long its requests run on at most
//	learnt                    with markBegin: a text
//	deltas                    until the end
//
// A delta is a byte for its kind, the decision's number, and
//
//	Booked    worker, rank, prompt, cached, block, output tokens, a byte of flags, [session: a hash, time to live], flow,
//	          blocks of the chain, of them those before the checkpoint, [the checkpoint's hash], the other hashes
//	Moved     worker, rank
//	Bound     worker, rank, a byte of flags, session: a hash, time to live
//	Drained   worker, rank, a byte, 1 for drained, and when: microseconds since 1970
//	Answered  of whom: a text, who served, status, attempts, TTFT, engine's TTFT, duration, a byte of flags, tokens of the
//	          prompt, of the answer, and of the prompt from the cache
//
// A worker is a byte, 4 or 16, or 0 for none, its address of so many bytes, and its port in 2 bytes, big-endian.
const version = 1

const (
	markHello  = 1 << iota // whoever reads this should tell all that it has under way
	markBegin              // first record of a snapshot
	markFinish             // last record of a snapshot
	markLeave              // the sender's last record
	marks      = 1<<iota - 1
)

const (
	flagNamed = 1 << iota
	flagStream
	flagKept
	flagOver
	flagSession
	bookedFlags = 1<<iota - 1
)

// Those of an outcome.
const (
	flagAborted = 1 << iota
	flagBroken
	flagUnreached
	flagUsage
	flagCached
	outcomeFlags = 1<<iota - 1
)

// Bounds of what is read.
const (
	maxName   = 255
	maxFlow   = 1 << 10
	maxChain  = 4 * mostBlocks // blocks
	maxLearnt = 8 << 20        // bytes
	maxCount  = 1 << 40        // tokens, bytes, microseconds
	maxRank   = 1 << 16
	addrPort  = 2
)

// header is the beginning of a record.
type header struct {
	name    string
	life    uint64 // of the process: later ones have higher ones
	number  uint64
	marks   uint8
	waiting Waiting
	kept    time.Duration
	learnt  []byte
}

func (h *header) append(b []byte) []byte {
	b = append(b, version, h.marks)
	b = appendText(b, h.name)
	b = binary.AppendUvarint(b, h.life)
	b = binary.AppendUvarint(b, h.number)
	b = binary.AppendUvarint(b, uint64(max(h.waiting.Requests, 0)))
	b = binary.AppendUvarint(b, uint64(max(h.waiting.PromptTokens, 0)))
	b = binary.AppendUvarint(b, uint64(max(h.waiting.BodyBytes, 0)))
	if h.marks&markLeave != 0 {
		b = appendTime(b, h.kept)
	}
	if h.marks&markBegin != 0 {
		b = appendText(b, string(h.learnt))
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendTime(b []byte, d time.Duration) []byte {
	return binary.AppendUvarint(b, uint64(max(d, 0).Microseconds()))
}

func appendCount(b []byte, n int) []byte { return binary.AppendUvarint(b, uint64(max(n, 0))) }

// append writes the delta behind b. s is what its readers know of chains.
func (d *Delta) append(b []byte, s *sent) []byte {
	b = append(b, byte(d.Kind))
	b = binary.AppendUvarint(b, d.Number)
	switch d.Kind {
	case Booked:
		b = d.appendBooked(b, s)
	case Moved:
		b = d.appendWorker(b)
	case Drained:
		b = append(d.appendWorker(b), flag(d.Drain, 1))
		b = binary.AppendUvarint(b, uint64(max(d.At.UnixMicro(), 0)))
	case Bound:
		b = append(d.appendWorker(b), d.sessionFlags())
		b = d.appendSession(b)
	case Answered:
		b = d.appendOutcome(b)
	}
	return b
}

func flag(set bool, is byte) byte {
	if set {
		return is
	}
	return 0
}

func (d *Delta) appendWorker(b []byte) []byte {
	ip := d.Worker.Addr().AsSlice()
	b = append(append(b, byte(len(ip))), ip...)
	b = binary.BigEndian.AppendUint16(b, d.Worker.Port())
	return appendCount(b, d.Rank)
}

func (d *Delta) appendOutcome(b []byte) []byte {
	o := &d.Outcome
	b = d.appendWorker(appendText(b, d.Of))
	b = appendCount(appendCount(b, o.Status), o.Attempts)
	b = appendTime(appendTime(appendTime(b, o.TTFT), o.EngineTTFT), o.Duration)
	b = append(b, flag(o.Aborted, flagAborted)|flag(o.Broken, flagBroken)|flag(o.Unreached, flagUnreached)|flag(o.Usage, flagUsage)|
		flag(o.CachedKnown, flagCached))
	return appendCount(appendCount(appendCount(b, o.PromptTokens), o.AnswerTokens), o.Cached)
}

func (d *Delta) appendBooked(b []byte, s *sent) []byte {
	b = d.appendWorker(b)
	for _, n := range [...]int{d.PromptTokens, d.CachedTokens, d.BlockTokens, d.OutputTokens} {
		b = appendCount(b, n)
	}
	b = append(b, flag(d.Named, flagNamed)|flag(d.Stream, flagStream)|d.sessionFlags())
	b = d.appendSession(b)
	b = appendText(b, d.Flow[:min(len(d.Flow), maxFlow)])
	chain := d.Chain[:min(len(d.Chain), mostBlocks)]
	base := s.base(chain)
	b = appendCount(appendCount(b, len(chain)), base)
	if base > 0 {
		b = binary.LittleEndian.AppendUint64(b, chain[base-1])
	}
	for _, h := range chain[base:] {
		b = binary.LittleEndian.AppendUint64(b, h)
	}
	return b
}

func (d *Delta) sessionFlags() byte {
	return flag(d.Session != 0, flagSession) | flag(d.SessionKept, flagKept) | flag(d.SessionOver, flagOver)
}

func (d *Delta) appendSession(b []byte) []byte {
	if d.Session == 0 {
		return b
	}
	return appendTime(binary.LittleEndian.AppendUint64(b, d.Session), d.SessionTTL)
}

// reader takes a record apart. After an error it returns zeros.
type reader struct {
	rest []byte
	err  error
}

var errShort = errors.New("is cut short")

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.rest = nil
}

func (r *reader) take(n int) []byte {
	if n > len(r.rest) {
		r.fail(errShort)
		return nil
	}
	part := r.rest[:n]
	r.rest = r.rest[n:]
	return part
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uvarint(most uint64, what string) uint64 {
	n, size := binary.Uvarint(r.rest)
	switch {
	case size <= 0:
		r.fail(errShort)
		return 0
	case n > most:
		r.fail(fmt.Errorf("%s: %d: must be at most %d", what, n, most))
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) count(most int, what string) int { return int(r.uvarint(uint64(most), what)) }

func (r *reader) text(most int, what string) string { return string(r.take(r.count(most, what))) }

func (r *reader) time(what string) time.Duration {
	return time.Duration(r.uvarint(maxCount, what)) * time.Microsecond
}

func (r *reader) hash() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// header reads the beginning of a record.
func (r *reader) header() (h header) {
	if v := r.byte(); v != version && r.err == nil {
		r.fail(fmt.Errorf("is of version %d: must be %d; do all replicas run the same version?", v, version))
		return h
	}
	if h.marks = r.byte(); h.marks&^marks != 0 {
		r.fail(fmt.Errorf("has unknown marks %#x", h.marks))
		return h
	}
	h.name = r.text(maxName, "name")
	h.life = r.uvarint(math.MaxUint64, "life")
	h.number = r.uvarint(math.MaxUint64, "number")
	h.waiting = Waiting{r.count(maxCount, "waiting requests"), int64(r.count(maxCount, "waiting tokens")), int64(r.count(maxCount, "waiting bytes"))}
	if h.marks&markLeave != 0 {
		h.kept = r.time("kept")
	}
	if h.marks&markBegin != 0 {
		h.learnt = []byte(r.text(maxLearnt, "learnt"))
	}
	if h.name == "" && r.err == nil {
		r.fail(errors.New("has no name"))
	}
	return h
}

// delta reads one delta into d, whose memory it uses again. unknown says that the beginning of its chain is not known here: then it
// has none.
func (r *reader) delta(d *Delta, chains *received, tail []block.Hash) (space []block.Hash, unknown bool) {
	*d = Delta{Kind: Kind(r.byte()), Number: r.uvarint(math.MaxUint64, "decision")}
	switch d.Kind {
	case Booked:
		return r.booked(d, chains, tail)
	case Moved:
		r.worker(d)
	case Bound:
		r.worker(d)
		r.session(d)
	case Drained:
		r.worker(d)
		d.Drain = r.flags(1) == 1
		d.At = time.UnixMicro(int64(r.uvarint(math.MaxInt64, "when it was drained")))
	case Answered:
		r.outcome(d)
	case Prefilled, Ended:
	default:
		r.fail(fmt.Errorf("has a delta of unknown kind %d", d.Kind))
	}
	return tail, false
}

func (r *reader) flags(known byte) byte {
	f := r.byte()
	if f&^known != 0 {
		r.fail(fmt.Errorf("has unknown flags %#x", f))
	}
	return f
}

func (r *reader) outcome(d *Delta) {
	o := &d.Outcome
	d.Of = r.text(maxName, "whose decision")
	r.worker(d)
	o.Status, o.Attempts = r.count(maxCount, "status"), r.count(maxCount, "attempts")
	o.TTFT, o.EngineTTFT, o.Duration = r.time("TTFT"), r.time("engine's TTFT"), r.time("duration")
	f := r.flags(outcomeFlags)
	o.Aborted, o.Broken, o.Unreached = f&flagAborted != 0, f&flagBroken != 0, f&flagUnreached != 0
	o.Usage, o.CachedKnown = f&flagUsage != 0, f&flagCached != 0
	o.PromptTokens, o.AnswerTokens = r.count(maxCount, "tokens of the prompt"), r.count(maxCount, "tokens of the answer")
	o.Cached = r.count(maxCount, "tokens from the cache")
}

func (r *reader) worker(d *Delta) {
	n := int(r.byte())
	ip, ok := netip.AddrFromSlice(r.take(n))
	port := r.take(addrPort)
	if r.err == nil && !ok && (n > 0 || d.Kind != Answered) {
		r.fail(fmt.Errorf("has a worker's address of %d bytes: must be 4 or 16", n))
	}
	if r.err != nil {
		return
	}
	d.Worker = netip.AddrPortFrom(ip, binary.BigEndian.Uint16(port))
	d.Rank = r.count(maxRank, "rank")
}

func (r *reader) session(d *Delta) (flags byte) {
	flags = r.flags(bookedFlags)
	d.SessionKept, d.SessionOver = flags&flagKept != 0, flags&flagOver != 0
	if flags&flagSession != 0 {
		d.Session, d.SessionTTL = r.hash(), r.time("session's time to live")
	}
	return flags
}

func (r *reader) booked(d *Delta, chains *received, tail []block.Hash) (space []block.Hash, unknown bool) {
	r.worker(d)
	d.PromptTokens, d.CachedTokens = r.count(maxCount, "prompt tokens"), r.count(maxCount, "cached tokens")
	d.BlockTokens, d.OutputTokens = r.count(maxCount, "tokens per block"), r.count(maxCount, "output tokens")
	f := r.session(d)
	d.Named, d.Stream = f&flagNamed != 0, f&flagStream != 0
	d.Flow = r.text(maxFlow, "flow")
	blocks := r.count(maxChain, "blocks")
	base := r.count(maxChain, "blocks before the checkpoint")
	checkpoint := uint64(0)
	if base > 0 {
		checkpoint = r.hash()
	}
	if base > blocks || base%step != 0 {
		r.fail(fmt.Errorf("has a chain of %d blocks with a checkpoint at %d", blocks, base))
	}
	raw := r.take(8 * (blocks - min(base, blocks)))
	if r.err != nil || blocks == 0 {
		return tail, false
	}
	tail = tail[:0]
	for ; len(raw) > 0; raw = raw[8:] {
		tail = append(tail, binary.LittleEndian.Uint64(raw))
	}
	chain, ok := chains.whole(base, checkpoint, tail)
	d.Chain = chain
	return tail, !ok
}
