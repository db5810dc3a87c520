package openai

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// MaxEvent bounds one line, and the data of one event, of a stream: an engine's largest events, with log probabilities,
// stay far below it.
const MaxEvent = 1 << 20

// Done is the data of the last event of OpenAI's streams.
const Done = "[DONE]"

// ErrEventTooLong says that a line or an event of a stream is longer than MaxEvent bytes.
var ErrEventTooLong = fmt.Errorf("event stream: a line or the data of an event is longer than %d bytes", MaxEvent)

// EventReader reads the data of server-sent events from a stream. Comments, event names, ids and retry times are passed
// over, as are events without data. Lines end with LF or CRLF. Not for concurrent use.
type EventReader struct {
	in   *bufio.Reader
	line []byte // a line that did not fit into the reader's buffer
	data []byte
	err  error
	some bool // data belongs to an event that is not complete
}

// NewEventReader reads events from r, 16 KiB at a time.
func NewEventReader(r io.Reader) *EventReader {
	return &EventReader{in: bufio.NewReaderSize(r, 16<<10)}
}

// Next returns the data of the next event, lines of it joined by newlines. It is valid until the next call. The error is
// io.EOF at the end of the stream, where an event counts as complete even without the blank line that should follow it;
// ErrEventTooLong; or that of the underlying reader: an event that such an error cuts short is dropped.
func (e *EventReader) Next() ([]byte, error) {
	e.data, e.some = e.data[:0], false
	for e.err == nil {
		var line []byte
		line, e.err = e.readLine()
		if e.err != nil && !errors.Is(e.err, io.EOF) {
			return nil, e.err
		}
		if len(line) == 0 && e.some {
			return e.data, nil
		}
		if value, ok := dataOf(line); ok {
			if err := e.add(value); err != nil {
				return nil, err
			}
		}
	}
	if e.some {
		return e.data, nil
	}
	return nil, e.err
}

// dataOf is the value of a data line.
func dataOf(line []byte) ([]byte, bool) {
	rest, ok := bytes.CutPrefix(line, []byte("data"))
	if !ok {
		return nil, false
	}
	if len(rest) == 0 {
		return nil, true
	}
	if rest[0] != ':' {
		return nil, false
	}
	return bytes.TrimPrefix(rest[1:], []byte(" ")), true
}

func (e *EventReader) add(value []byte) error {
	if e.some {
		e.data = append(e.data, '\n')
	}
	if len(e.data)+len(value) > MaxEvent {
		e.err = ErrEventTooLong
		return e.err
	}
	e.data, e.some = append(e.data, value...), true
	return nil
}

// readLine returns the next line without its end. With an error it returns what there is of the last line.
func (e *EventReader) readLine() ([]byte, error) {
	line, err := e.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		e.line = append(e.line[:0], line...)
		for errors.Is(err, bufio.ErrBufferFull) {
			if len(e.line) > MaxEvent {
				return nil, ErrEventTooLong
			}
			line, err = e.in.ReadSlice('\n')
			e.line = append(e.line, line...)
		}
		line = e.line
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), err
}
