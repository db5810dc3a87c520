package openai

import "strings"

// Kind says which API a request speaks.
type Kind uint8

// The kinds. Other is everything that is not known.
const (
	Other       Kind = iota
	Chat             // POST /v1/chat/completions
	Completions      // POST /v1/completions
	Responses        // POST /v1/responses
	Messages         // POST /v1/messages, Anthropic's
	Embeddings       // POST /v1/embeddings
	Models           // GET /v1/models
	Health           // GET /health
)

// KindOf tells the kind by method and path. The path may carry a query, and a prefix before "/v1/", as gateways that
// serve several vendors use: "/openai/v1/chat/completions".
func KindOf(method, path string) Kind {
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	if path == "/health" && method == "GET" {
		return Health
	}
	i := strings.LastIndex(path, "/v1/")
	if i < 0 {
		return Other
	}
	switch path = path[i+len("/v1/"):]; {
	case method == "GET" && path == "models":
		return Models
	case method != "POST":
		return Other
	}
	switch path {
	case "chat/completions":
		return Chat
	case "completions":
		return Completions
	case "responses":
		return Responses
	case "messages":
		return Messages
	case "embeddings":
		return Embeddings
	default:
		return Other
	}
}

// Inference reports whether a request of this kind carries a body for a model to work on.
func (k Kind) Inference() bool { return k >= Chat && k <= Embeddings }

// String names the kind as it appears in metrics and logs.
func (k Kind) String() string {
	switch k {
	case Chat:
		return "chat"
	case Completions:
		return "completions"
	case Responses:
		return "responses"
	case Messages:
		return "messages"
	case Embeddings:
		return "embeddings"
	case Models:
		return "models"
	case Health:
		return "health"
	default:
		return "other"
	}
}
