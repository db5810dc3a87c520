package events

import "github.com/zeebo/xxh3"

// verdict is what to do with a batch that came.
type verdict uint8

const (
	next      verdict = iota // it follows what was applied: apply it
	repeated                 // it was applied already
	missing                  // batches before it are not known
	restarted                // it is of another process than the ones before
)

// remembered is how many of the last batches are known by their bytes: a batch that comes again, from a replay and live, is
// told from one that another process sent under the same number. Older ones count as another process's.
const remembered = 1024

// sequence is where a rank's stream of batches stands. The zero value has seen nothing.
type sequence struct {
	has  bool
	last uint64 // number of the batch applied last
	ring []numbered
}

// numbered is a batch that was applied.
type numbered struct{ seq, digest uint64 }

// digest names the bytes of a batch. They hold the time at which it was made, so that no two batches are equal.
func digest(payload []byte) uint64 { return xxh3.Hash(payload) }

// judge tells what a batch is.
func (s *sequence) judge(seq, digest uint64) verdict {
	switch {
	case !s.has && seq == 0:
		return next
	case !s.has || seq > s.last && seq != s.last+1:
		return missing
	case seq == s.last+1:
		return next
	case s.ring[seq%remembered] == numbered{seq, digest}:
		return repeated
	default:
		return restarted
	}
}

// applied notes that a batch was applied.
func (s *sequence) applied(seq, digest uint64) {
	if s.ring == nil {
		s.ring = make([]numbered, remembered)
	}
	s.has, s.last = true, seq
	s.ring[seq%remembered] = numbered{seq, digest}
}

// digest is that of the batch applied last; 0 when there is none, or it was noted without.
func (s *sequence) digest() uint64 {
	if !s.has || s.ring == nil {
		return 0
	}
	return s.ring[s.last%remembered].digest
}

// forget begins anew.
func (s *sequence) forget() {
	clear(s.ring)
	s.has, s.last = false, 0
}
