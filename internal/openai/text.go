package openai

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// Strings are most of a body, so where there is nothing better (marks_amd64.go) they are passed over in words of eight bytes,
// four at a time. Three kinds of bytes matter inside one: the quote that ends it, the backslash, and control characters, which
// JSON forbids. A word is tested for all of them by subtraction: for a byte x below 0x80, x-n borrows, and so sets its top bit, exactly if x < n. The
// quote (0x22) becomes 0x20 by flipping bit 1, which only permutes the control characters among themselves, so one
// subtraction serves both.
//
// bytes.IndexByte finds quotes faster, but no control characters, and stops at every escaped quote.

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special has the top bit of the first byte set that is a quote, a backslash or a control character. Bits above it may
// be wrong: they suffer from its borrow.
func special(word uint64) uint64 {
	quote := word ^ 0x02*ones
	slash := word ^ '\\'*ones
	return ((quote - 0x21*ones) | (slash - ones)) &^ word & highs
}

// stringEnd is scanner.stringEnd for every machine.
func stringEnd(b []byte, i int) (end int, form Form, ok bool) {
	for {
		i = plainEnd(b, i)
		switch {
		case i == len(b):
			return i, form, false
		case b[i] == '"':
			return i, form, true
		case b[i] == '\\' && i+1 < len(b) && simpleEscapes[b[i+1]] != 0:
			if form = max(form, Shortest); b[i+1] == '/' {
				form = Escaped
			}
			i += 2
		default:
			wrong, ok := unicodeEscapeEnd(b, i)
			if !ok {
				return wrong, form, false
			}
			form = Escaped
			i += 6
		}
	}
}

// plainEnd is the first byte from i on that is a quote, a backslash or a control character; len(b) if there is none.
func plainEnd(b []byte, i int) int {
	for ; i+32 <= len(b); i += 32 {
		four := b[i : i+32 : i+32]
		h0, h1 := special(binary.LittleEndian.Uint64(four)), special(binary.LittleEndian.Uint64(four[8:]))
		h2, h3 := special(binary.LittleEndian.Uint64(four[16:])), special(binary.LittleEndian.Uint64(four[24:]))
		switch {
		case h0|h1|h2|h3 == 0:
		case h0 != 0:
			return i + bits.TrailingZeros64(h0)/8
		case h1 != 0:
			return i + 8 + bits.TrailingZeros64(h1)/8
		case h2 != 0:
			return i + 16 + bits.TrailingZeros64(h2)/8
		default:
			return i + 24 + bits.TrailingZeros64(h3)/8
		}
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= 0x20 {
		i++
	}
	return i
}

// unicodeEscapeEnd reports whether \uXXXX stands at i, and if not, which byte is wrong.
func unicodeEscapeEnd(b []byte, i int) (wrong int, ok bool) {
	for k := range 6 {
		switch {
		case i+k == len(b),
			k == 0 && b[i] != '\\',
			k == 1 && b[i+1] != 'u',
			k > 1 && hexValue(b[i+k]) < 0:
			return i + k, false
		}
	}
	return 0, true
}

func hexValue(c byte) rune {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return rune(c|0x20-'a') + 10
	default:
		return -1
	}
}

// simpleEscapes holds what a backslash and a byte stand for; 0 where they are no escape sequence of two bytes.
var simpleEscapes = [256]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// unescape resolves the escapes of src, the contents of a JSON string, into dst until either is used up, and returns how
// far it came in both. It makes progress if dst has room for 4 bytes. Bytes that are not UTF-8 are copied as they are.
func unescape(dst, src []byte) (written, read int) {
	for read < len(src) {
		n := copyPlain(dst[written:], src[read:])
		written, read = written+n, read+n
		if read == len(src) || src[read] != '\\' || len(dst)-written < utf8.UTFMax {
			break
		}
		r, n := escape(src[read:])
		written += utf8.EncodeRune(dst[written:], r)
		read += n
	}
	return written, read
}

// Shorten brings src, the contents of a JSON string, into the form Shortest, into dst until either is used up, and
// returns how far it came in both. dst must have room for 6 bytes at least, so that every call makes progress. Texts are
// equal exactly if their shortest forms are, so whoever only compares or hashes texts needs not unescape them: most
// clients write the shortest form to begin with.
func Shorten(dst, src []byte) (written, read int) {
	for read < len(src) {
		n := copyPlain(dst[written:], src[read:])
		written, read = written+n, read+n
		if read == len(src) || src[read] != '\\' || len(dst)-written < 6 {
			break
		}
		r, n := escape(src[read:])
		written += len(appendEscaped(dst[written:written], r))
		read += n
	}
	return written, read
}

// copyPlain copies src up to its first backslash as far as dst has room.
func copyPlain(dst, src []byte) int {
	if len(src) > len(dst) {
		src = src[:len(dst)]
	}
	if n := bytes.IndexByte(src, '\\'); n >= 0 {
		src = src[:n]
	}
	return copy(dst, src)
}

// appendEscaped appends r to the contents of a JSON string, in the shortest form.
func appendEscaped(dst []byte, r rune) []byte {
	switch {
	case r == '"' || r == '\\':
		return append(dst, '\\', byte(r))
	case r >= 0x20:
		return utf8.AppendRune(dst, r)
	}
	if short := shortEscapes[r]; short != 0 {
		return append(dst, '\\', short)
	}
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&0xf])
}

// shortEscapes holds the letter that stands for a control character behind a backslash; 0 where there is none.
var shortEscapes = [0x20]byte{'\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}

// escape is the character that the escape sequence at the beginning of b stands for, and the length of the sequence, or
// of the pair where two make one character. A surrogate without its partner reads as U+FFFD, and so does, to be on the
// safe side, what is no escape sequence: Scan accepts no such string.
func escape(b []byte) (r rune, n int) {
	if len(b) > 1 && simpleEscapes[b[1]] != 0 {
		return rune(simpleEscapes[b[1]]), 2
	}
	first, ok := codeUnit(b)
	if !ok {
		return utf8.RuneError, 1
	}
	if !utf16.IsSurrogate(first) {
		return first, 6
	}
	if second, ok := codeUnit(b[6:]); ok {
		if r := utf16.DecodeRune(first, second); r != utf8.RuneError {
			return r, 12
		}
	}
	return utf8.RuneError, 6
}

func codeUnit(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		v := hexValue(c)
		if v < 0 {
			return 0, false
		}
		r = r<<4 | v
	}
	return r, true
}

// AppendUnescaped appends the text of a JSON string to dst. s is the string without its quotes, as Scan reports it.
// Lone surrogates and each byte that is not UTF-8 become U+FFFD, as in encoding/json, so the result is always UTF-8.
func AppendUnescaped(dst, body []byte, s Span) []byte {
	from, src := len(dst), s.In(body)
	if bytes.IndexByte(src, '\\') < 0 {
		dst = append(dst, src...)
	} else {
		var piece [512]byte
		for len(src) > 0 {
			written, read := unescape(piece[:], src)
			dst = append(dst, piece[:written]...)
			src = src[read:]
		}
	}
	if utf8.Valid(dst[from:]) {
		return dst
	}
	broken := string(dst[from:])
	dst = dst[:from]
	for _, r := range broken {
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}

// AppendString appends s as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		dst = appendEscaped(dst, r)
	}
	return append(dst, '"')
}
