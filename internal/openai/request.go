package openai

// Request is what routing needs to know of a request body, as places in it. Scan fills it; a Request that is used again
// keeps its memory. It holds no reference to the body: whoever reads a span needs the same bytes that were scanned.
type Request struct {
	Kind Kind
	// Model is the name of the model, still escaped; empty when there is none or when it is null. See ModelText.
	Model Span
	// Stream says that the answer is to come as events.
	Stream bool
	// IncludeUsage says that a streamed answer ends with its usage: because stream_options.include_usage asks for it,
	// or because this kind of API (Responses, Messages) always does.
	IncludeUsage bool
	// MaxTokens bounds the tokens of the answer: max_completion_tokens, else max_tokens, else max_output_tokens. 0 when
	// there is no bound.
	MaxTokens int
	// Priority is vLLM's: lower is served earlier. 0 when absent.
	Priority int
	// CacheSalt separates KV caches; User, PromptCacheKey and SessionID tell which requests belong together. Strings are
	// still escaped. A salt that is no string (SGLang takes lists) is its raw JSON, so that it separates all the same.
	CacheSalt, User, PromptCacheKey, SessionID Span
	// Tools is the raw JSON of the tools that a chat offers; empty when there are none.
	Tools Span
	// Extended says that there is a member nvext, NVIDIA's extension of the API.
	Extended bool
	// Aside is what else the body says about the request, beside its prompt.
	Aside Aside
	// Template is what else a chat's template is given.
	Template Template
	// Parts is the prompt in the order in which it is rendered, whatever the order of members in the body: tools apart,
	// instructions first, then the messages. It is empty when there is no prompt.
	Parts []Part
	// Turns is the number of messages (Chat, Messages), of input items (Responses; a string is one), or of prompts
	// (Completions, Embeddings).
	Turns int

	edits    edits
	embedded bool    // the prompt came in a form that has no text
	maxNew   int     // max_completion_tokens
	oldRank  Span    // data_parallel_rank
	lead     section // instructions, as a range of Parts
	main     section // messages or prompts
	spare    []Part

	wrongModel, wrongPrompt *FieldError // what engines refuse in the last model and the last prompt
}

// Aside are members that tell routing something, or name who asks. Empty when absent or null.
type Aside struct {
	// Extension, Metadata and Arguments are the raw JSON of the objects nvext, metadata and vllm_xargs.
	Extension, Metadata, Arguments Span
	// SafetyID is the string safety_identifier, still escaped: who asks, as User.
	SafetyID Span
	// Priority and Rank are the raw JSON of the members priority and routed_dp_rank (else data_parallel_rank), on which engines act.
	Priority, Rank Span
}

// Template is what the members of a chat say about how it becomes text, as vLLM and SGLang read them.
type Template struct {
	// Messages and Documents are the raw JSON of those arrays, Kwargs that of the object chat_template_kwargs. Empty when
	// absent.
	Messages, Documents, Kwargs Span
	// ToolChoice is the raw JSON of tool_choice: a string, or an object that names a function.
	ToolChoice Span
	// Own is a template that the request brings along, and ReasoningEffort how hard the model is to think: strings, still
	// escaped.
	Own, ReasoningEffort Span
	// GenerationPrompt says whether the text ends with the beginning of an answer (by default it does), ContinueFinal that
	// it ends within the last message, SpecialTokens whether the tokenizer adds its own around the text (by default not for
	// chats, but for completions).
	GenerationPrompt, ContinueFinal, SpecialTokens Choice
	// Truncated says that only the end of the prompt is used (truncate_prompt_tokens).
	Truncated bool
}

// Choice is a boolean that may be left open.
type Choice uint8

// The choices.
const (
	Open Choice = iota
	Yes
	No
)

// Or is the choice, or what holds when it is left open.
func (c Choice) Or(otherwise bool) bool { return c == Yes || c == Open && otherwise }

// Part is a piece of the prompt.
type Part struct {
	Kind PartKind
	Form Form
	Span Span
}

// PartKind says what a part is.
type PartKind uint8

// The kinds of parts. A chat is a sequence of messages, each of which begins with one of the three roles, followed by its
// other parts in the order of this list; content (Text, Media) and tool calls (ToolName, ToolArguments) repeat. Blocks of
// Anthropic's that think, call tools or answer calls stand among the content, in its order.
const (
	// Role begins a message; the span is the role, or the type of an input item that has no role.
	Role PartKind = iota + 1
	// SystemRole begins a message that is known to be the system's: it has no span.
	SystemRole
	// UserRole begins a message that is known to be the user's: it has no span.
	UserRole
	// Name is the name of the author, or of the function in an input item.
	Name
	// CallID says which tool call a message answers.
	CallID
	// Reasoning is what the model thought before it answered.
	Reasoning
	// Text is text of the message.
	Text
	// Media is an image, audio, a file, or content of a type that is not known: raw JSON.
	Media
	// ToolName is the function that a tool call names.
	ToolName
	// ToolArguments are its arguments.
	ToolArguments
	// Prompt is the text of one whole prompt of a completion.
	Prompt
	// TokenIDs is one whole prompt of a completion as a JSON array of unsigned integers.
	TokenIDs
)

// Form says how the bytes of a span are to be read. The first three are contents of strings.
type Form uint8

// The forms.
const (
	// Plain has no escapes: the bytes are the text.
	Plain Form = iota
	// Shortest has only the escapes that JSON requires, each in its shortest form: a text has one shortest form.
	Shortest
	// Escaped may have any escapes; see Shorten and AppendUnescaped.
	Escaped
	// Raw is JSON.
	Raw
)

// section is a range of Parts.
type section struct{ from, to int }

// reset makes a used Request empty.
func (r *Request) reset(kind Kind) {
	*r = Request{Kind: kind, Parts: r.Parts[:0], spare: r.spare[:0]}
}

// ModelText is the name of the model, unescaped; "" when there is none.
func (r *Request) ModelText(body []byte) string {
	if r.Model.Empty() {
		return ""
	}
	var name [128]byte
	return string(AppendUnescaped(name[:0], body, r.Model))
}

// Check reports, as a *FieldError, a prompt that is missing, which every engine refuses. A missing model is no error: it
// stands for the model that the engine serves.
func (r *Request) Check() error {
	missing := r.Turns == 0 && !r.embedded
	switch {
	case !missing:
		return nil
	case r.Kind == Chat || r.Kind == Messages:
		return &FieldError{Field: keyMessages, Offset: -1, Want: "must be an array with at least one message"}
	case r.Kind == Completions:
		return &FieldError{Field: "prompt", Offset: -1, Want: wantPrompt}
	case r.Kind == Responses:
		return &FieldError{Field: keyInput, Offset: -1, Want: "must be a string or an array of items"}
	case r.Kind == Embeddings:
		return &FieldError{Field: keyInput, Offset: -1, Want: wantPrompt}
	default:
		return nil
	}
}
