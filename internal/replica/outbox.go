package replica

import (
	"context"
	"sync"
	"time"
)

// Link carries records between the replicas of one pool.
type Link interface {
	// Publish tells records to all replicas, in this order, and keeps nothing of them. It may take as long as ctx allows.
	Publish(ctx context.Context, records ...[]byte) error
	// Follow delivers every record that another replica publishes, those of each in their order, until ctx ends; this one's own may be
	// among them. It calls joined before the first one, and again whenever records may have been missed; lost when nobody can be
	// reached, which lasts until joined or delivered. Records are valid during the call.
	Follow(ctx context.Context, events Events)
}

// Events are what a Link tells. They are called by one goroutine.
type Events struct {
	Joined    func()
	Delivered func(record []byte)
	Lost      func(error)
}

// Bounds of what waits to be sent.
const (
	maxPending = 4 << 20   // bytes; what is more is dropped, and told with the next snapshot
	partBytes  = 128 << 10 // from which on a record is closed
	mostLearnt = 256 << 10
	mostBlocks = 1 << 16 // of a chain that are told; with a record that is about to be closed that makes less than 1 MiB
)

// outbox gathers what a replica has to tell. Safe for concurrent use.
type outbox struct {
	name string
	life uint64
	wake chan struct{} // something waits; capacity 1

	mu      sync.Mutex // guards what follows
	sent    sent
	pending []byte
	ends    []int  // of the records in pending that are full
	off     bool   // nobody could be told lately: deltas are dropped until a snapshot tells all
	hello   bool   // it should be said
	asked   bool   // somebody wants a snapshot
	dropped uint64 // deltas

	number uint64 // of the last record; only the sender touches it, and taken
	taken  batch
}

// share encodes a delta. It takes a microsecond and never waits.
func (o *outbox) share(d *Delta) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.off || len(o.pending) > maxPending {
		o.off = true
		o.dropped++
		return
	}
	begin := 0
	if n := len(o.ends); n > 0 {
		begin = o.ends[n-1]
	}
	if o.pending = d.append(o.pending, &o.sent); len(o.pending)-begin >= partBytes {
		o.ends = append(o.ends, len(o.pending))
	}
	o.poke()
}

func (o *outbox) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// want notes what the next record should bring.
func (o *outbox) want(hello, snapshot bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hello, o.asked = o.hello || hello, o.asked || snapshot
	o.poke()
}

// batch is what waits to be sent: deltas, with the ends of records in them.
type batch struct {
	deltas []byte
	ends   []int
}

// due takes what waits into b, and says whether a snapshot is wanted, which tells readers everything anew: from then on they know of
// no chain but those in it.
func (o *outbox) due(b *batch) (hello, snapshot bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	hello, snapshot = o.hello, o.asked || o.off
	b.deltas, b.ends = b.deltas[:0], b.ends[:0]
	if !o.off { // else what waited is in the snapshot, or over
		b.deltas, b.ends = append(b.deltas, o.pending...), append(b.ends, o.ends...)
	}
	o.pending, o.ends, o.hello, o.asked = o.pending[:0], o.ends[:0], false, false
	if snapshot {
		o.off = false
		o.sent.known.clear()
	}
	return hello, snapshot
}

// failed notes that what was taken could not be sent.
func (o *outbox) failed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.off, o.pending, o.ends = true, o.pending[:0], o.ends[:0]
}

// record makes a record of the sender.
func (o *outbox) record(h header, deltas []byte) []byte {
	o.number++
	h.name, h.life, h.number = o.name, o.life, o.number
	return append(h.append(make([]byte, 0, len(deltas)+len(h.learnt)+64)), deltas...)
}

// records makes records of a batch, at least one.
func (o *outbox) records(h header, b *batch) (records [][]byte) {
	at := 0
	for _, end := range b.ends {
		records = append(records, o.record(h, b.deltas[at:end]))
		at, h.marks = end, 0
	}
	if at == 0 || at < len(b.deltas) {
		records = append(records, o.record(h, b.deltas[at:]))
	}
	return records
}

// snapshot makes the records of all that is under way.
func (o *outbox) snapshot(src Source) [][]byte {
	var records [][]byte
	h := header{marks: markBegin, waiting: src.Waiting(), learnt: src.Learnt()}
	if len(h.learnt) > mostLearnt {
		h.learnt = nil // of so many workers that it would be a record of its own
	}
	var deltas []byte
	chains := sent{known: generations[struct{}]{most: mostCheckpoints}} // what was shared meanwhile is sent after this
	src.Open(func(d *Delta) {
		deltas = d.append(deltas, &chains)
		if len(deltas) >= partBytes {
			records = append(records, o.record(h, deltas))
			h, deltas = header{waiting: h.waiting}, deltas[:0]
		}
	})
	h.marks |= markFinish
	return append(records, o.record(h, deltas))
}

// sender sends what waits in an outbox.
type sender struct {
	*outbox

	link      Link
	source    Source
	gather    time.Duration // for so long before it is sent
	heartbeat time.Duration // at least one record in
	waiting   Waiting       // as it was told last
	metrics   *metrics
}

// pauses between two tries to reach the others, and the least time between two snapshots.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
	betweenAll   = 100 * time.Millisecond
	watching     = 20 * time.Millisecond // how often the queue is looked at, should nothing else be told
	sendTimeout  = 5 * time.Second
)

// run sends until ctx ends.
func (s *sender) run(ctx context.Context) {
	beat := time.NewTicker(min(s.heartbeat, watching))
	defer beat.Stop()
	var all, sent time.Time // when everything was told last, and anything
	pause := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			rest(ctx, s.gather)
		case <-beat.C:
			if time.Since(sent) < s.heartbeat && s.source.Waiting() == s.waiting {
				continue
			}
		}
		sent = time.Now()
		hello, snapshot := s.due(&s.taken)
		if snapshot {
			rest(ctx, betweenAll-time.Since(all))
			all = time.Now()
		}
		if err := s.send(ctx, hello, snapshot); err == nil {
			pause = 0
			continue
		}
		s.failed()
		pause = min(max(2*pause, firstPause), longestPause)
		rest(ctx, pause)
		s.poke()
	}
}

// rest waits, or less when ctx ends.
func rest(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// send sends what was taken.
func (s *sender) send(ctx context.Context, hello, snapshot bool) error {
	s.waiting = s.source.Waiting()
	h := header{waiting: s.waiting}
	if hello {
		h.marks = markHello
	}
	records := s.records(h, &s.taken)
	if snapshot {
		records = append(records, s.snapshot(s.source)...)
		s.metrics.snapshots.Inc()
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	if err := s.link.Publish(ctx, records...); err != nil {
		s.metrics.failures.Inc()
		return err
	}
	for _, r := range records {
		s.metrics.sent.Add(float64(len(r)))
	}
	s.metrics.records.Add(float64(len(records)))
	return nil
}

// leave sends the last record.
func (s *sender) leave(ctx context.Context, kept time.Duration) error {
	s.due(&s.taken)
	records := append(s.records(header{}, &s.taken), s.record(header{marks: markLeave, kept: kept}, nil))
	return s.link.Publish(ctx, records...)
}

// lost is how many deltas could not be sent.
func (o *outbox) lost() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dropped
}
