package zmtp

import (
	"encoding/binary"
	"io"
)

// reader takes the bytes of a connection apart, where they are:
//
//	           a message in progress        arrived, not parsed     free
//	buf |     | frame | frame | command | frame…|.............|            |
//	          start                      pos                  end
//
// Frames are remembered as distances from start, because the bytes move: to the front when the rest of a frame would not
// fit, to a bigger buffer when they fill this one. The buffer grows by doubling as bytes arrive, never by what a header
// announces, so that a peer must send what it wants to occupy.
//
// A command may stand between the frames of a message: libzmq sends heartbeats whenever a timer fires. It stays where it
// is until the message is complete, and counts for the limit of the message.
type reader struct {
	src    io.Reader
	limits limits

	buf             []byte
	start, pos, end int
	spans           []span
	msg             Message
	given           bool // the bytes before pos were returned and may go
	full            bool // the last read took all the room there was
}

// span is where a frame's body lies, in bytes from the start of its message.
type span struct{ from, to int }

const (
	firstBuffer = 16 << 10  // bytes; idle endpoints need no more
	maxAhead    = 256 << 10 // bytes that are read ahead: a busy peer's messages then share a system call by the hundred
	maxKept     = 1 << 20   // bytes; what a bigger message needed is given back after it
)

// next returns the next message, or the body of the next command. Both are valid until the following call. An error is
// final.
func (r *reader) next() (m Message, command []byte, err error) {
	if r.given {
		r.given = false
		r.start = r.pos
		r.spans = r.spans[:0]
	}
	for {
		flags, from, err := r.frame()
		if err != nil {
			return nil, nil, err
		}
		if flags&flagCommand != 0 {
			r.given = len(r.spans) == 0
			return nil, r.buf[from:r.pos:r.pos], nil
		}
		r.spans = append(r.spans, span{from - r.start, r.pos - r.start})
		if flags&flagMore == 0 {
			break
		}
	}
	r.given = true
	r.msg = r.msg[:0]
	for _, s := range r.spans {
		r.msg = append(r.msg, r.buf[r.start+s.from:r.start+s.to:r.start+s.to])
	}
	return r.msg, nil, nil
}

// frame moves pos behind the next frame, whose body begins at from.
func (r *reader) frame() (flags byte, from int, err error) {
	if err := r.need(2); err != nil {
		return 0, 0, err
	}
	flags = r.buf[r.pos]
	header, size := 2, uint64(r.buf[r.pos+1])
	if flags&flagLong != 0 {
		if err := r.need(maxHeader); err != nil {
			return 0, 0, err
		}
		header, size = maxHeader, binary.BigEndian.Uint64(r.buf[r.pos+1:])
	}
	if err := r.allow(flags, header, size); err != nil {
		return 0, 0, err
	}
	if err := r.need(header + int(size)); err != nil {
		return 0, 0, err
	}
	from = r.pos + header
	r.pos = from + int(size)
	return flags, from, nil
}

// allow holds the limits before anything is read or grown for a frame.
func (r *reader) allow(flags byte, header int, size uint64) error {
	command := flags&flagCommand != 0
	switch {
	case flags > flagMore|flagLong|flagCommand, command && flags&flagMore != 0:
		return because(ErrProtocol, "a frame with the flags %#02x", flags)
	case command && size > maxCommand:
		return because(ErrLimit, "a command of %d bytes; at most %d are allowed", size, maxCommand)
	case command && len(r.spans) == 0:
		return nil // it occupies no message
	case !command && size > uint64(r.limits.frame):
		return because(ErrLimit, "a frame of %d bytes; max_frame is %d", size, r.limits.frame)
	case !command && len(r.spans) == r.limits.frames:
		return because(ErrLimit, "a message of more frames than max_frames, which is %d", r.limits.frames)
	case uint64(r.pos-r.start+header)+size > uint64(r.limits.message):
		return because(ErrLimit, "a message of %d bytes or more; max_message is %d", uint64(r.pos-r.start+header)+size, r.limits.message)
	}
	return nil
}

// need waits until n bytes follow pos.
func (r *reader) need(n int) error {
	for r.end-r.pos < n {
		if err := r.read(n - (r.end - r.pos)); err != nil {
			return err
		}
	}
	return nil
}

// read makes room and reads once. missing is how many bytes the next step cannot do without.
func (r *reader) read(missing int) error {
	used, size := r.end-r.start, len(r.buf)
	switch {
	case size == 0:
		size = firstBuffer
	case size > maxKept && used < maxAhead && missing < maxAhead:
		size = maxAhead
	case r.full && size < maxAhead:
		size *= 2 // more is waiting, most likely
	case used == size:
		// One message fills it. How far it may grow, allow has seen to; a header is read before allow sees it.
		size = min(2*size, max(r.limits.message, maxAhead)+maxHeader)
	}
	switch {
	case size != len(r.buf):
		r.move(make([]byte, size))
	case used == 0, len(r.buf)-r.end < missing:
		r.move(r.buf)
	}
	n, err := r.src.Read(r.buf[r.end:])
	r.end += n
	r.full = r.end == len(r.buf)
	if n > 0 {
		return nil // an error shows again
	}
	return err
}

// move brings what is still needed to the front of a buffer, which may be the same one.
func (r *reader) move(to []byte) {
	n := copy(to, r.buf[r.start:r.end])
	r.pos -= r.start
	r.start, r.end = 0, n
	r.buf = to
}

// peek returns the next n bytes as they are; skip passes them. Together they read the greeting, which has no frames.
func (r *reader) peek(n int) ([]byte, error) {
	err := r.need(n)
	return r.buf[r.pos : r.pos+min(n, r.end-r.pos)], err
}

func (r *reader) skip(n int) {
	r.pos += n
	r.start = r.pos
}
