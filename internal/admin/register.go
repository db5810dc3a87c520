package admin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"attache/internal/worker/register"
)

// Registrar takes in workers that register themselves. Errors are of type *register.RefusedError.
type Registrar interface {
	// Authorize refuses who does not show the right token.
	Authorize(token string) error
	Register(ctx context.Context, said *register.Registration) (*register.Lease, error)
	Heartbeat(ctx context.Context, worker string, said *register.Heartbeat) (*register.Lease, error)
	// Drain says that a worker will leave, and how much still runs there.
	Drain(ctx context.Context, worker string) (*register.Lease, error)
	Deregister(ctx context.Context, worker string) error
}

// Lease is how long a worker that registered itself stays without another heartbeat, and what it said.
type Lease struct {
	RegisteredAt  time.Time         `json:"registered_at"`
	TTLS          Figure            `json:"ttl_s"`
	LeftS         Figure            `json:"left_s"`
	HeartbeatAgeS Figure            `json:"heartbeat_age_s"`
	Draining      bool              `json:"draining"`
	Models        []string          `json:"models"`
	Capacity      register.Capacity `json:"capacity"`
	Load          register.Load     `json:"load"`
}

func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	body, ok := s.said(w, r)
	if !ok {
		return
	}
	said, err := register.Parse(body)
	if err != nil {
		s.turnAway(w, r, err)
		return
	}
	lease, err := s.view.src.Registrar().Register(r.Context(), said)
	s.grant(w, r, lease, err)
}

func (s *Server) heartbeat(w http.ResponseWriter, r *http.Request) {
	body, ok := s.said(w, r)
	if !ok {
		return
	}
	said, err := register.ParseHeartbeat(body)
	if err != nil {
		s.turnAway(w, r, err)
		return
	}
	lease, err := s.view.src.Registrar().Heartbeat(r.Context(), r.PathValue("name"), said)
	s.grant(w, r, lease, err)
}

// deregister lets a worker go, or with ?drain=true keeps new requests away from it until it goes.
func (s *Server) deregister(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.said(w, r); !ok {
		return
	}
	name, drain := r.PathValue("name"), r.URL.Query().Get("drain")
	switch drain {
	case "true":
		lease, err := s.view.src.Registrar().Drain(r.Context(), name)
		s.grant(w, r, lease, err)
	case "", "false":
		if err := s.view.src.Registrar().Deregister(r.Context(), name); err != nil {
			s.turnAway(w, r, err)
			return
		}
		s.log.Info("worker deregistered", "worker", name, "from", r.RemoteAddr)
		s.answer(w, http.StatusOK, struct {
			Worker string `json:"worker"`
		}{name})
	default:
		s.failf(w, http.StatusBadRequest, "drain: %q: must be true or false", drain)
	}
}

// said is what somebody says who may; else the request is answered and ok is false.
func (s *Server) said(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") {
		token = ""
	}
	if err := s.view.src.Registrar().Authorize(strings.TrimSpace(token)); err != nil {
		s.turnAway(w, r, err)
		return nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, register.MaxBody))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		s.failf(w, http.StatusRequestEntityTooLarge, "body: must be at most %d bytes", large.Limit)
		return nil, false
	}
	if err != nil {
		s.failf(w, http.StatusBadRequest, "body: ended early")
		return nil, false
	}
	return body, true
}

func (s *Server) grant(w http.ResponseWriter, r *http.Request, lease *register.Lease, err error) {
	if err != nil {
		s.turnAway(w, r, err)
		return
	}
	s.answer(w, http.StatusOK, lease)
}

// statuses are what HTTP calls a refusal.
var statuses = map[register.Kind]int{
	register.Invalid: http.StatusBadRequest, register.TooLarge: http.StatusRequestEntityTooLarge, register.Off: http.StatusForbidden,
	register.Stranger: http.StatusUnauthorized, register.Unknown: http.StatusNotFound, register.Taken: http.StatusConflict,
	register.Full: http.StatusTooManyRequests,
}

func (s *Server) turnAway(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	if refusal := (*register.RefusedError)(nil); errors.As(err, &refusal) {
		status = statuses[refusal.Kind]
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if status != http.StatusNotFound { // usual after a restart
		s.log.Warn("a worker that registers was refused", "method", r.Method, "path", r.URL.Path, "from", r.RemoteAddr, "error", err)
	}
	s.failf(w, status, "%v", err)
}
