package extproc

import (
	"sync"

	"attache/envoy"
	"attache/internal/hints"
	"attache/internal/openai"
	"attache/internal/router"
	"attache/internal/traceparent"
)

// requestHeaders is what routing reads of a request's headers.
type requestHeaders struct {
	method, path, id, client string
	encoded                  bool     // the body is compressed: it cannot be read here
	forged                   []string // steering headers that the client sent; they are removed
	forgedPool               bool     // one of them is matched by routes
	hints                    hints.Hints
	parent                   traceparent.Parent // of whoever sent the request
}

// read keeps what matters. Values are copied: they outlive the message.
func (h *requestHeaders) read(m *message, cfg *Config, trust hints.Groups) {
	var said hints.Headers
	m.eachHeader(func(key, value []byte) { h.note(key, value, cfg, &said) })
	h.forged = append(h.forged, said.Read(&h.hints, trust, cfg.Hints.ForwardPriority)...)
}

// note takes one header, whose name is in lower case.
func (h *requestHeaders) note(key, value []byte, cfg *Config, said *hints.Headers) {
	switch string(key) {
	case ":method":
		h.method = usual(value)
	case ":path":
		h.path = usual(value)
	case "x-request-id":
		h.id = string(value)
	case "traceparent":
		h.parent, _ = traceparent.Parse(value)
	case "content-encoding":
		h.encoded = len(value) > 0 && string(value) != "identity"
	case envoy.PoolHeader:
		h.forged, h.forgedPool = append(h.forged, envoy.PoolHeader), true
	case envoy.DestinationHeader:
		h.forged = append(h.forged, envoy.DestinationHeader)
	case envoy.ServedHeader:
		h.forged = append(h.forged, envoy.ServedHeader)
	default:
		if string(key) == cfg.ClientHeader {
			h.client = string(value)
		}
		said.Add(key, value)
	}
}

// usual turns bytes into a string, without allocating for what nearly every request says.
func usual(value []byte) string {
	switch string(value) {
	case "POST":
		return "POST"
	case "/v1/chat/completions":
		return "/v1/chat/completions"
	default:
		return string(value)
	}
}

// verdict is what becomes of a request: an answer of our own, or changes with which it goes on. A decision is there when
// a worker was chosen.
type verdict struct {
	answer   *refusal
	change   change
	decision *router.Decision
}

// scans keeps the span tables of finished scans: they grow with the number of messages in a conversation.
type scans struct{ pool sync.Pool }

func (s *scans) get() *openai.Request {
	if r, ok := s.pool.Get().(*openai.Request); ok {
		return r
	}
	return new(openai.Request)
}

// judge decides what becomes of a complete request. body is nil when there is none, or when the gateway keeps it.
func (s *Server) judge(x *exchange, body []byte) verdict {
	cfg, kind := x.settings, openai.KindOf(x.request.method, x.request.path)
	if kind == openai.Models && cfg.AnswerModels {
		return verdict{answer: modelList(s.router.Models())}
	}
	if !kind.Inference() && cfg.Other == "pass" {
		return verdict{}
	}
	req := router.Request{
		ID: x.request.id, Path: x.request.path, Kind: kind, Tenant: x.request.client, Subset: x.subset.Subset,
		Hints: x.request.hints, Waiting: x.waiting, Timing: router.Timing{Received: x.began, Complete: x.complete, Parent: x.request.parent},
	}
	if kind.Inference() && len(body) > 0 && !x.request.encoded {
		scan := s.scans.get()
		defer s.scans.pool.Put(scan)
		err := openai.Scan(scan, kind, body)
		switch {
		case err == nil:
			req.Body, req.Scan = body, scan
			req.Hints.ReadBody(scan, body, cfg.trust)
		case cfg.Malformed == "reject" && x.protocol.request != modeBufferedPartial:
			return verdict{answer: malformed(err)}
		default:
			s.metrics.unread("malformed")
		}
	} else if kind.Inference() {
		s.metrics.unread("no_body")
	}
	for _, p := range req.Hints.Problems.All() {
		s.metrics.hintIgnored(p)
	}
	if wrong := cfg.malformedHint(&req.Hints); wrong != nil {
		return verdict{answer: wrong}
	}
	req.Timing.Parsed = s.clock()
	decision, err := s.router.Route(x.ctx, &req)
	if err != nil {
		return verdict{answer: refusalOf(err)}
	}
	c := s.changeFor(cfg, decision, &req)
	if decision.Keep {
		sent := req.Body
		if c.replace {
			sent = c.body
		}
		decision.Done.Keep(sent)
	}
	return verdict{change: c, decision: decision}
}

// malformedHint answers a request whose hints cannot be understood, where the configuration wants that.
func (c *Config) malformedHint(h *hints.Hints) *refusal {
	if !c.Hints.Strict {
		return nil
	}
	if p, wrong := h.Problems.Malformed(); wrong {
		return refuse(400, "invalid_request_error", "malformed_hint", p.Kind.String(),
			"the request's hint "+p.Kind.String()+" cannot be understood: "+p.Reason.Text(), "attache_malformed_hint")
	}
	return nil
}
