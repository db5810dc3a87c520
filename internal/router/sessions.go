package router

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"attache/internal/field"
	"attache/internal/slot"
	"attache/internal/worker"
)

// AffinityConfig says how sessions stick to workers. Which session a request belongs to is a hint: a header, or a member of its
// body.
type AffinityConfig struct {
	// Mode is "off" (only what workers hold and have to do decides, which sends most sessions back where they were anyway),
	// "soft" (the worker that answered the session last, unless it is saturated or gone) or "hard" (that worker, even if the
	// request has to wait for it, unless it is gone).
	Mode string `yaml:"mode"`
	// TTL is how long after its last request a session is remembered.
	TTL time.Duration `yaml:"ttl"`
	// Sessions is how many are remembered at most; the ones used longest ago are forgotten first. Each takes about 200 bytes.
	Sessions int `yaml:"sessions"`
}

const (
	affinityOff  = "off"
	affinitySoft = "soft"
	affinityHard = "hard"
)

// Validate reports every field that breaks its rule.
func (c AffinityConfig) Validate() error {
	var check field.Checker
	check.Check(c.Mode == affinityOff || c.Mode == affinitySoft || c.Mode == affinityHard, "mode", c.Mode, "must be off, soft or hard")
	check.Check(c.TTL >= time.Second && c.TTL <= 1000*time.Hour, "ttl", c.TTL, "must be 1s to 1000h")
	check.Check(c.Sessions >= 1 && c.Sessions <= 1<<24, "sessions", c.Sessions, "must be 1 to 16777216")
	return check.Err()
}

// sessions remember which rank answered a session last, for a while: the least recently used are forgotten first. Safe for
// concurrent use.
type sessions struct {
	mu    sync.Mutex // guards what follows
	most  int
	byKey map[uint64]*list.Element
	order list.List // of *session, the one used last in front
}

// session is one binding.
type session struct {
	key     uint64
	slot    slot.Slot
	addr    netip.AddrPort // of the worker: a slot may be given to another one
	expires time.Time
	kept    bool // a request asked for it (CacheTTL): it sticks whatever the affinity
	own     bool // this replica bound it last
}

// sessionKey names a session of a tenant; 0: none.
func sessionKey(tenant, id string) uint64 {
	if id == "" {
		return 0
	}
	return max(xxh3.HashString(id)^xxh3.HashStringSeed(tenant, 1), 1)
}

// bind notes a binding, for ttl from now on; or longer, if the session was bound there for longer.
func (s *sessions) bind(b session, now time.Time, ttl time.Duration) {
	if b.key == 0 || ttl <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey == nil {
		s.byKey = map[uint64]*list.Element{}
	}
	b.expires = now.Add(ttl)
	if e := s.byKey[b.key]; e != nil {
		was := e.Value.(*session) //nolint:forcetypeassert // nothing else is in the list
		if was.slot == b.slot && was.addr == b.addr && was.expires.After(b.expires) {
			b.expires, b.kept = was.expires, was.kept || b.kept
		}
		*was = b
		s.order.MoveToFront(e)
		return
	}
	s.byKey[b.key] = s.order.PushFront(&b)
	s.trim()
}

// trim forgets those used longest ago that are too many. The lock must be held.
func (s *sessions) trim() {
	for s.order.Len() > s.most {
		s.remove(s.order.Back())
	}
}

// limit changes how many are remembered.
func (s *sessions) limit(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = most
	s.trim()
}

// find is the rank that a session is bound to, and whether a request asked for that; ok is false when it is to none.
func (s *sessions) find(key uint64, set *worker.Set, now time.Time) (at slot.Slot, kept, ok bool) {
	if key == 0 {
		return slot.None, false, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byKey[key]
	if e == nil {
		return slot.None, false, false
	}
	b := e.Value.(*session) //nolint:forcetypeassert // nothing else is in the list
	if !b.holds(set, now) {
		s.remove(e)
		return slot.None, false, false
	}
	s.order.MoveToFront(e)
	return b.slot, b.kept, true
}

// unbind forgets a session that is bound to this rank still.
func (s *sessions) unbind(key uint64, from slot.Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byKey[key]; e != nil && e.Value.(*session).slot == from { //nolint:forcetypeassert // nothing else is in the list
		s.remove(e)
	}
}

// peek is find which leaves what does not hold any more where it is.
func (s *sessions) peek(key uint64, set *worker.Set, now time.Time) (at slot.Slot, kept, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byKey[key]
	if key == 0 || e == nil {
		return slot.None, false, false
	}
	b := e.Value.(*session) //nolint:forcetypeassert // nothing else is in the list
	return b.slot, b.kept, b.holds(set, now)
}

// holds reports whether the session is bound still: its worker is there, and its time is not over.
func (b *session) holds(set *worker.Set, now time.Time) bool {
	w := set.BySlot(b.slot)
	return !now.After(b.expires) && w != nil && w.Addr == b.addr
}

// drop forgets a session: it is over.
func (s *sessions) drop(key uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byKey[key]; e != nil {
		s.remove(e)
	}
}

// remove takes an element out. The lock must be held.
func (s *sessions) remove(e *list.Element) {
	delete(s.byKey, e.Value.(*session).key) //nolint:forcetypeassert // nothing else is in the list
	s.order.Remove(e)
}

// own are the bindings of this replica, as of now.
func (s *sessions) own(now time.Time) (own []session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.order.Front(); e != nil; e = e.Next() {
		if b := e.Value.(*session); b.own && now.Before(b.expires) { //nolint:forcetypeassert // nothing else is in the list
			own = append(own, *b)
		}
	}
	return own
}

// count is how many sessions are bound.
func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.order.Len()
}
