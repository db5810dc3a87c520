package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// How many decisions, and how many prefixes of a rank, one request gets.
const (
	defaultDecisions = 50
	maxDecisions     = 1000
	defaultPrefixes  = 100
	maxPrefixes      = 1000
	maxExport        = 100_000 // prefixes in one answer
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

func (s *Server) feeds(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, http.StatusOK, map[string][]Feed{"feeds": s.view.feeds()})
}

func (s *Server) index(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, http.StatusOK, map[string][]Index{"pools": s.view.indexes()})
}

// prefixes exports what workers are believed to hold, the most recently used first. It is what seeds a peer, the warm-up of a new
// worker, or a tool from outside.
func (s *Server) prefixes(w http.ResponseWriter, r *http.Request) {
	n, ok := s.count(w, r, "n", defaultPrefixes, maxPrefixes)
	if !ok {
		return
	}
	var names []string
	for _, k := range s.view.workers() {
		if k.State != gone {
			names = append(names, k.Name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	wanted := names
	if name := r.URL.Query().Get("worker"); name != "" {
		wanted = []string{name}
	}
	if len(wanted)*n > maxExport {
		s.failf(w, http.StatusBadRequest, "n: %d prefixes of %d workers: must be at most %d in all; ask for fewer, or for one worker",
			n, len(wanted), maxExport)
		return
	}
	all := []WorkerPrefixes{}
	for _, name := range wanted {
		if r.Context().Err() != nil {
			return
		}
		found := s.view.prefixes(name, n)
		if len(found) == 0 && !slices.Contains(names, name) {
			s.answer(w, http.StatusNotFound, problem{Error: fmt.Sprintf("no such worker: %q", name), Workers: names})
			return
		}
		all = append(all, found...)
	}
	s.answer(w, http.StatusOK, map[string][]WorkerPrefixes{"workers": all})
}

func (s *Server) decisions(w http.ResponseWriter, r *http.Request) {
	limit, ok := s.count(w, r, "limit", defaultDecisions, maxDecisions)
	if !ok {
		return
	}
	pool, worker := r.URL.Query().Get("pool"), r.URL.Query().Get("worker")
	look := limit
	if pool != "" || worker != "" {
		look = maxDecisions
	}
	found := slices.DeleteFunc(s.view.decisions(look), func(d Decision) bool {
		return pool != "" && d.Pool != pool || worker != "" && d.Chosen != worker && d.Served != worker
	})
	s.answer(w, http.StatusOK, map[string][]Decision{"decisions": found[:min(len(found), limit)]})
}

// count reads how many are wanted; when that is no number from 1 to most, the request is answered and ok is false.
func (s *Server) count(w http.ResponseWriter, r *http.Request, name string, usual, most int) (n int, ok bool) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return usual, true
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		s.failf(w, http.StatusBadRequest, "%s: %q: must be 1 to %d", name, text, most)
		return 0, false
	}
	return n, true
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
