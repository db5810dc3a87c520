package openai

import (
	"fmt"
	"strconv"
)

// SyntaxError says where a body stops being JSON.
type SyntaxError struct {
	// Offset is the first wrong byte, counted from 0; the length of the body when it ends too early.
	Offset int
	// Want is what JSON allows there, as the object of "expected": "':' after the object key".
	Want string
	// Got is what stands there: a quoted character, a byte in hexadecimal, or "the end of the body".
	Got string
}

// Error reads as "body: byte 17: expected ':' after the object key, found '}'".
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("body: byte %d: expected %s, found %s", e.Offset, e.Want, e.Got)
}

// FieldError says which member of a well-formed body every engine would refuse.
type FieldError struct {
	// Field leads to the member: "model", "messages[2]".
	Field string
	// Offset is where its value begins; -1 when the member is missing.
	Offset int
	// Want is the rule, as the end of a sentence: "must be a string".
	Want string
}

// Error reads as `body: byte 9: "model" must be a string`, or `body: "messages" is missing: it must be ...`.
func (e *FieldError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("body: %q is missing: it %s", e.Field, e.Want)
	}
	return fmt.Sprintf("body: byte %d: %q %s", e.Offset, e.Field, e.Want)
}

// found describes the byte at offset i for a SyntaxError.
func found(body []byte, i int) string {
	switch {
	case i >= len(body):
		return "the end of the body"
	case body[i] >= 0x20 && body[i] < 0x7f:
		return "'" + string(rune(body[i])) + "'"
	default:
		return "byte 0x" + strconv.FormatUint(uint64(body[i]), 16)
	}
}
