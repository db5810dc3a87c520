package direct

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"attache/internal/replica"
)

// follower follows all other replicas of a pool, for one call of Follow. Safe for concurrent use.
type follower struct {
	node    *Node
	pool    string
	events  replica.Events
	figures figures
	log     *slog.Logger

	mu      sync.Mutex // guards what follows, and that events are told one after another
	listing listing
	callers map[target]*caller
	heard   map[random]*caller // by the process at the other end, one for each
	lost    error              // as it was told
	ended   bool               // nothing is told any more
}

// state is how far a caller has got.
type state uint8

// The states of a caller. Those of a connection that has ended are beginning, so that a short interruption is not yet a loss.
const (
	beginning state = iota // nothing is known yet
	following              // its records are delivered
	failing                // the last try failed
	elsewhere              // it is a replica that does not have this pool
	itself                 // it is this process
	twice                  // it is a replica that is followed under another address
	states
)

// String is the name of a state in metrics.
func (s state) String() string {
	return [states]string{"beginning", "following", "failing", "elsewhere", "itself", "twice"}[s]
}

var (
	errItself    = errors.New("this address is this replica's own")
	errTwice     = errors.New("this replica is followed under another address already")
	errElsewhere = errors.New("this replica does not have the pool")
	errLeft      = errors.New("it is stopping")
)

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) {
	f.mu.Lock()
	f.events.Joined()
	f.mu.Unlock()
	var running sync.WaitGroup
	for ctx.Err() == nil {
		found, changed := f.node.directory.current()
		f.list(found, func(c *caller) { running.Go(func() { c.run(ctx) }) })
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	running.Wait()
}

// list takes in who is there, and starts a caller for everybody new.
func (f *follower) list(found listing, start func(*caller)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listing = found
	for _, t := range found.targets {
		if f.callers[t] == nil {
			f.callers[t] = &caller{follower: f, target: t}
			start(f.callers[t])
		}
	}
	f.settle()
}

// wanted reports whether c should go on, and forgets it when not: a replica that is no longer listed is followed for as long as its
// connection lasts, since one that is stopping has more to tell.
func (f *follower) wanted(c *caller) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(f.listing.targets, c.target) {
		return true
	}
	delete(f.callers, c.target)
	f.settle()
	return false
}

// claim notes which process is at the other end; it fails when that is this one, or one that is followed already.
func (f *follower) claim(c *caller, by *greeting) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if by.process == f.node.process {
		return errItself
	}
	if o := f.heard[by.process]; o != nil {
		return errTwice
	}
	f.heard[by.process] = c
	c.greeting = *by
	return nil
}

// joined notes that c follows: what its replica published before was missed.
func (f *follower) joined(c *caller) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log.Info("a replica is followed", "replica", c.greeting.name, "address", c.target.address.String())
	c.state, c.err = following, nil
	f.rejoin()
}

// joinedBy notes that a process follows this one. If it was followed before, it did not hear that it should tell everything.
func (f *follower) joinedBy(process random) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.heard[process]; c != nil && c.state == following {
		f.rejoin()
	}
}

func (f *follower) rejoin() {
	if f.lost = nil; !f.ended {
		f.events.Joined()
	}
}

// deliver hands over the records of a frame.
func (f *follower) deliver(frame []byte) error {
	f.figures.received.Add(float64(len(frame)))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return nil
	}
	return visit(frame, f.events.Delivered)
}

// failed notes why a try of c, or its connection, has ended.
func (f *follower) failed(c *caller, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := c.state
	if f.heard[c.greeting.process] == c {
		delete(f.heard, c.greeting.process)
	}
	c.err = err
	switch {
	case f.ended:
		return
	case before == following:
		c.state = beginning
		f.log.Info("the connection to a replica has ended", "replica", c.greeting.name, "address", c.target.address.String(), "error", err)
	case errors.Is(err, errItself):
		c.state = itself
	case errors.Is(err, errTwice):
		c.state = twice
	case errors.Is(err, errElsewhere):
		c.state = elsewhere
	default:
		if c.state = failing; before != failing {
			f.log.Warn("a replica cannot be followed; it is tried again", "address", c.target.address.String(), "error", err)
		}
	}
	f.settle()
}

// settle tells when nobody can be reached any more, for which reason, or nobody is missed any more; f.mu must be held.
func (f *follower) settle() {
	var reasons []error
	undecided := !f.listing.known
	for _, c := range f.callers {
		switch c.state {
		case following, elsewhere:
			if f.lost != nil {
				f.rejoin()
			}
			return
		case beginning:
			undecided = true
		case failing:
			if slices.Contains(f.listing.targets, c.target) {
				reasons = append(reasons, fmt.Errorf("%s: %w", c.target.address, c.err))
			}
		default: // itself, twice: nobody else
		}
	}
	if undecided || f.ended {
		return
	}
	if f.listing.err != nil {
		reasons = append(reasons, f.listing.err)
	}
	if len(reasons) == 0 {
		if f.lost != nil {
			f.rejoin() // nobody else is there: nothing is missed
		}
		return
	}
	slices.SortFunc(reasons, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	before := f.lost
	if f.lost = errors.Join(reasons...); before == nil || before.Error() != f.lost.Error() {
		f.events.Lost(f.lost)
	}
}

// counts is how many addresses are in which state.
func (f *follower) counts() (n [states]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.callers {
		n[c.state]++
	}
	return n
}
