package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// How many decisions one request gets.
const (
	defaultDecisions = 50
	maxDecisions     = 1000
)

func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	type health struct {
		Live   bool   `json:"live"`
		Reason string `json:"reason,omitempty"`
	}
	if err := s.view.src.Live(); err != nil {
		if wantsText(r) {
			text(w, http.StatusServiceUnavailable, err.Error()+"\n")
			return
		}
		s.answer(w, http.StatusServiceUnavailable, health{Reason: err.Error()})
		return
	}
	if wantsText(r) {
		text(w, http.StatusOK, "ok\n")
		return
	}
	s.answer(w, http.StatusOK, health{Live: true})
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	v := s.view.readiness()
	status, headline := http.StatusOK, "ready"
	if !v.Ready {
		status, headline = http.StatusServiceUnavailable, "not ready"
	}
	if !wantsText(r) {
		s.answer(w, status, v)
		return
	}
	var b strings.Builder
	b.WriteString(headline + "\n")
	for _, c := range v.Checks {
		fmt.Fprintf(&b, "[%s] %s: %s\n", c.State, c.Name, c.Detail)
	}
	text(w, status, b.String())
}

// wantsText reports whether plain text was asked for, by Accept or ?format=text; JSON is the default.
func wantsText(r *http.Request) bool {
	if format := r.URL.Query().Get("format"); format != "" {
		return format == "text"
	}
	accept := r.Header.Get("Accept")
	return strings.Contains(accept, "text/plain") && !strings.Contains(accept, "application/json")
}

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) // a reader that left is not our error
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, http.StatusOK, s.view.status())
}

func (s *Server) pools(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, http.StatusOK, map[string][]Pool{"pools": s.view.pools()})
}

func (s *Server) workers(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, http.StatusOK, map[string][]Worker{"workers": s.view.workers()})
}

func (s *Server) decisions(w http.ResponseWriter, r *http.Request) {
	limit := defaultDecisions
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxDecisions {
			s.failf(w, http.StatusBadRequest, "limit: %q: must be 1 to %d", text, maxDecisions)
			return
		}
		limit = n
	}
	s.answer(w, http.StatusOK, map[string][]Decision{"decisions": s.view.decisions(limit)})
}

func (s *Server) config(w http.ResponseWriter, _ *http.Request) {
	document, err := Redact(s.view.src.Config())
	if err != nil {
		s.failf(w, http.StatusInternalServerError, "%v", err)
		return
	}
	w.Header().Set("Content-Type", "application/yaml; charset=utf-8")
	_, _ = w.Write([]byte(document)) // a reader that left is not our error
}

func (s *Server) state(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, http.StatusOK, s.view.state())
}

func (s *Server) drain(w http.ResponseWriter, r *http.Request)   { s.setDrain(w, r, true) }
func (s *Server) undrain(w http.ResponseWriter, r *http.Request) { s.setDrain(w, r, false) }

func (s *Server) setDrain(w http.ResponseWriter, r *http.Request, on bool) {
	name := r.PathValue("name")
	if !slices.ContainsFunc(s.view.src.Workers(), func(k Worker) bool { return k.Name == name }) {
		s.failf(w, http.StatusNotFound, "no such worker: %q; /api/v1/workers lists them", name)
		return
	}
	if err := s.view.src.Drain(name, on); err != nil {
		s.failf(w, http.StatusConflict, "worker %q: %v", name, err)
		return
	}
	s.log.Info("drain by operator", "worker", name, "draining", on, "from", r.RemoteAddr)
	s.answer(w, http.StatusOK, struct {
		Worker   string `json:"worker"`
		Draining bool   `json:"draining"`
	}{name, on})
}
