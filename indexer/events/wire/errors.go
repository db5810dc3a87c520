package wire

import (
	"fmt"
	"strconv"
)

// SyntaxError says where a payload stops being a batch of events.
type SyntaxError struct {
	// Offset is the first byte that is wrong, counted from 0; the length of the payload when it ends too early.
	Offset int
	// Want is what may stand there, as the object of "expected": "the list of events".
	Want string
	// Got is what stands there: a byte in hexadecimal, or "the end of the payload".
	Got string
}

// Error reads as "batch: byte 17: expected the list of events, found byte 0xc0".
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("batch: byte %d: expected %s, found %s", e.Offset, e.Want, e.Got)
}

// found describes the byte at offset i for a SyntaxError.
func found(b []byte, i int) string {
	if i >= len(b) {
		return "the end of the payload"
	}
	return "byte 0x" + strconv.FormatUint(uint64(b[i]), 16)
}

// FrameError says what is wrong with the frames of a message, before its payload is looked at.
type FrameError struct {
	// Want is the rule, as the end of a sentence: "a live message has 3 frames (topic, sequence, payload)".
	Want string
	// Got is what came instead: "2 frames", "5 bytes".
	Got string
}

// Error reads as "frames: a live message has 3 frames (topic, sequence, payload), found 2 frames".
func (e *FrameError) Error() string { return "frames: " + e.Want + ", found " + e.Got }
