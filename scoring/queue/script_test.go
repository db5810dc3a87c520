package queue

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"attache/internal/field"
	"attache/internal/golden"
)

// TestScripts runs testdata/*.txt: queues that a reader can check by hand. A part is comments, a command, a line of
// dashes, and what it prints. Commands:
//
//	queue [requests=N] [tokens=N] [bytes=N] [wait=D] [flows=N] [half=D] [maxpriority=N] [evict]
//	class NAME [policy=P] [quantum=N] [ageing=D] [slo=D] [requests=N] [tokens=N] [bytes=N] [wait=D] [fair]
//	buckets UPTO=CLASS...                    these three start anew; buckets and classes follow their queue
//	push ID [class=C] [lane=N] [tier=N] [priority=N] [flow=F] [tokens=N] [uncached=N] [work=N] [bytes=N] [slo=D] [deadline=D]
//	dispatch [N] [blocked=LANE,...] [drop=ID,...]   places up to N
//	expire, drain, remove ID, wait D, served FLOW IN OUT, attained, backlog CLASS LANE
func TestScripts(t *testing.T) {
	golden.Scripts(t, func(t *testing.T) func([]string) string { return new(stage).run })
}

type stage struct {
	cfg     Config
	queue   *Queue[string]
	now     time.Duration
	entries map[string]*Entry[string]
}

func (s *stage) run(words []string) string {
	args := settings(words[1:])
	switch words[0] {
	case "queue":
		s.cfg = DefaultConfig()
		limits(&s.cfg.Limits, args)
		s.cfg.Evict = args.has("evict")
		args.int("flows", &s.cfg.Fairness.Flows)
		args.duration("half", &s.cfg.Fairness.HalfLife)
		args.float("maxpriority", &s.cfg.MaxPriority)
		s.start()
	case "class":
		c := DefaultClass()
		c.Name = words[1]
		limits(&c.Limits, args)
		args.text("policy", &c.Policy)
		args.int("quantum", &c.Quantum)
		args.duration("ageing", &c.Ageing)
		args.duration("slo", &c.DefaultSLO)
		c.Fair = args.has("fair")
		s.cfg.Classes = append(s.cfg.Classes, c)
		s.start()
	case "buckets":
		for _, w := range words[1:] {
			upTo, class, _ := strings.Cut(w, "=")
			s.cfg.Buckets = append(s.cfg.Buckets, Bucket{UpTo: number(upTo), Class: class})
		}
		s.start()
	case "push":
		return s.push(words[1], args)
	case "dispatch":
		return s.dispatch(words[1:], args)
	case "expire":
		return drops(s.queue.Expire(s.now, nil))
	case "drain":
		return drops(s.queue.Drain(RejectedShuttingDown))
	case "remove":
		return fmt.Sprint(s.queue.Remove(s.entries[words[1]]))
	case "wait":
		s.now += duration(words[1])
	case "served":
		s.queue.Served(s.now, words[1], number(words[2]), number(words[3]))
	case "attained":
		var out []string
		for name, tokens := range s.queue.Attained(s.now) {
			out = append(out, fmt.Sprintf("%s: %.1f", name, tokens))
		}
		slices.Sort(out)
		return strings.Join(out, ", ")
	case "backlog":
		return strconv.Itoa(s.queue.Backlog(s.queue.ClassOf(words[1], 0), uint64(number(words[2]))))
	default:
		panic("unknown command " + words[0])
	}
	return ""
}

func (s *stage) start() {
	if err := s.cfg.Validate(); err != nil {
		panic(err)
	}
	s.queue, s.now, s.entries = New[string](s.cfg), 0, map[string]*Entry[string]{}
}

func (s *stage) push(id string, args arguments) string {
	var r Request
	var lane, tier, bytes int
	args.int("lane", &lane)
	args.int("tier", &tier)
	args.int("bytes", &bytes)
	args.int("tokens", &r.PromptTokens)
	r.UncachedTokens = r.PromptTokens
	args.int("uncached", &r.UncachedTokens)
	args.float("work", &r.Work)
	args.float("priority", &r.Priority)
	args.text("flow", &r.Flow)
	args.duration("slo", &r.SLO)
	args.duration("deadline", &r.Deadline)
	r.Lane, r.Tier, r.BodyBytes = uint64(lane), uint32(tier), int64(bytes)
	r.Class = s.queue.ClassOf(args["class"], r.UncachedTokens)
	e, evicted, no := s.queue.Push(s.now, r, id)
	if no != nil {
		return fmt.Sprintf("%s: %s: %v", id, no.Reason, no)
	}
	s.entries[id] = e
	return drops(evicted)
}

func (s *stage) dispatch(words []string, args arguments) string {
	left := 1 << 30
	if len(words) > 0 && !strings.Contains(words[0], "=") {
		left = number(words[0])
	}
	var shut []string
	if args.has("blocked") {
		shut = strings.Split(args["blocked"], ",")
	}
	var out []string
	s.queue.Dispatch(s.now, func(e *Entry[string]) Placement {
		switch {
		case left == 0 || slices.Contains(shut, strconv.FormatUint(e.Request.Lane, 10)):
			return Blocked
		case slices.Contains(strings.Split(args["drop"], ","), e.Value):
			return Dropped
		}
		left--
		out = append(out, e.Value)
		return Placed
	})
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, " ")
}

func drops(all []Drop[string]) string {
	var out []string
	for _, d := range all {
		out = append(out, fmt.Sprintf("%s: %s", d.Entry.Value, d.Reason))
	}
	return strings.Join(out, ", ")
}

// arguments are the words key=value of a command; a word alone is a key, too.
type arguments map[string]string

func settings(words []string) arguments {
	args := arguments{}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		args[key] = value
	}
	return args
}

func (a arguments) has(key string) bool { _, ok := a[key]; return ok }

func (a arguments) text(key string, to *string) {
	if a.has(key) {
		*to = a[key]
	}
}

func (a arguments) int(key string, to *int) {
	if a.has(key) {
		*to = number(a[key])
	}
}

func (a arguments) float(key string, to *float64) {
	if a.has(key) {
		f, err := strconv.ParseFloat(a[key], 64)
		if err != nil {
			panic(err)
		}
		*to = f
	}
}

func (a arguments) duration(key string, to *time.Duration) {
	if a.has(key) {
		*to = duration(a[key])
	}
}

func limits(l *Limits, args arguments) {
	tokens, bytes := int(l.PromptTokens), int(l.BodyBytes)
	args.int("requests", &l.Requests)
	args.int("tokens", &tokens)
	args.int("bytes", &bytes)
	args.duration("wait", &l.MaxWait)
	l.PromptTokens, l.BodyBytes = int64(tokens), field.Bytes(bytes)
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}
