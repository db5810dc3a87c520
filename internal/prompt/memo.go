package prompt

import (
	"container/list"
	"sync"

	"github.com/zeebo/xxh3"

	"attache/internal/block"
)

// memo remembers, for beginnings of prompts that were seen before, what their tokens and blocks are, so that the next
// turn of a conversation costs a hash of its text and the tokenizing of what is new.
//
// Added tokens (<|im_start|> and the like) cut a text into segments that are tokenized independently, so what stands
// before an added token never changes with what follows it. After an added token the memo may hold a checkpoint: the
// sequence hashes of the complete blocks so far, and the tokens of the incomplete one. It is found by the hash of the
// whole text up to there, with the namespace: a template that changes earlier turns changes that hash, and finds nothing.
//
// Checkpoints of one conversation share an array of hashes, of which each sees a part; the newest may append to it.
//
// The memory of all checkpoints is bounded; the one that was used longest ago goes first. Safe for concurrent use; the
// lock is held for look-ups and for copying a turn's new hashes, never while text is read.
type memo struct {
	limit int // bytes

	mu      sync.Mutex
	entries map[xxh3.Uint128]*list.Element // of *checkpoint
	order   *list.List                     // the freshest first
	bytes   int
	stats   memoStats
}

// memoStats counts since the start.
type memoStats struct {
	hits, misses   uint64 // prompts of which a beginning was known, or not
	reused, tokens uint64 // tokens that were not made again, of all
	evicted        uint64 // checkpoints
}

// checkpoint is what is known after an added token. It is immutable but for its place in the order.
type checkpoint struct {
	key    xxh3.Uint128
	shared *sharedHashes
	blocks int      // complete ones: so many of shared.hashes are this checkpoint's
	rest   []uint32 // tokens after them
}

// sharedHashes is an array that several checkpoints see a part of. Elements below used never change.
type sharedHashes struct {
	hashes []block.Hash // its length is used
	users  int
}

// What entries and arrays take besides their elements, roughly.
const (
	checkpointBytes = 200
	sharedBytes     = 64
)

func newMemo(limit int) *memo {
	return &memo{limit: limit, entries: map[xxh3.Uint128]*list.Element{}, order: list.New()}
}

// find returns the longest known beginning among keys, which go from the shortest to the longest: its place in keys, the
// hashes of its blocks, which must not be changed, and the tokens after them. at is -1 when nothing is known.
func (m *memo) find(keys []xxh3.Uint128) (at int, hashes []block.Hash, rest []uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := len(keys) - 1; i >= 0; i-- {
		if e := m.entries[keys[i]]; e != nil {
			m.order.MoveToFront(e)
			c := e.Value.(*checkpoint) //nolint:forcetypeassert // the list holds nothing else
			m.stats.hits++
			return i, c.shared.hashes[:c.blocks:c.blocks], c.rest
		}
	}
	m.stats.misses++
	return -1, nil, nil
}

// put remembers what was found out about the text of a key: the hashes of its complete blocks and the tokens after them.
// Both are copied. parent is the key of a known beginning, whose array is appended to when nobody else has yet.
func (m *memo) put(key xxh3.Uint128, parent *xxh3.Uint128, hashes []block.Hash, rest []uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries[key] != nil {
		return
	}
	c := &checkpoint{key: key, blocks: len(hashes), rest: append([]uint32(nil), rest...)}
	c.shared = m.shareLocked(parent, hashes)
	c.shared.users++
	m.entries[key] = m.order.PushFront(c)
	m.bytes += c.size()
	for m.bytes > m.limit && m.order.Len() > 0 {
		m.dropLocked(m.order.Back())
	}
}

// shareLocked finds an array that holds hashes: the parent's, longer by what is new, or one of its own.
func (m *memo) shareLocked(parent *xxh3.Uint128, hashes []block.Hash) *sharedHashes {
	if parent != nil {
		if e := m.entries[*parent]; e != nil {
			p := e.Value.(*checkpoint) //nolint:forcetypeassert // the list holds nothing else
			s := p.shared
			if len(s.hashes) == p.blocks && len(hashes) <= cap(s.hashes) {
				s.hashes = append(s.hashes, hashes[p.blocks:]...) // beyond what anybody sees
				return s
			}
			if len(hashes) == p.blocks {
				return s
			}
		}
	}
	s := &sharedHashes{hashes: append(make([]block.Hash, 0, len(hashes)+len(hashes)/2+16), hashes...)}
	m.bytes += sharedBytes + 8*cap(s.hashes)
	return s
}

func (c *checkpoint) size() int { return checkpointBytes + 4*cap(c.rest) }

func (m *memo) dropLocked(e *list.Element) {
	c := m.order.Remove(e).(*checkpoint) //nolint:forcetypeassert // the list holds nothing else
	delete(m.entries, c.key)
	m.bytes -= c.size()
	if c.shared.users--; c.shared.users == 0 {
		m.bytes -= sharedBytes + 8*cap(c.shared.hashes)
	}
	m.stats.evicted++
}

// count notes how much of a prompt did not have to be tokenized.
func (m *memo) count(reused, tokens int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats.reused += uint64(reused)
	m.stats.tokens += uint64(tokens)
}

// snapshot is what was counted so far, and the memory in use.
func (m *memo) snapshot() (memoStats, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats, m.bytes
}
