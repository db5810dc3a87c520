package prompt

// Dialect is how a family of engines prepares a chat for its template. They agree in most, not in all.
type Dialect uint8

// The dialects.
const (
	// VLLM is vLLM's way, which others follow (entrypoints/chat_utils.py, renderers/hf.py).
	VLLM Dialect = iota
	// SGLang's is in srt/entrypoints/openai/serving_chat.py and srt/parser/jinja_template_utils.py.
	SGLang
)
