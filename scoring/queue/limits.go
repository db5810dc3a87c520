package queue

import (
	"fmt"
	"time"

	"attache/internal/field"
)

// Limits bound what waits, in a class or in all.
type Limits struct {
	// Requests is how many requests may wait. 0: no limit of a class; for the whole queue, that there is no queue at all.
	// Each waiting request holds its stream and its body. Too high a value lets clients wait for answers that they no longer
	// want; too low a value turns short bursts into errors.
	Requests int `yaml:"requests"`
	// PromptTokens is how many prompt tokens may wait, cached or not: a bound on the work that is promised. 0: no limit. A
	// request that is above it alone can never wait.
	PromptTokens int64 `yaml:"prompt_tokens"`
	// BodyBytes is how much memory the waiting requests' bodies may take. 0: no limit, other than that of the requests times
	// the largest body.
	BodyBytes field.Bytes `yaml:"body_bytes"`
	// MaxWait is how long a request may wait before it is dropped. 0: no limit of a class; for the whole queue, as long as
	// the request's own deadline, if any. The gateway must wait longer for a decision: with xds.gateway.message_timeout added,
	// that of the whole queue must be at most xds.gateway.max_message_timeout, and may not be 0 while there is a queue.
	MaxWait time.Duration `yaml:"max_wait"`
}

func (l Limits) check(check *field.Checker, path string) {
	check.Check(l.Requests >= 0 && l.Requests <= 1e7, path+".requests", l.Requests, "must be 0 to 10000000")
	check.Check(l.PromptTokens >= 0 && l.PromptTokens <= 1e15, path+".prompt_tokens", l.PromptTokens,
		"must be 0 (no limit) to 1000000000000000 tokens")
	check.Check(l.BodyBytes >= 0, path+".body_bytes", l.BodyBytes, "must be 0 (no limit) or a size")
	check.Check(l.MaxWait == 0 || l.MaxWait >= time.Millisecond && l.MaxWait <= time.Hour, path+".max_wait", l.MaxWait,
		"must be 0 (no limit) or 1ms to 1h")
}

// usage is what counts against the limits.
type usage struct {
	requests      int
	tokens, bytes int64
}

func (u *usage) add(r *Request, sign int) {
	u.requests += sign
	u.tokens += int64(sign) * int64(r.PromptTokens)
	u.bytes += int64(sign) * r.BodyBytes
}

// Limit names one of the limits, by its key in the configuration.
type Limit string

// The limits that a Rejection can name.
const (
	LimitRequests     Limit = "requests"
	LimitPromptTokens Limit = "prompt_tokens"
	LimitBodyBytes    Limit = "body_bytes"
)

// Rejection says why a request may not wait: the client should come back later (status 429).
type Rejection struct {
	// Reason is RejectedSaturated.
	Reason Reason
	// Class is the name of the request's class.
	Class string
	// Total is set when the limit is that of the whole queue, not of the class.
	Total bool
	// Limit is which one.
	Limit Limit
	// Current is what waits already, Max what may, both in the limit's unit.
	Current, Max int64
	// RetryAfter is when what waits now will probably have been served, in whole seconds, 1 to 60.
	RetryAfter time.Duration
}

// String reads as `class "batch": requests: 500 waiting, at most 500; try again in 12s`.
func (r *Rejection) String() string { return fmt.Sprintf("%s; try again in %v", r.Met(), r.RetryAfter) }

// Met is the limit that was met, as in `class "batch": requests: 500 waiting, at most 500`.
func (r *Rejection) Met() string {
	whose := fmt.Sprintf("class %q", r.Class)
	if r.Total {
		whose = "all classes"
	}
	return fmt.Sprintf("%s: %s: %d waiting, at most %d", whose, r.Limit, r.Current, r.Max)
}

// refuse returns a rejection when a request on top of the usage is above a limit.
func (l *Limits) refuse(u usage, r *Request) *Rejection {
	for _, is := range [...]struct {
		limit              Limit
		current, more, max int64
	}{
		{LimitRequests, int64(u.requests), 1, int64(l.Requests)},
		{LimitPromptTokens, u.tokens, int64(r.PromptTokens), l.PromptTokens},
		{LimitBodyBytes, u.bytes, r.BodyBytes, int64(l.BodyBytes)},
	} {
		if is.max > 0 && is.current+is.more > is.max {
			return &Rejection{Reason: RejectedSaturated, Limit: is.limit, Current: is.current, Max: is.max}
		}
	}
	return nil
}

// refuse returns the limit that keeps a request out of class c, if any: the class's own before those of all.
func (q *Queue[T]) refuse(c *class[T], r *Request) *Rejection {
	no := c.cfg.Limits.refuse(c.used, r)
	if no == nil {
		all := usage{q.used.requests + q.others.requests, q.used.tokens + q.others.tokens, q.used.bytes + q.others.bytes}
		if no = q.cfg.Limits.refuse(all, r); no != nil {
			no.Total = true
		}
	}
	return no
}

// maxEvictions bounds how many small requests give way to a single large one.
const maxEvictions = 8

// room makes room for a request of class c by giving up requests of lower tiers, worst first. If that is not enough it
// gives up nobody.
func (q *Queue[T]) room(c *class[T], r *Request) ([]Drop[T], *Rejection) {
	no := q.refuse(c, r)
	if no == nil || !q.cfg.Evict {
		return nil, no
	}
	first := no
	var out []Drop[T]
	for ; no != nil; no = q.refuse(c, r) {
		v := q.victim(c, no.Total)
		if v == nil || v.Request.Tier >= r.Tier || len(out) == maxEvictions {
			for _, d := range out {
				q.account(d.Entry)
			}
			return nil, first
		}
		q.unaccount(v)
		out = append(out, Drop[T]{v, EvictedPriority})
	}
	for _, d := range out {
		q.detach(d.Entry)
	}
	return out, nil
}

// victim is who would be given up first: of class c, or of all.
func (q *Queue[T]) victim(c *class[T], total bool) *Entry[T] {
	if !total {
		if len(c.victims) == 0 {
			return nil
		}
		return c.victims[0].Entry
	}
	var worst *Entry[T]
	for _, c := range q.classes {
		if len(c.victims) > 0 && (worst == nil || c.victims[0].before(byWorth[T]{worst})) {
			worst = c.victims[0].Entry
		}
	}
	return worst
}
