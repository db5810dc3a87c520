package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
)

// maxModels bounds the answer of GET /v1/models.
const maxModels = 1 << 20

// modelsAge is how long a list of models is taken for current. Adapters may come and go at any time, but names of the base model
// are given when an engine starts.
const modelsAge = time.Minute

// readModels asks an engine by which names it serves its base model, those of adapters left out (they name a parent), sorted. An
// engine that does not tell is no error.
func (r *Registry) readModels(ctx context.Context, spec Spec) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Metrics.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+spec.Addr.String()+"/v1/models", nil)
	if err != nil {
		return nil, err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d on GET /v1/models", resp.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxModels))
	if err != nil {
		return nil, err
	}
	return parseModels(text)
}

// parseModels reads a list of models in OpenAI's form, with the "parent" that vLLM and SGLang give to adapters.
func parseModels(text []byte) ([]string, error) {
	var list struct {
		Data []struct {
			ID     string  `json:"id"`
			Parent *string `json:"parent"`
		} `json:"data"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("GET /v1/models: %w", err)
	}
	var names []string
	for _, m := range list.Data {
		if m.ID != "" && (m.Parent == nil || *m.Parent == "") {
			names = append(names, m.ID)
		}
	}
	slices.Sort(names)
	return names, nil
}
