package prompt

import "attache/internal/prompt/jinja"

// tools are the tools that the template is shown; None when there are none.
func (c *chatRequest) tools() (jinja.Value, error) {
	raw, err := c.json("tools", c.req.Tools)
	if err != nil || raw.Kind() == jinja.KindNone {
		return raw, err
	}
	only := ""
	if c.dialect == SGLang {
		choice, err := c.json("tool_choice", c.req.Template.ToolChoice)
		if err != nil {
			return raw, err
		}
		if choice.Text() == "none" {
			return jinja.None(), nil
		}
		only = functionName(choice) // it names a function as a tool does
	}
	list := make([]jinja.Value, 0, len(raw.Items()))
	for _, tool := range raw.Items() {
		if only == "" || functionName(tool) == only {
			list = append(list, c.tool(tool))
		}
	}
	return jinja.List(list), nil
}

// functionName is the name of the function of a tool; "" for none.
func functionName(tool jinja.Value) string {
	if d := tool.Dict(); d != nil {
		if function, _ := d.Get("function"); function.Dict() != nil {
			return textOf(function.Dict(), "name")
		}
	}
	return ""
}

// tool is one tool as the engine's own types write it out: type first, then the function with the members that these types
// have, in their order, with defaults where the client gave none; then, in vLLM, whatever else the client gave.
func (c *chatRequest) tool(raw jinja.Value) jinja.Value {
	d := raw.Dict()
	if d == nil {
		return raw
	}
	out := jinja.NewDict(d.Len() + 1)
	kind, ok := d.Get("type")
	if !ok {
		kind = jinja.String("function")
	}
	out.Set("type", kind)
	function, _ := d.Get("function")
	if f := function.Dict(); f != nil {
		function = c.function(f)
	}
	out.Set("function", function)
	if c.dialect == VLLM {
		rest(out, d)
	}
	return jinja.DictOf(out)
}

func (c *chatRequest) function(f *jinja.Dict) jinja.Value {
	out := jinja.NewDict(f.Len() + 2)
	members := []string{"name", "description", "parameters"}
	if c.dialect == SGLang {
		members = []string{"description", "name", "parameters"}
	}
	for _, key := range members {
		value, ok := f.Get(key)
		if !ok {
			value = jinja.None()
		}
		out.Set(key, value)
	}
	if c.dialect == SGLang {
		strict, ok := f.Get("strict")
		if !ok || strict.Kind() != jinja.KindBool {
			strict = jinja.Bool(false)
		}
		out.Set("strict", strict)
	} else {
		rest(out, f)
	}
	return jinja.DictOf(out)
}

// rest adds the keys that out has not.
func rest(out, in *jinja.Dict) {
	for _, key := range in.Keys() {
		if _, has := out.Get(key); !has {
			value, _ := in.Get(key)
			out.Set(key, value)
		}
	}
}
