package warm

import "attache/internal/openai"

// left out are members that no prompt is made of, and that go with the answer that is not wanted: engines refuse stream options without
// a stream, and more tokens at least than at most; further answers, log probabilities and stored answers cost work; log probabilities of
// the prompt keep engines from using their caches; ids are taken once; a priority would be that of the client's own request.
var leftOut = []string{"stream_options", "min_tokens", "n", "best_of", "use_beam_search", "logprobs", "top_logprobs", "prompt_logprobs", "echo",
	"background", "request_id", "rid", openai.PriorityKey, openai.ExtensionKey}

// oneToken is the body of a request for the same prompt and one token of an answer, which is not streamed.
func oneToken(kind openai.Kind, body []byte) []byte {
	limit, others := limitOf(kind, body)
	b := openai.AppendWithout(make([]byte, 0, len(body)+64), body, append(others, leftOut...)...)
	b = openai.AppendWithMember(make([]byte, 0, len(b)+64), b, limit, "1")
	b = openai.AppendWithMember(make([]byte, 0, len(b)+64), b, "stream", "false")
	if kind == openai.Responses {
		b = openai.AppendWithMember(make([]byte, 0, len(b)+64), b, "store", "false")
	}
	return b
}

// limitOf is the member that bounds the answer, and others that would.
func limitOf(kind openai.Kind, body []byte) (limit string, others []string) {
	switch kind {
	case openai.Responses:
		return "max_output_tokens", nil
	case openai.Chat:
		for key := range openai.Members(body) {
			if string(key) == "max_completion_tokens" {
				return "max_completion_tokens", []string{"max_tokens"}
			}
		}
	}
	return "max_tokens", nil
}

// nextTurn is the body of a chat with further messages, which have commas between them.
func nextTurn(body, messages []byte) []byte {
	const key = "messages"
	var all []byte
	for name, value := range openai.Members(body) {
		if string(name) == key {
			all = value
		}
	}
	if len(all) < 2 || all[len(all)-1] != ']' {
		return body
	}
	more := make([]byte, 0, len(all)+len(messages)+1)
	more = append(append(more, all[:len(all)-1]...), ',')
	more = append(append(more, messages...), ']')
	return openai.AppendWithMember(make([]byte, 0, len(body)+len(messages)+1), body, key, string(more))
}
