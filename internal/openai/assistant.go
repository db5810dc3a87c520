package openai

import (
	"bytes"
	"slices"
	"strconv"
)

// Answer gathers the assistant's message out of the answer to a chat, which passes by in pieces: events, or one JSON document. Of
// several choices it is the first. Not for concurrent use.
type Answer struct {
	stream bool
	room   int // bytes that may still be gathered
	rest   []byte
	over   bool // nothing more is gathered: it is too long, or not understood
	ended  bool // the engine said why the answer ends

	text  []byte
	calls []toolCall
}

// toolCall is a call that the model wants made.
type toolCall struct {
	index               int
	id, name, arguments []byte
}

// NewAnswer gathers from a stream of events, or from one document; at most so many bytes of it.
func NewAnswer(stream bool, most int) *Answer { return &Answer{stream: stream, room: most} }

// Add takes in the next piece, which it does not keep. What follows a mistake, or comes when there is no room, is passed over.
func (a *Answer) Add(piece []byte) {
	if a.over {
		return
	}
	if !a.stream {
		a.keep(&a.rest, piece)
		return
	}
	for !a.over {
		line, more, whole := bytes.Cut(piece, []byte("\n"))
		if !whole {
			if len(a.rest)+len(line) > MaxEvent {
				a.over = true
			} else {
				a.rest = append(a.rest, line...)
			}
			return
		}
		if len(a.rest) > 0 {
			a.rest = append(a.rest, line...)
			line = a.rest
		}
		if data, is := dataOf(bytes.TrimSuffix(line, []byte("\r"))); is {
			a.choices(data, "delta")
		}
		a.rest, piece = a.rest[:0], more
	}
}

// keep appends what there is room for, or gives up.
func (a *Answer) keep(to *[]byte, more []byte) {
	if a.room -= len(more); a.room < 0 {
		a.over = true
		return
	}
	*to = append(*to, more...)
}

// choices reads the first choice of an event or a document; in is the member that the message is in.
func (a *Answer) choices(raw []byte, in string) {
	for key, choices := range Members(raw) {
		if string(key) != "choices" {
			continue
		}
		for choice := range Elements(choices) {
			index, message, reason := []byte("0"), []byte(nil), []byte(nil)
			for key, value := range Members(choice) {
				switch string(key) {
				case "index":
					index = value
				case in:
					message = value
				case "finish_reason":
					reason = value
				}
			}
			if string(index) == "0" {
				a.message(message)
				a.ended = a.ended || len(reason) > 0 && reason[0] == '"'
			}
		}
	}
}

// message takes in a message, or more of it. Reasoning has members of its own, which are passed over.
func (a *Answer) message(raw []byte) {
	for key, value := range Members(raw) {
		switch string(key) {
		case "content":
			a.keep(&a.text, plain(value))
		case "tool_calls":
			at := 0
			for call := range Elements(value) {
				a.call(call, at)
				at++
			}
		}
	}
}

func (a *Answer) call(raw []byte, index int) {
	for key, value := range Members(raw) {
		if string(key) == "index" {
			if n, err := strconv.Atoi(string(value)); err == nil {
				index = n
			}
		}
	}
	at := slices.IndexFunc(a.calls, func(c toolCall) bool { return c.index == index })
	if at < 0 {
		at = len(a.calls)
		a.calls = append(a.calls, toolCall{index: index})
	}
	c := &a.calls[at]
	for key, value := range Members(raw) {
		switch string(key) {
		case "id":
			a.keep(&c.id, plain(value))
		case "function":
			for key, value := range Members(value) {
				switch string(key) {
				case "name":
					a.keep(&c.name, plain(value))
				case "arguments":
					a.keep(&c.arguments, plain(value))
				}
			}
		}
	}
}

// plain is the text of a JSON string; nothing for any other value.
func plain(raw []byte) []byte {
	if len(raw) < 2 || raw[0] != '"' {
		return nil
	}
	return AppendUnescaped(make([]byte, 0, len(raw)), raw, Span{1, len(raw) - 1})
}

var (
	thinks  = []byte("<think>")
	thought = []byte("</think>")
)

// NextTurn is what the next request of the conversation has after the messages of this one, as far as it is known now: the assistant's
// message, and the beginning of the one that answers it, with nothing in it. What the model thought is left out, as clients do.
// ok is false when the answer is not complete, was too long, or said nothing.
func (a *Answer) NextTurn() (messages []byte, ok bool) {
	if !a.stream && !a.over {
		a.choices(a.rest, "message")
		a.rest = nil
	}
	text := a.text
	if at := bytes.LastIndex(text, thought); at >= 0 {
		text = bytes.TrimLeft(text[at+len(thought):], "\r\n")
	}
	if a.over || !a.ended || bytes.Contains(text, thinks) || len(text) == 0 && len(a.calls) == 0 {
		return nil, false
	}
	b := append(make([]byte, 0, len(text)+256), `{"role":"assistant","content":`...)
	if len(text) > 0 {
		b = AppendString(b, string(text))
	} else {
		b = append(b, "null"...)
	}
	if len(a.calls) == 0 {
		return append(b, `},{"role":"user","content":""}`...), true
	}
	for i, c := range a.calls {
		b = append(b, [2]string{`,"tool_calls":[{"id":`, `,{"id":`}[min(i, 1)]...)
		b = AppendString(b, string(c.id))
		b = AppendString(append(b, `,"type":"function","function":{"name":`...), string(c.name))
		b = AppendString(append(b, `,"arguments":`...), string(c.arguments))
		b = append(b, "}}"...)
	}
	b = AppendString(append(b, `]},{"role":"tool","tool_call_id":`...), string(a.calls[0].id))
	return append(b, `,"content":""}`...), true
}
