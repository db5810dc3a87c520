package extproc

import (
	"encoding/json"
	"fmt"
	"strings"

	"attache/internal/hints"
	"attache/internal/openai"
	"attache/internal/router"
)

// Preview is a request as a client would send it through Envoy, for whoever asks what would become of it.
type Preview struct {
	Path    string
	Headers [][2]string // name, value
	Body    []byte
}

// RefusedError is a request that would be answered here instead of by a worker.
type RefusedError struct {
	Status int
	// Body is the answer, an error in OpenAI's form.
	Body []byte
}

// Error is the message of the answer.
func (r *RefusedError) Error() string {
	var answer struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(r.Body, &answer); err != nil || answer.Error.Message == "" {
		return "the request is refused"
	}
	return answer.Error.Message
}

// RefusalOf is the answer to a request that Router.Route failed on.
func RefusalOf(err error) *RefusedError { return refusalOf(err).public() }

func (r *refusal) public() *RefusedError { return &RefusedError{Status: r.status, Body: r.body} }

// Understand reads a request as the server would that has this configuration. The result refers to the body. A body that is not
// understood is a *RefusedError, whatever the configuration does with it: there is nothing to be explained about it.
func (c *Config) Understand(p *Preview) (*router.Request, error) {
	var h requestHeaders
	var said hints.Headers
	trust := c.Hints.Trusted()
	for _, pair := range p.Headers {
		h.note([]byte(strings.ToLower(pair[0])), []byte(pair[1]), c, &said)
	}
	said.Read(&h.hints, trust, c.Hints.ForwardPriority)
	kind := openai.KindOf("POST", p.Path)
	if !kind.Inference() {
		return nil, refuse(400, "invalid_request_error", "unknown_path", "path",
			"path: requests to "+p.Path+" are not routed by their prompt; use one as /v1/chat/completions", "").public()
	}
	if int64(len(p.Body)) > int64(c.MaxBody) {
		r := tooLarge(len(p.Body), c.MaxBody)
		return nil, r.public()
	}
	scan := new(openai.Request)
	if err := openai.Scan(scan, kind, p.Body); err != nil {
		return nil, malformed(err).public()
	}
	h.hints.ReadBody(scan, p.Body, trust)
	if wrong := c.malformedHint(&h.hints); wrong != nil {
		return nil, wrong.public()
	}
	return &router.Request{ID: h.id, Path: p.Path, Kind: kind, Tenant: h.client, Body: p.Body, Scan: scan, Hints: h.hints}, nil
}

// BadPolicy is the refusal of a policy that is not known, or whose weights cannot be read.
func BadPolicy(policy string, known []string) *RefusedError {
	return refuse(400, "invalid_request_error", "unknown_policy", "policy", fmt.Sprintf("policy: %q: must be one of %s, for dynamo perhaps with weights, "+
		"as dynamo;overlap_score_credit=1;prefill_load_scale=16;router_temperature=0", policy, strings.Join(known, ", ")), "").public()
}
