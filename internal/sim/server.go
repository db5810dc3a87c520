package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// maxBody is the largest request body that is read.
const maxBody = 64 << 20

// Headers of responses, so that tests see who answered, and what arrived.
const (
	HeaderEngine    = "X-Sim-Engine"      // Config.Name
	HeaderBodyBytes = "X-Sim-Body-Bytes"  // length of the request body as it arrived
	HeaderBodySum   = "X-Sim-Body-Sha256" // its SHA-256 in hexadecimal
	HeaderRank      = "X-Sim-Rank"        // the data-parallel rank that answers
)

func itoa(n int) string { return strconv.Itoa(n) }

// atoi is for ports that a socket has reported.
func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

func (e *Engine) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { e.infer(w, r, chat) })
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { e.infer(w, r, completions) })
	mux.HandleFunc("POST /tokenize", e.tokenize)
	mux.HandleFunc("GET /v1/models", e.models)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { reply(w, map[string]string{"version": "0.0.0-sim"}) })
	mux.HandleFunc("GET /health", e.health)
	mux.HandleFunc("GET "+exposedBy(e.cfg.dialect()).path, func(w http.ResponseWriter, r *http.Request) {
		e.current.Load().metrics.handler().ServeHTTP(w, r)
	})
	e.handleDialect(mux)
	mux.HandleFunc("GET /sim/fault", e.fault)
	mux.HandleFunc("POST /sim/fault", e.fault)
	mux.HandleFunc("GET /sim/event-fault", e.eventFault)
	mux.HandleFunc("POST /sim/event-fault", e.eventFault)
	mux.HandleFunc("GET /sim/state", e.state)
	mux.HandleFunc("POST /sim/restart", e.restartOver)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, &apiError{Message: "Not Found: " + r.Method + " " + r.URL.Path, Type: "NotFoundError", Code: http.StatusNotFound})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/sim/") {
			for fault, over := e.faults.get(); fault.Mode == FaultHang; fault, over = e.faults.get() {
				select {
				case <-over:
				case <-r.Context().Done():
					return
				case <-e.ended:
					return
				}
			}
		}
		w.Header().Set(HeaderEngine, e.cfg.Name)
		mux.ServeHTTP(w, r)
	})
}

// reply answers 200 with JSON.
func reply(w http.ResponseWriter, v any) { replyWith(w, http.StatusOK, v) }

func replyWith(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// refuse answers with an error, in the form of the API where it has one.
func refuse(w http.ResponseWriter, err error) {
	var e *apiError
	if !errors.As(err, &e) {
		e = &apiError{Message: err.Error(), Type: "InternalServerError", Code: http.StatusInternalServerError}
	}
	replyWith(w, e.Code, map[string]*apiError{"error": e})
}

// readBody reads a request body and tells the client in headers what arrived.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, &apiError{
			Message: "the body is larger than " + itoa(maxBody) + " bytes", Type: "BadRequestError", Code: http.StatusRequestEntityTooLarge,
		}
	} else if err != nil {
		return nil, badRequest("", "the body ended early: %v", err)
	}
	sum := sha256.Sum256(raw)
	w.Header().Set(HeaderBodyBytes, itoa(len(raw)))
	w.Header().Set(HeaderBodySum, hex.EncodeToString(sum[:]))
	return raw, nil
}

func (e *Engine) health(w http.ResponseWriter, _ *http.Request) {
	if f, _ := e.faults.get(); f.Health && (f.Mode == Fault503 || f.Mode == Fault500) {
		w.WriteHeader(f.status())
	}
}

func (e *Engine) models(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID          string  `json:"id"`
		Object      string  `json:"object"`
		Created     int64   `json:"created"`
		OwnedBy     string  `json:"owned_by"`
		Root        string  `json:"root"`
		Parent      *string `json:"parent"`
		MaxModelLen int     `json:"max_model_len"`
	}
	created := e.current.Load().started.Unix()
	list := []model{{
		ID: e.cfg.Model, Object: "model", Created: created, OwnedBy: "sim", Root: e.cfg.Model, MaxModelLen: e.cfg.window(),
	}}
	for _, lora := range e.cfg.LoRAs {
		list = append(list, model{
			ID: lora, Object: "model", Created: created, OwnedBy: "sim", Root: lora, Parent: &e.cfg.Model, MaxModelLen: e.cfg.window(),
		})
	}
	reply(w, struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{"list", list})
}

func (e *Engine) tokenize(w http.ResponseWriter, r *http.Request) {
	raw, err := readBody(w, r)
	if err != nil {
		refuse(w, err)
		return
	}
	b, err := e.cfg.parseBody(raw, tokenize)
	if err != nil {
		refuse(w, err)
		return
	}
	t, err := e.cfg.tokens(raw, b, maxBody, true)
	if err != nil {
		refuse(w, err)
		return
	}
	reply(w, struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []uint32 `json:"tokens"`
		TokenStrs   []string `json:"token_strs"`
	}{t.n, e.cfg.window(), append([]uint32{}, t.ids...), nil})
}

// fault shows what is wrong with the engine, or sets it.
func (e *Engine) fault(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		f, _ := e.faults.get()
		reply(w, f)
		return
	}
	var f Fault
	raw, err := readBody(w, r)
	if err == nil {
		err = json.Unmarshal(raw, &f)
	}
	if err == nil {
		err = f.Validate()
	}
	if err == nil && f.Mode == FaultRefuse && f.For == 0 {
		err = errors.New("for: must be given with refuse: while the port is closed nothing can end it")
	}
	if err != nil {
		refuse(w, badRequest("", "%v", err))
		return
	}
	if f.Mode == FaultRefuse { // it cuts this connection, too: answer first
		w.Header().Set("Connection", "close")
		reply(w, f)
		_ = http.NewResponseController(w).Flush()
		e.SetFault(f)
		return
	}
	e.SetFault(f)
	reply(w, f)
}

// reset makes the client see a TCP reset.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
