package openai

import "testing"

func TestKindOf(t *testing.T) {
	for _, c := range []struct {
		method, path string
		want         Kind
		inference    bool
	}{
		{"POST", "/v1/chat/completions", Chat, true},
		{"POST", "/v1/completions", Completions, true},
		{"POST", "/v1/responses", Responses, true},
		{"POST", "/v1/messages", Messages, true},
		{"POST", "/v1/embeddings", Embeddings, true},
		{"GET", "/v1/models", Models, false},
		{"GET", "/health", Health, false},
		{"POST", "/v1/chat/completions?api-version=1#top", Chat, true},
		{"POST", "/openai/v1/chat/completions", Chat, true},
		{"POST", "/v1/proxy/v1/completions", Completions, true},
		{"GET", "/openai/v1/models?limit=2", Models, false},
		{"GET", "/v1/chat/completions", Other, false},
		{"post", "/v1/chat/completions", Other, false},
		{"POST", "/v1/models", Other, false},
		{"POST", "/v1/chat/completions/", Other, false},
		{"POST", "/v1/chat/completions/batch", Other, false},
		{"POST", "/v1/messages/count_tokens", Other, false},
		{"GET", "/v1/models/llama", Other, false},
		{"POST", "/v2/chat/completions", Other, false},
		{"POST", "/x?y=/v1/completions", Other, false},
		{"POST", "/v1/", Other, false},
		{"POST", "", Other, false},
		{"POST", "/health", Other, false},
	} {
		kind := KindOf(c.method, c.path)
		if kind != c.want || kind.Inference() != c.inference {
			t.Errorf("%s %s: %v, inference %v; want %v, %v", c.method, c.path, kind, kind.Inference(), c.want, c.inference)
		}
	}
}

func TestKindNamesAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for k := Other; k <= Health; k++ {
		if seen[k.String()] {
			t.Errorf("kind %d: %q is the name of another", k, k)
		}
		seen[k.String()] = true
	}
}
