package sim

import (
	"net"
	"net/http"
	"strings"

	"attache/indexer/events/wire"
)

// handleDialect adds the paths that only some engines have.
func (e *Engine) handleDialect(mux *http.ServeMux) {
	switch e.cfg.dialect() {
	case DialectSGLang:
		mux.HandleFunc("GET /flush_cache", e.flushCache)
		mux.HandleFunc("POST /flush_cache", e.flushCache)
		mux.HandleFunc("GET /server_info", e.serverInfo)
		mux.HandleFunc("GET /get_server_info", e.serverInfo)
	case DialectTensorRT:
		mux.HandleFunc("POST /kv_cache_events", e.pullEvents)
		mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { reply(w, []int{}) }) // no Prometheus there
	default:
		mux.HandleFunc("POST /reset_prefix_cache", func(w http.ResponseWriter, _ *http.Request) {
			reply(w, map[string]bool{"success": e.current.Load().reset(false)})
		})
	}
}

// flushCache is SGLang's: only an idle engine does it.
func (e *Engine) flushCache(w http.ResponseWriter, _ *http.Request) {
	if e.current.Load().reset(false) {
		_, _ = w.Write([]byte("Cache flushed.\n"))
		return
	}
	w.WriteHeader(http.StatusBadRequest)
	_, _ = w.Write([]byte("Flush cache failed: there are requests.\n"))
}

// serverInfo is SGLang's, as far as a gateway may want it.
func (e *Engine) serverInfo(w http.ResponseWriter, _ *http.Request) {
	type events struct {
		Publisher string `json:"publisher"`
		Host      string `json:"endpoint_host"`
		Port      int    `json:"endpoint_port_base"`
		Topic     string `json:"topic"`
		BlockSize int    `json:"block_size"`
		Ranks     int    `json:"dp_size"`
	}
	info := struct {
		Model    string  `json:"served_model_name"`
		PageSize int     `json:"page_size"`
		Ranks    int     `json:"dp_size"`
		Tokens   int     `json:"max_total_num_tokens"`
		Version  string  `json:"version"`
		Events   *events `json:"kv_events"`
	}{e.cfg.Model, e.cfg.BlockTokens, e.cfg.Ranks, e.cfg.blocks() * e.cfg.BlockTokens, "0.0.0-sim", nil}
	if host, port, err := net.SplitHostPort(strings.TrimPrefix(e.current.Load().at()[0].events, "tcp://")); err == nil {
		if strings.HasPrefix(e.cfg.Events, "tcp://*:") {
			host = "*"
		}
		info.Events = &events{"zmq", host, atoi(port), e.cfg.Topic, e.cfg.BlockTokens, e.cfg.Ranks}
	}
	reply(w, info)
}

// pullEvents is TensorRT-LLM's: whoever asks gets what happened since somebody asked last.
func (e *Engine) pullEvents(w http.ResponseWriter, _ *http.Request) {
	var all []wire.DraftTensorRT
	for _, r := range e.current.Load().ranks {
		all = append(all, r.pull.drain()...)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(wire.AppendTensorRT(nil, all))
}

// restartOver restarts the engine and cuts all connections but the one that asked for it.
func (e *Engine) restartOver(w http.ResponseWriter, r *http.Request) {
	spared, _ := r.Context().Value(connKey{}).(net.Conn)
	if err := e.restart(r.Context(), spared); err != nil {
		refuse(w, &apiError{Message: err.Error(), Type: "ServiceUnavailable", Code: http.StatusServiceUnavailable})
		return
	}
	w.Header().Set("Connection", "close")
	reply(w, map[string]uint64{"epoch": e.current.Load().epoch})
}
