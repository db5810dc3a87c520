package worker

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Drain is what an operator said of a worker, at this gateway or another: the last word counts.
type Drain struct {
	Worker netip.AddrPort
	Pool   string // of the worker, where that is known
	On     bool
	At     time.Time
}

// Drain takes a worker out of new decisions, or gives it back, also if it was held back for flapping. The error says that there is no such worker.
func (r *Registry) Drain(name string, on bool) error {
	for _, w := range r.Set().All() {
		if w.Name == name {
			r.mu.Lock()
			defer r.mu.Unlock()
			word := Drain{w.Addr, w.Pool, on, time.Now()}
			r.sayLocked(word)
			if r.tellDrain != nil {
				r.tellDrain(word)
			}
			return nil
		}
	}
	return fmt.Errorf("no worker is called %q", name)
}

// TellDrains has f told of what operators say here. It is called with the registry's lock held: it must return at once and not call back.
func (r *Registry) TellDrains(f func(Drain)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tellDrain = f
}

// HearDrain takes in what was said at another gateway, unless something later was said here. A worker that is not known yet is drained
// when it appears.
func (r *Registry) HearDrain(word Drain) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, said := r.words[word.Worker]; !said || word.At.After(last.At) {
		r.sayLocked(word)
	}
}

func (r *Registry) sayLocked(word Drain) {
	r.words[word.Worker] = word
	if e := r.entries[word.Worker]; e != nil {
		e.drainByHand, e.flap = word.On, flap{}
		r.publishLocked(time.Now())
	}
}

// Drains are the last words on all workers of a pool that are here, by address.
func (r *Registry) Drains(pool string) (words []Drain) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for addr, word := range r.words {
		if e := r.entries[addr]; e != nil && e.spec.Pool == pool {
			word.Pool = pool
			words = append(words, word)
		}
	}
	slices.SortFunc(words, func(a, b Drain) int { return a.Worker.Compare(b.Worker) })
	return words
}
