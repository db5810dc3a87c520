package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Served is what an engine said it serves, when it was asked last. The zero value is of one that told nothing.
type Served struct {
	Names     []string // of the base model, sorted
	Adapters  []string // by name, sorted
	MaxTokens int      // of prompt and answer together; 0 not known
}

// Told reports whether the engine named any model.
func (s *Served) Told() bool { return s != nil && len(s.Names)+len(s.Adapters) > 0 }

// Has reports whether a request may name this model: the base model, an adapter, or both as base:adapter, as SGLang's clients
// write it.
func (s *Served) Has(model string) bool {
	if s == nil {
		return false
	}
	if slices.Contains(s.Names, model) || slices.Contains(s.Adapters, model) {
		return true
	}
	base, adapter, both := strings.Cut(model, ":")
	return both && slices.Contains(s.Names, base) && slices.Contains(s.Adapters, adapter)
}

// maxModels bounds the answer of GET /v1/models.
const maxModels = 1 << 20

// modelsAge is how long a list of models is taken for current. Adapters may come and go at any time, but names of the base model
// are given when an engine starts.
const modelsAge = time.Minute

// readServed asks an engine what it serves. An engine that does not tell is no error of the worker's. SGLang before 0.5 does not
// say in its list how long a request may be, and is asked for that.
func (r *Registry) readServed(ctx context.Context, spec Spec, engine Engine) (*Served, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Load().Metrics.Timeout)
	defer cancel()
	text, err := r.ask(ctx, spec, "/v1/models")
	if err != nil {
		return nil, err
	}
	served, err := ParseModels(text)
	if err != nil || served.MaxTokens > 0 || engine != SGLang {
		return served, err
	}
	for _, path := range []string{"/server_info", "/get_server_info"} {
		if text, err := r.ask(ctx, spec, path); err == nil {
			served.MaxTokens = ParseServerInfo(text)
			break
		}
	}
	return served, nil
}

// ask reads what an engine answers on a path.
func (r *Registry) ask(ctx context.Context, spec Spec, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+spec.Addr.String()+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d on GET %s", resp.StatusCode, path)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxModels))
}

// ParseModels reads a list of models in OpenAI's form, with the "parent" that vLLM and SGLang give to adapters, and the
// "max_model_len" that they give to all. Where models differ in it the longest counts: a worker that could serve is not excluded.
func ParseModels(text []byte) (*Served, error) {
	var list struct {
		Data []struct {
			ID          string  `json:"id"`
			Parent      *string `json:"parent"`
			MaxModelLen *int    `json:"max_model_len"`
		} `json:"data"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("GET /v1/models: %w", err)
	}
	served := new(Served)
	for _, m := range list.Data {
		if m.ID == "" {
			continue
		}
		if m.Parent == nil || *m.Parent == "" {
			served.Names = append(served.Names, m.ID)
		} else {
			served.Adapters = append(served.Adapters, m.ID)
		}
		if m.MaxModelLen != nil {
			served.MaxTokens = max(served.MaxTokens, *m.MaxModelLen)
		}
	}
	slices.Sort(served.Names)
	slices.Sort(served.Adapters)
	return served, nil
}

// ParseServerInfo reads how long a request may be from SGLang's server information; 0 when it does not say.
func ParseServerInfo(text []byte) int {
	var info struct {
		ContextLength *int `json:"context_length"`
	}
	if json.Unmarshal(text, &info) != nil || info.ContextLength == nil {
		return 0
	}
	return max(0, *info.ContextLength)
}
