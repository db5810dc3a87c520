package prompt

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"attache/internal/openai"
	"attache/internal/prompt/jinja"
)

// chat renders a chat.
func (m *Model) chat(r *Rendered, body []byte, req *openai.Request, d Dialect) error {
	template := &m.plain
	if !req.Tools.Empty() {
		template = &m.tools
	}
	switch {
	case !req.Template.Own.Empty():
		return &UnknownError{Why: OwnTemplate}
	case template.template == nil:
		return &UnknownError{Why: NoTemplate}
	case req.Template.Messages.Empty():
		return &UnknownError{Why: NoPrompt}
	}
	c := chatRequest{model: m, template: template, dialect: d, body: body, req: req, decoder: &r.decoder}
	defer r.decoder.Reset()
	vars, err := c.variables()
	if err != nil {
		return err
	}
	from := len(r.Text)
	options := jinja.Options{MaxSteps: renderSteps, MaxOutput: renderOutput, Deadline: time.Now().Add(renderTime)}
	text, err := template.template.Render(r.Text, vars, options)
	if err != nil && d == SGLang && flatten(vars) {
		text, err = template.template.Render(r.Text[:from], vars, options)
	}
	if err != nil {
		if raised := new(jinja.RaisedError); errors.As(err, &raised) {
			return &UnknownError{Why: Refused, Err: err}
		}
		return &UnknownError{Why: TemplateFailed, Err: err}
	}
	if c.cutsLast() {
		rest, err := continued(text[from:], vars)
		if err != nil {
			return &UnknownError{Why: Odd, Err: err}
		}
		text = text[:from+len(rest)]
	}
	text = append(text, c.prefix...)
	r.Text, r.Media = text, c.media
	return nil
}

// flatten gives the template the functions of tools without what is around them, which SGLang tries when a template fails
// with the usual form. It reports whether there are tools.
func flatten(vars *jinja.Dict) bool {
	tools, _ := vars.Get("tools")
	if len(tools.Items()) == 0 {
		return false
	}
	flat := make([]jinja.Value, len(tools.Items()))
	for i, tool := range tools.Items() {
		flat[i] = tool
		if d := tool.Dict(); d != nil {
			if function, ok := d.Get("function"); ok {
				flat[i] = function
			}
		}
	}
	vars.Set("tools", jinja.List(flat))
	return true
}

// chatRequest is one chat on its way to the template.
type chatRequest struct {
	model    *Model
	template *chatTemplate
	dialect  Dialect
	body     []byte
	req      *openai.Request
	decoder  *jinja.Decoder
	media    int    // images, sounds and videos met so far
	prefix   string // of the answer: it follows the text
}

// cutsLast tells whether the text is to end within the last message, the way vLLM does it: rendered whole, then cut.
func (c *chatRequest) cutsLast() bool {
	return c.dialect != SGLang && c.req.Template.ContinueFinal.Or(false)
}

// variables makes what the template is given.
func (c *chatRequest) variables() (*jinja.Dict, error) {
	vars := jinja.NewDict(16)
	set(vars, c.model.special)
	messages, err := c.messages()
	if err != nil {
		return nil, err
	}
	vars.Set("messages", jinja.List(messages))
	tools, err := c.tools()
	if err != nil {
		return nil, err
	}
	vars.Set("tools", tools)
	documents, err := c.json("documents", c.req.Template.Documents)
	if err != nil {
		return nil, err
	}
	vars.Set("documents", documents)
	generate := c.req.Template.GenerationPrompt.Or(true) && !c.cutsLast() || c.dialect == SGLang
	vars.Set("add_generation_prompt", jinja.Bool(generate))
	set(vars, c.model.defaults)
	if !c.req.Template.ReasoningEffort.Empty() {
		effort := string(openai.AppendUnescaped(nil, c.body, c.req.Template.ReasoningEffort))
		vars.Set("reasoning_effort", jinja.String(effort))
		if c.dialect == VLLM {
			vars.Set("enable_thinking", jinja.Bool(effort != "none"))
		}
	}
	kwargs, err := c.json("chat_template_kwargs", c.req.Template.Kwargs)
	if err != nil {
		return nil, err
	}
	set(vars, kwargs.Dict()) // these win
	return vars, nil
}

// set adds all of a mapping, which may be nil.
func set(vars, more *jinja.Dict) {
	if more == nil {
		return
	}
	for _, key := range more.Keys() {
		value, _ := more.Get(key)
		vars.Set(key, value)
	}
}

// json reads a member of the body; None where there is none.
func (c *chatRequest) json(name string, at openai.Span) (jinja.Value, error) {
	if at.Empty() {
		return jinja.None(), nil
	}
	v, err := c.decoder.Decode(at.In(c.body))
	if err != nil {
		return v, &UnknownError{Why: Odd, Err: fmt.Errorf("%s: %w", name, err)}
	}
	return v, nil
}

// messages prepares all messages.
func (c *chatRequest) messages() ([]jinja.Value, error) {
	raw, err := c.json("messages", c.req.Template.Messages)
	if err != nil {
		return nil, err
	}
	list := make([]jinja.Value, 0, len(raw.Items()))
	for i, in := range raw.Items() {
		out, err := c.message(in.Dict())
		if err != nil {
			if u := new(UnknownError); errors.As(err, &u) {
				return nil, err
			}
			return nil, &UnknownError{Why: Odd, Err: fmt.Errorf("messages[%d]: %w", i, err)}
		}
		list = append(list, jinja.DictOf(out))
	}
	if c.dialect == SGLang {
		list = c.closing(list)
	}
	return list, nil
}

// closing handles a last message of the assistant's, as SGLang does: it is the beginning of the answer if the request says
// so, else the user's.
func (c *chatRequest) closing(list []jinja.Value) []jinja.Value {
	if len(list) == 0 {
		return list
	}
	last := list[len(list)-1].Dict()
	content, _ := last.Get("content")
	switch {
	case textOf(last, "role") != "assistant" || content.Kind() != jinja.KindString:
		return list
	case c.req.Template.ContinueFinal.Or(false):
		c.prefix = content.Text()
		return list[:len(list)-1]
	default:
		user := jinja.NewDict(2)
		user.Set("role", jinja.String("user"))
		user.Set("content", content)
		return append(list[:len(list)-1], jinja.DictOf(user))
	}
}

var errObject = errors.New("must be an object")

// message is one message as the template sees it: of the members that clients send only those that mean something, in the
// engine's order, which templates that print whole messages show.
func (c *chatRequest) message(in *jinja.Dict) (*jinja.Dict, error) {
	if in == nil {
		return nil, errObject
	}
	role := textOf(in, "role")
	out := jinja.NewDict(6)
	if role == "developer" && !c.template.knowsDeveloper {
		out.Set("role", jinja.String("system"))
	} else {
		out.Set("role", jinja.String(role))
	}
	content, err := c.content(in, role)
	if err != nil {
		return nil, err
	}
	out.Set("content", content)
	if c.dialect == SGLang {
		return out, sglangRest(in, out, role)
	}
	return out, vllmRest(in, out, role)
}

// vllmRest adds what vLLM hands on beside role and content.
func vllmRest(in, out *jinja.Dict, role string) error {
	switch role {
	case "assistant":
		if calls, ok := in.Get("tool_calls"); ok && len(calls.Items()) > 0 {
			list, err := parsedCalls(calls, false)
			if err != nil {
				return err
			}
			out.Set("tool_calls", list)
		}
		if reasoning, ok := reasoningOf(in); ok {
			out.Set("reasoning", reasoning)
			out.Set("reasoning_content", reasoning) // templates ask for either
		}
	case "tool":
		if id, ok := in.Get("tool_call_id"); ok {
			out.Set("tool_call_id", id)
		}
	case "developer":
		tools, ok := in.Get("tools")
		if !ok {
			tools = jinja.None()
		}
		out.Set("tools", tools)
	}
	if name, ok := in.Get("name"); ok && name.Kind() == jinja.KindString {
		out.Set("name", name)
	}
	return nil
}

// sglangRest adds what SGLang hands on beside role and content: what is not null.
func sglangRest(in, out *jinja.Dict, role string) error {
	for _, key := range []string{"tool_call_id", "name"} {
		if v, ok := in.Get(key); ok && v.Kind() == jinja.KindString {
			out.Set(key, v)
		}
	}
	if reasoning, ok := reasoningOf(in); ok {
		out.Set("reasoning_content", reasoning)
	}
	if calls, ok := in.Get("tool_calls"); ok && calls.Kind() == jinja.KindList {
		if role != "assistant" {
			out.Set("tool_calls", calls)
			return nil
		}
		list, err := parsedCalls(calls, true)
		if err != nil {
			return err
		}
		out.Set("tool_calls", list)
	}
	return nil
}

func textOf(d *jinja.Dict, key string) string {
	v, _ := d.Get(key)
	return v.Text()
}

// reasoningOf is what the model thought, under either of its names.
func reasoningOf(in *jinja.Dict) (jinja.Value, bool) {
	for _, key := range []string{"reasoning", "reasoning_content"} {
		if v, ok := in.Get(key); ok && v.Kind() == jinja.KindString {
			return v, true
		}
	}
	return jinja.Value{}, false
}

// content brings the content of a message into the form that the template wants.
func (c *chatRequest) content(in *jinja.Dict, role string) (jinja.Value, error) {
	content, _ := in.Get("content")
	parts := c.template.parts[c.dialect]
	switch content.Kind() {
	case jinja.KindUndefined, jinja.KindNone:
		if parts && c.dialect == VLLM && role != "tool" {
			return jinja.List(nil), nil
		}
		return jinja.String(""), nil
	case jinja.KindString:
		if parts && c.dialect == VLLM && role != "tool" {
			return jinja.List([]jinja.Value{textPart(content)}), nil
		}
		return content, nil
	case jinja.KindList:
	default:
		return content, errors.New("content: must be a string or a list")
	}
	list := make([]jinja.Value, 0, len(content.Items()))
	texts := make([]string, 0, len(content.Items()))
	for i, in := range content.Items() {
		part, text, err := c.part(in, parts)
		switch {
		case err != nil:
			return content, fmt.Errorf("content[%d]: %w", i, err)
		case part.Kind() == jinja.KindUndefined:
			continue
		case text.Kind() == jinja.KindString:
			texts = append(texts, text.Text())
		}
		list = append(list, part)
	}
	if parts && (role != "tool" || len(texts) < len(list)) {
		return jinja.List(list), nil
	}
	separator := "\n"
	if c.dialect == SGLang {
		separator = " "
	}
	return jinja.String(strings.Join(texts, separator)), nil
}

func textPart(text jinja.Value) jinja.Value {
	d := jinja.NewDict(2)
	d.Set("type", jinja.String("text"))
	d.Set("text", text)
	return jinja.DictOf(d)
}

// part is one part of a content as a template with parts sees it, and its text if it has one. Both are undefined for a part
// that engines leave out.
func (c *chatRequest) part(in jinja.Value, parts bool) (part, text jinja.Value, err error) {
	if in.Kind() == jinja.KindString {
		return textPart(in), in, nil
	}
	d := in.Dict()
	if d == nil {
		return part, text, errObject
	}
	kind := textOf(d, "type")
	switch kind {
	case "text", "input_text", "output_text", "refusal", "thinking":
		key := "text"
		if kind == "refusal" || kind == "thinking" {
			key = kind
		}
		text, _ = d.Get(key)
		if text.Kind() != jinja.KindString {
			return jinja.Value{}, jinja.Value{}, nil
		}
		return textPart(text), text, nil
	case "image_url", "input_image":
		part, err = c.mediaPart("image", parts)
	case "audio_url", "input_audio":
		part, err = c.mediaPart("audio", parts)
	case "video_url":
		part, err = c.mediaPart("video", parts)
	default:
		err = &UnknownError{Why: MediaParts}
	}
	return part, text, err
}

// mediaPart is an image, a sound or a video. Where the template wants texts, it is the engine that finds them a place.
func (c *chatRequest) mediaPart(modality string, parts bool) (jinja.Value, error) {
	if !parts {
		return jinja.Value{}, &UnknownError{Why: MediaParts}
	}
	c.media++
	d := jinja.NewDict(1)
	d.Set("type", jinja.String(modality))
	return jinja.DictOf(d), nil
}

// parsedCalls are tool calls whose arguments, a string of JSON in requests, are what templates expect: an object. What is
// no JSON is an empty object, unless strict.
func parsedCalls(calls jinja.Value, strict bool) (jinja.Value, error) {
	list := make([]jinja.Value, len(calls.Items()))
	for i, call := range calls.Items() {
		d := call.Dict()
		if d == nil {
			return list[i], fmt.Errorf("tool_calls[%d]: %w", i, errObject)
		}
		function, _ := d.Get("function")
		if function.Dict() == nil {
			return list[i], fmt.Errorf("tool_calls[%d].function: %w", i, errObject)
		}
		arguments, _ := function.Dict().Get("arguments")
		switch arguments.Kind() {
		case jinja.KindString:
			parsed, err := jinja.FromJSON([]byte(arguments.Text()))
			switch {
			case err == nil:
				arguments = parsed
			case strict:
				return list[i], fmt.Errorf("tool_calls[%d].function.arguments: %w", i, err)
			default:
				arguments = jinja.DictOf(jinja.NewDict(0))
			}
		case jinja.KindDict, jinja.KindList:
		default:
			arguments = jinja.DictOf(jinja.NewDict(0))
		}
		list[i] = with(d, "function", with(function.Dict(), "arguments", arguments))
	}
	return jinja.List(list), nil
}

// with is a copy of a mapping with one key set.
func with(d *jinja.Dict, key string, value jinja.Value) jinja.Value {
	out := jinja.NewDict(d.Len() + 1)
	set(out, d)
	out.Set(key, value)
	return jinja.DictOf(out)
}

// continued cuts a rendered text off behind the contents of its last message, which the model is to go on with, as
// transformers does (apply_chat_template with continue_final_message).
func continued(text []byte, vars *jinja.Dict) ([]byte, error) {
	messages, _ := vars.Get("messages")
	list := messages.Items()
	if len(list) == 0 {
		return nil, errors.New("messages: must not be empty")
	}
	content, _ := list[len(list)-1].Dict().Get("content")
	final := content.Text()
	for i := len(content.Items()) - 1; i >= 0; i-- {
		if t, ok := content.Items()[i].Dict().Get("text"); ok {
			final = t.Text()
			break
		}
	}
	trimmed := strings.TrimSpace(final)
	at := strings.LastIndex(string(text), trimmed)
	if at < 0 {
		return nil, errors.New("the template leaves out the last message, which is to be continued")
	}
	length := len(trimmed)
	if whole := len(strings.TrimLeft(final, " \t\n\r\f\v")); at+whole <= len(text) && string(text[at:at+whole]) == final {
		length = whole
	}
	return text[:at+length], nil
}
