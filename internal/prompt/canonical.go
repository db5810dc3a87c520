package prompt

import (
	"bytes"
	"encoding/binary"

	"attache/internal/block"
	"attache/internal/openai"
)

// The canonical text of a conversation:
//
//	F5 tools  F6 system FB You are ...  F6 user FB Hello FB ...  F6 assistant FB Hi FE get_weather FF {"city":"Rome"}
//
// Each part is a marker, which tells its kind, followed by its text, in the order in which chat templates render them:
// tools first, then message by message. A text stands there in JSON's shortest form, which is as unique as the text itself
// and, with most clients, what the body already has. From this follow the properties that routing needs:
//
//   - The next turn of a conversation appends to the text of the last one, since nothing comes after the last message.
//   - Equal prompts have equal texts, whichever way the client writes them: with other escapes, another order of members,
//     a text as a string or as a list with one part, an empty content or none.
//   - Different prompts have different texts. Markers are bytes that no UTF-8 text contains, so text cannot imitate them.
//     (Strings with bytes that are not UTF-8 could. Engines refuse such bodies, and what is gained is a wrong guess of who
//     holds a prompt.) Media have a hash of 8 bytes in place of a text.
//
// Where real templates differ, in what they put around messages, leave out, or say at the end, all requests of a pool
// differ in the same way.
const (
	markTools         = 0xf5
	markRole          = 0xf6
	markName          = 0xf7
	markCallID        = 0xf8
	markReasoning     = 0xf9
	markMedia         = 0xfa
	markText          = 0xfb
	markRaw           = 0xfc // in front of JSON where a string is expected
	markToolName      = 0xfe
	markToolArguments = 0xff
)

// attribution begins a text that some coding agents put in front of their system prompt. It differs from request to request,
// and engines leave it out, lest no prompt begin like another (vLLM, entrypoints/anthropic/serving.py).
var attribution = []byte("x-anthropic-billing-header")

// idBytes is the size of a token id in what is hashed.
const idBytes = 4

// writer renders prompts. The buffers make it worth keeping.
type writer struct {
	out     block.Chainer
	scratch [4096]byte
}

func (w *writer) conversation(body []byte, req *openai.Request) {
	if !req.Tools.Empty() {
		w.mark(markTools)
		w.out.Write(req.Tools.In(body))
	}
	for _, p := range req.Parts {
		switch p.Kind {
		case openai.SystemRole:
			w.mark(markRole)
			w.out.WriteString("system")
		case openai.UserRole:
			w.mark(markRole)
			w.out.WriteString("user")
		case openai.Media:
			// By its hash: the length of an image's bytes says nothing of its length in tokens.
			w.mark(markMedia)
			var hash [8]byte
			binary.LittleEndian.PutUint64(hash[:], block.Local(p.Span.In(body), 0))
			w.out.Write(hash[:])
		case openai.Role:
			w.mark(markRole)
			w.payload(body, p)
		default:
			if p.Span.Empty() || req.Kind == openai.Messages && bytes.HasPrefix(p.Span.In(body), attribution) {
				continue
			}
			w.mark(marker(p.Kind))
			w.payload(body, p)
		}
	}
}

func marker(kind openai.PartKind) byte {
	switch kind {
	case openai.Name:
		return markName
	case openai.CallID:
		return markCallID
	case openai.Reasoning:
		return markReasoning
	case openai.ToolName:
		return markToolName
	case openai.ToolArguments:
		return markToolArguments
	default:
		return markText
	}
}

func (w *writer) mark(b byte) {
	w.scratch[0] = b
	w.out.Write(w.scratch[:1])
}

// payload writes the text of a part. It is hashed where it stands, but for clients that escape more than they must.
func (w *writer) payload(body []byte, p openai.Part) {
	text := p.Span.In(body)
	switch p.Form {
	case openai.Plain, openai.Shortest:
		w.out.Write(text)
	case openai.Escaped:
		for len(text) > 0 {
			written, read := openai.Shorten(w.scratch[:], text)
			w.out.Write(w.scratch[:written])
			text = text[read:]
		}
	case openai.Raw:
		w.mark(markRaw)
		w.out.Write(text)
	}
}

// ids writes an array of token ids, 4 bytes each, little-endian. Larger numbers than fit are cut off.
func (w *writer) ids(array []byte) {
	n := 0
	for i := 0; i < len(array); {
		if array[i] < '0' || array[i] > '9' {
			i++
			continue
		}
		id := uint32(0)
		for ; i < len(array) && array[i] >= '0' && array[i] <= '9'; i++ {
			id = id*10 + uint32(array[i]-'0')
		}
		binary.LittleEndian.PutUint32(w.scratch[n:], id)
		if n += idBytes; n == len(w.scratch) {
			w.out.Write(w.scratch[:n])
			n = 0
		}
	}
	w.out.Write(w.scratch[:n])
}

// countIDs counts the numbers of an array that Scan has checked.
func countIDs(array []byte) int {
	n, inside := 0, false
	for _, c := range array {
		digit := c >= '0' && c <= '9'
		if digit && !inside {
			n++
		}
		inside = digit
	}
	return n
}
