// Package jinja renders chat templates: the Jinja2 language as the transformers library sets it up, with Python's value
// semantics, byte for byte.
//
// In the common case a model's template is parsed once, and every request renders it with its own variables:
//
//	t, err := jinja.Parse("qwen3", source)
//	vars := jinja.NewDict(4)
//	messages, err := jinja.FromJSON(body)
//	vars.Set("messages", messages)
//	text, err := t.Render(buf[:0], vars, jinja.Options{})
//
// Parse turns the source into a tree in three steps: the lexer cuts it into tokens (lexer.go), the parser builds nodes
// (parse_statement.go, parse_expression.go), and the resolver gives every name its place, a slot of a frame or a variable of
// the caller (scope.go). Render walks the tree (exec.go, eval.go) and appends to one buffer.
//
// The language is that of an ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, loop controls, the generation
// tag, the filter tojson, and the functions raise_exception and strftime_now. What needs other templates (include, import,
// extends) fails when it is reached, as it does there, since there is no loader.
//
// Templates are data that somebody else wrote. They cannot reach anything but their variables, and what they may use is
// bounded by Options: steps, output, time, and depth.
package jinja
