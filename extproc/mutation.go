package extproc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"attache/envoy"
	"attache/internal/field"
	"attache/internal/hints"
	"attache/internal/openai"
	"attache/internal/router"
	"attache/internal/worker"
)

// changeFor turns a decision into what changes on the request: the destination list as header and as metadata, both the
// same; the pool's cluster when the default route would not lead there; the model name and the wish for usage in the
// body. Nothing else is touched.
func (s *Server) changeFor(cfg *settings, d *router.Decision, req *router.Request) change {
	c := change{
		destinations: d.Destinations,
		set:          []header{{envoy.DestinationHeader, d.Destinations}},
		note:         note{decision: d.ID, replica: d.Replica, pool: d.Pool, predictedCached: d.PredictedCached},
	}
	if d.Rank != "" {
		c.set = append(c.set, header{envoy.RankHeader, d.Rank})
	}
	if d.Pool != s.defaultPool {
		c.set = append(c.set, header{envoy.PoolHeader, envoy.PoolCluster(d.Pool)})
		c.clearRoute = true
	}
	if req.Scan == nil {
		return c
	}
	if body, changed := cfg.edited(d, req); changed {
		c.body, c.replace = body, true
	}
	return c
}

// edited makes the body that the worker gets; changed is false when that is the client's.
func (s *settings) edited(d *router.Decision, req *router.Request) (body []byte, changed bool) {
	body = req.Body
	edit := openai.Edit{IncludeUsage: s.IncludeUsage && req.Scan.Stream && !req.Scan.IncludeUsage}
	if d.Model != "" {
		edit.Model = &d.Model
	}
	if edit.Model != nil || edit.IncludeUsage {
		body, changed = req.Scan.Apply(make([]byte, 0, len(body)+128), body, edit), true
	}
	var space [4]string
	if drop := s.unwanted(space[:0], d, req.Scan); len(drop) > 0 {
		body, changed = openai.AppendWithout(make([]byte, 0, len(body)), body, drop...), true
	}
	if priority, told := s.priority(d, req); told {
		body, changed = openai.AppendWithMember(make([]byte, 0, len(body)+32), body, openai.PriorityKey, priority), true
	}
	return body, changed
}

// unwanted appends the members of the body that the worker must not see: what it would refuse, and what it would act on although it is
// not believed.
func (s *settings) unwanted(keys []string, d *router.Decision, scan *openai.Request) []string {
	if d.Strict && scan.Extended {
		keys = append(keys, openai.ExtensionKey)
	}
	if !scan.Aside.Priority.Empty() && !s.trust.Has(hints.GroupPriority) {
		keys = append(keys, openai.PriorityKey)
	}
	if !scan.Aside.Rank.Empty() && !s.trust.Has(hints.GroupPin) {
		keys = append(keys, openai.RankKey, openai.OldRankKey)
	}
	return keys
}

// priority is the priority to tell the engine, on its scale: vLLM serves lower numbers first, SGLang higher ones. told is false when
// there is nothing to tell, the body says it itself, or the worker that answers may run an engine that refuses it.
func (s *settings) priority(d *router.Decision, req *router.Request) (number string, told bool) {
	from := req.Hints.PriorityFrom
	if !s.Hints.ForwardPriority || from == hints.Nowhere || from == hints.FromMember {
		return "", false
	}
	urgency := int64(math.Round(req.Hints.Priority))
	completes := req.Kind == openai.Chat || req.Kind == openai.Completions
	switch {
	case d.Engine == worker.VLLM && (completes || req.Kind == openai.Responses):
		return strconv.FormatInt(-urgency, 10), true
	case d.Engine == worker.SGLang && completes:
		return strconv.FormatInt(urgency, 10), true
	default:
		return "", false
	}
}

func contentLength(n int) header { return header{"content-length", strconv.Itoa(n)} }

// refusal is an answer of our own to the client.
type refusal struct {
	status  int
	headers []header
	body    []byte
	details string // for Envoy's access log
}

func (r refusal) reply() reply {
	headers := append([]header{{"content-type", "application/json"}}, r.headers...)
	return immediate(r.status, headers, r.body, r.details)
}

// refuse makes an OpenAI-style error answer.
func refuse(status int, kind, code, param, message, details string, headers ...header) *refusal {
	return &refusal{
		status: status, headers: headers, details: details,
		body: openai.AppendError(nil, status, kind, code, param, message),
	}
}

// dropped is the header in which a picker tells why it turned a request away, as llm-d's clients expect it.
func dropped(reason string) header { return header{envoy.DroppedHeader, reason} }

// refusalOf maps the router's errors to HTTP, in one place.
func refusalOf(err error) *refusal {
	var nobody *router.NoWorkerError
	var shed *router.ShedError
	var unknown *router.UnknownModelError
	var long *router.TooLongError
	switch {
	case errors.As(err, &nobody):
		return refuse(503, "service_unavailable", "no_worker", "", nobody.Error(), "attache_no_worker",
			dropped("rejected-no-endpoints"))
	case errors.As(err, &long):
		return refuse(400, "invalid_request_error", "context_length_exceeded", "", long.Error(), "attache_context_length")
	case errors.As(err, &shed):
		status, kind := 429, "rate_limit_exceeded"
		if shed.Stopping() {
			status, kind = 503, "service_unavailable"
		}
		after := strconv.Itoa(int(math.Ceil(shed.RetryAfter.Seconds())))
		return refuse(status, kind, "overloaded", "", shed.Error()+"; try again in "+after+" s",
			"attache_shed", header{"retry-after", after}, dropped(string(shed.Reason)))
	case errors.As(err, &unknown):
		return refuse(404, "invalid_request_error", "model_not_found", "model", unknown.Error(), "attache_unknown_model")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return refuse(503, "service_unavailable", "cancelled", "", "the request was given up before a worker was chosen",
			"attache_cancelled", dropped("rejected-context-cancelled"))
	default:
		return refuse(500, "internal_error", "", "", "no worker could be chosen: "+err.Error(), "attache_internal")
	}
}

func tooLarge(size int, limit field.Bytes) refusal {
	return *refuse(413, "invalid_request_error", "request_too_large", "",
		fmt.Sprintf("the request body has at least %d bytes; at most %d (%s) are accepted", size, int64(limit), limit),
		"attache_body_too_large")
}

func malformed(err error) *refusal {
	param := ""
	var field *openai.FieldError
	if errors.As(err, &field) {
		param = field.Field
	}
	return refuse(400, "invalid_request_error", "malformed_body", param, err.Error(), "attache_malformed_body")
}

// modelList answers GET /v1/models in OpenAI's form.
func modelList(names []string) *refusal {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	list := struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{Object: "list", Data: []model{}}
	for _, name := range names {
		list.Data = append(list.Data, model{ID: name, Object: "model", OwnedBy: "attache"})
	}
	body, err := json.Marshal(list)
	if err != nil {
		return refuse(500, "internal_error", "", "", err.Error(), "attache_internal")
	}
	return &refusal{status: 200, body: body, details: "attache_models"}
}
