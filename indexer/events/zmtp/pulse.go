package zmtp

import "time"

// pulse decides when a silent peer is sent a PING and when it is given up. It holds no clock: it is told of silences that
// were waited for in vain, and of life.
type pulse struct {
	interval time.Duration // of silence before a PING; 0: none is sent
	timeout  time.Duration // of silence after it
	ttl      time.Duration // of silence after the peer's own PING, as the peer asked; 0: it did not, or was heard since

	quiet time.Duration // silence so far
	asked bool          // a PING was sent in it
}

// wait is how much more silence means something. 0: no silence does.
func (p *pulse) wait() time.Duration {
	due := p.interval
	if p.asked {
		due += p.timeout
	}
	if p.ttl > 0 && (due == 0 || p.ttl < due) {
		due = p.ttl
	}
	return max(0, due-p.quiet)
}

// expired takes in that wait passed in silence: either the peer is gone, or a PING is to be sent.
func (p *pulse) expired() (gone bool) {
	p.quiet += p.wait()
	if p.asked || p.ttl > 0 && p.quiet >= p.ttl {
		return true
	}
	p.asked = true
	return false
}

// heard takes in that the peer lives; any byte is a sign of it.
func (p *pulse) heard() { p.quiet, p.asked, p.ttl = 0, false, 0 }
