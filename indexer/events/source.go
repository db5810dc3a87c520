package events

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"attache/internal/worker"
)

// Source is where one rank of a worker tells of its cache.
type Source struct {
	Rank     int
	Endpoint string // tcp://host:port of its publisher
	Replay   string // of its replay socket; "" none
	Topic    string // beginning of the topics wanted
	// Pull asks TensorRT-LLM's worker at URL instead; Endpoint and Replay are empty.
	Pull bool
	URL  string
	// Bound says that the engine dials the pool's own socket, which Endpoint names.
	Bound bool
}

func (s Source) address() string {
	if s.Pull {
		return s.URL
	}
	return s.Endpoint
}

// source is where rank n of a worker publishes, as its file, its engine or its pool says, in this order. ok is false when nobody
// does.
func (c PoolConfig) source(w *worker.Worker, rank int, found *advertised) (s Source, ok bool) {
	s = Source{Rank: w.Events.FirstRank + rank, Topic: c.Topic}
	switch {
	case c.Mode == modeOff || w.Events.Off:
		return s, false
	case w.Events.Endpoint != "":
		s.Endpoint, s.Replay = shift(w.Events.Endpoint, rank), shift(w.Events.Replay, rank)
		if w.Events.Topic != "" {
			s.Topic = w.Events.Topic
		}
	case c.Bind != "":
		s.Bound, s.Endpoint, s.Replay = true, c.Bind, c.replayOf(w, rank)
	case c.Pull && rank > 0: // all ranks are in one answer
		return s, false
	case c.Pull:
		s.Pull, s.URL = true, "http://"+w.Endpoint+"/kv_cache_events"
	case c.Port != 0:
		s.Endpoint = at(w.Addr.Addr(), c.Port+rank)
		s.Replay = c.replayOf(w, rank)
	default:
		said, ok := found.of(rank)
		if !ok {
			return s, false
		}
		s.Endpoint, s.Replay = at(w.Addr.Addr(), said.events), c.replayOf(w, rank)
		if s.Replay == "" && said.replay != 0 {
			s.Replay = at(w.Addr.Addr(), said.replay)
		}
		if s.Topic == "" {
			s.Topic = said.topic
		}
	}
	return s, true
}

func (c PoolConfig) replayOf(w *worker.Worker, rank int) string {
	if c.ReplayPort == 0 {
		return ""
	}
	return at(w.Addr.Addr(), c.ReplayPort+rank)
}

func at(host netip.Addr, port int) string {
	return "tcp://" + netip.AddrPortFrom(host, uint16(port)).String()
}

// shift is an endpoint whose port is n higher: ranks publish at consecutive ports. One without a port stays as it is.
func shift(endpoint string, n int) string {
	const scheme = "tcp://"
	if n == 0 || len(endpoint) < len(scheme) || endpoint[:len(scheme)] != scheme {
		return endpoint
	}
	host, text, err := net.SplitHostPort(endpoint[len(scheme):])
	if err != nil {
		return endpoint
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return endpoint
	}
	return fmt.Sprintf("%s%s", scheme, net.JoinHostPort(host, strconv.Itoa(port+n)))
}
