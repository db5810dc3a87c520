package e2e

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestFallToApproximateAndBack: whatever happens to the events of an engine, its conversations stay where they are, by what is
// remembered of our own decisions, and once events come again they are what counts.
func TestFallToApproximateAndBack(t *testing.T) {
	t.Parallel() // as its parts are; no other test is
	s := withEvents(t, 4)
	s.config = strings.Replace(s.config, "verify_interval: 0s", "verify_interval: 300ms", 1)
	var cable *cable
	s.furnish = func(r *rig, e *engine) {
		e.tells(t, 1)
		if len(r.engines) == 1 {
			cable = r.lay(e)
		}
	}
	r := startWithEvents(t, s)
	for i, c := range []struct {
		name string
		do   func(*fall)
	}{
		{"the connection is cut", func(f *fall) { f.cut(cable) }},
		{"the engine falls silent", (*fall).silence},
		{"batches are lost for good", (*fall).lose},
		{"batches are lost and replayed", (*fall).drop},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // most of it is waiting; each has an engine of its own
			mine := *r
			mine.t = t
			f := &fall{judge: judge{r: &mine}, home: r.engines[i]}
			f.settle("at first")
			c.do(f)
		})
	}
}

// fall is a conversation on an engine that something happens to.
type fall struct {
	judge

	home  *engine
	talk  *talk
	turns int
}

// settle begins a conversation on the engine and shows that it is followed exactly: it gets there past the gateway.
func (f *fall) settle(when string) {
	f.r.t.Helper()
	f.talk, f.turns = &talk{name: fmt.Sprintf("on %s, %s", f.home.name, when)}, 0
	f.talk.turn(f.r, f.home.url(), f.talk.name, false)
	for range 2 {
		f.r.heard(f.home)
		f.stick(1)
	}
	for id, d := range f.verdict() {
		if d.predicted() == 0 {
			f.r.t.Errorf("%s: nothing of %d tokens captured, though the engine has told", id, d.Prompt)
		}
	}
}

// stick sends the next turns of the conversation, which stay on the engine. Their ids are left to be judged, or forgotten.
func (f *fall) stick(turns int) {
	f.r.t.Helper()
	for range turns {
		f.turns++
		id := fmt.Sprintf("%s, turn %d", f.talk.name, f.turns)
		f.asked = append(f.asked, id)
		if a := f.talk.turn(f.r, f.r.url, id, f.turns%2 == 0); a.engine != f.home.name {
			f.r.t.Errorf("%s: went to %s, the conversation lives on %s", id, a.engine, f.home.name)
		}
	}
}

// remembered sends turns while the engine is not followed: all of the turns before is believed to be there.
func (f *fall) remembered(turns int) {
	f.r.t.Helper()
	f.asked = nil
	f.stick(turns)
	for id, d := range f.r.decisions(f.asked) {
		if d.Delivered == nil || d.predicted() < d.Prompt/2 {
			f.r.t.Errorf("%s: %d of %d tokens captured, though the turns before were sent there", id, d.predicted(), d.Prompt)
		}
	}
	f.asked = nil
}

func (f *fall) awaitMode(mode string) {
	f.r.t.Helper()
	f.r.eventually("what is known of "+f.home.name+" is "+mode, func() bool { return f.r.mode(f.home, 0) == mode })
}

// cut: what an engine said is worth nothing soon after its connection was cut; when it is there again it is asked for what
// was missed, whoever made it do it.
func (f *fall) cut(c *cable) {
	c.cut()
	f.awaitMode("approximate")
	f.remembered(3)
	stranger := &talk{name: "a stranger meanwhile"}
	stranger.turn(f.r, f.home.url(), stranger.name, false)
	c.mend(f.r.t)
	f.awaitMode("exact")
	f.r.heard(f.home)
	f.stick(1)
	f.asked = append(f.asked, stranger.name)
	if a := stranger.turn(f.r, f.r.url, stranger.name, false); a.engine != f.home.name {
		f.r.t.Errorf("what was sent past the gateway while the connection was cut went on on %s, but %s holds it", a.engine, f.home.name)
	}
	f.verdict()
}

// silence: an engine that ends requests and tells nothing is not believed to hold nothing.
func (f *fall) silence() {
	f.r.fault(f.home, "silence", 0)
	f.stick(4)
	f.asked = nil
	f.awaitMode("approximate")
	f.remembered(3)
	f.r.fault(f.home, "none", 0)
	f.stick(1) // it speaks when it has something to say
	f.asked = nil
	f.awaitMode("exact")
	f.settle("after the silence")
}

// lose: what an engine cannot replay either has it learnt anew, beside what is remembered, until it restarts.
func (f *fall) lose() {
	f.r.fault(f.home, "lose", 1)
	f.stick(2)
	f.asked = nil
	f.awaitMode("partial")
	if n := f.r.feed(f.home, 0, "cleared_total"); n != 1 {
		f.r.t.Errorf("given up %v times, want once", n)
	}
	f.remembered(2)
	f.r.post(f.home.url()+"/sim/restart", "")
	f.r.eventually("the restart is known", func() bool { return f.r.feed(f.home, 0, "restarts_total") == 1 })
	f.awaitMode("exact")
	f.settle("after its restart")
}

// drop: a replay closes the gap before anybody has to fall back on anything, also a gap that no later batch shows.
func (f *fall) drop() {
	fallen := func() (times int) {
		for line := range strings.SplitSeq(f.r.logText("attache"), "\n") {
			if strings.Contains(line, "overlap is approximate") && strings.Contains(line, "worker="+f.home.name) {
				times++
			}
		}
		return times
	}
	before := fallen()
	for _, batches := range []int{1, 2, 0} {
		f.r.fault(f.home, "drop", batches) // 0: all of them
		f.stick(1)
		f.r.heard(f.home)
		f.r.fault(f.home, "none", 0)
	}
	f.verdict()
	if gaps, closed := f.r.feed(f.home, 0, "gaps_total"), f.r.feed(f.home, 0, "gaps_closed_total"); gaps == 0 || closed != gaps {
		f.r.t.Errorf("%v of %v gaps were closed, want some, and all", closed, gaps)
	}
	if f.r.feed(f.home, 0, "missed_total") == 0 {
		f.r.t.Error("no batch was found by asking, though a turn's last ones were lost")
	}
	if after := fallen(); after != before {
		f.r.t.Errorf("%d times its events were not believed, though all came in the end", after-before)
	}
	f.settle("after the gaps")
}

// cable is what an engine's events go through: it can be cut while the engine answers all else.
type cable struct {
	at, to string

	mu       sync.Mutex // guards the fields below
	listener net.Listener
	open     []net.Conn
}

// lay lays a cable to the engine's publisher, and has the workers file name its end.
func (r *rig) lay(e *engine) *cable {
	r.t.Helper()
	_, rest, _ := strings.Cut(e.worker, `endpoint: "tcp://`)
	to, _, _ := strings.Cut(rest, `"`)
	c := &cable{at: "127.0.0.1:" + strconv.Itoa(freePort(r.t)), to: to}
	e.worker = strings.Replace(e.worker, to, c.at, 1)
	c.mend(r.t)
	r.t.Cleanup(c.cut)
	return c
}

func (c *cable) mend(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", c.at)
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.listener = l
	c.mu.Unlock()
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", c.to)
			if err != nil {
				near.Close()
				continue
			}
			if c.hold(l, near, far) {
				go c.pass(near, far)
				go c.pass(far, near)
			}
		}
	}()
}

// hold notes two ends, unless the cable was cut meanwhile.
func (c *cable) hold(l net.Listener, ends ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listener == l {
		c.open = append(c.open, ends...)
		return true
	}
	for _, end := range ends {
		end.Close()
	}
	return false
}

func (*cable) pass(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	to.Close()
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listener != nil {
		c.listener.Close()
	}
	for _, end := range c.open {
		end.Close()
	}
	c.listener, c.open = nil, nil
}
