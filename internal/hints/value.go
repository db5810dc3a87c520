package hints

import (
	"bytes"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"attache/internal/openai"
)

// Bounds of what is believed.
const (
	// MaxText is the longest text, in bytes.
	MaxText = 256
	// MaxOutputTokens is the longest answer that anybody can expect, in tokens.
	MaxOutputTokens = 1 << 24

	maxDigits   = 32 // of a number as it is written
	maxPriority = math.MaxInt32
	maxRank     = 1<<16 - 1
	maxWeight   = 1e6
	maxTTL      = 24 * time.Hour
	maxDeadline = 24 * time.Hour
	maxSLO      = time.Hour
	defaultTTL  = 5 * time.Minute // of an ephemeral cache entry, as in Anthropic's API
)

// text copies a text, spaces around it cut off; "" says nothing.
func text(b []byte) (string, Reason) {
	b = bytes.TrimSpace(b)
	switch {
	case len(b) > MaxText:
		return "", TooLong
	case !utf8.Valid(b):
		return "", NotText
	}
	for _, c := range b {
		if c < 0x20 || c == 0x7f {
			return "", NotText
		}
	}
	return string(b), taken
}

// escapedText reads what stands between the quotes of a JSON string.
func escapedText(contents []byte) (string, Reason) {
	if len(contents) > 6*MaxText { // no byte takes more than an escape of six
		return "", TooLong
	}
	var room [MaxText]byte
	return text(openai.AppendUnescaped(room[:0], contents, openai.Span{To: len(contents)}))
}

// jsonText reads a JSON string.
func jsonText(raw []byte) (string, Reason) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", WrongType
	}
	return escapedText(raw[1 : len(raw)-1])
}

// name reads a name that may be written as a number.
func name(raw []byte) (string, Reason) {
	if _, why := whole(raw, math.MaxUint64); why == taken {
		return text(raw)
	}
	return jsonText(raw)
}

// number reads a decimal number from lo to hi.
func number(b []byte, lo, hi float64) (float64, Reason) {
	b = bytes.TrimSpace(b)
	if len(b) == 0 || len(b) > maxDigits || !numeric(b) {
		return 0, WrongType
	}
	f, err := strconv.ParseFloat(string(b), 64)
	switch {
	case err != nil && !math.IsInf(f, 0):
		return 0, WrongType
	case f < lo || f > hi:
		return 0, OutOfRange
	}
	return f, taken
}

// numeric keeps out what ParseFloat knows and JSON does not: hexadecimal, underscores, infinities.
func numeric(b []byte) bool {
	for _, c := range b {
		if (c < '0' || c > '9') && c != '-' && c != '+' && c != '.' && c|0x20 != 'e' {
			return false
		}
	}
	return true
}

// whole reads a whole number from 0 to hi.
func whole(b []byte, hi uint64) (uint64, Reason) {
	b = bytes.TrimSpace(b)
	if len(b) == 0 || len(b) > maxDigits {
		return 0, WrongType
	}
	digits := b
	if digits[0] == '-' {
		digits = digits[1:]
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, WrongType
		}
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil || n > hi {
		return 0, OutOfRange
	}
	return n, taken
}

// span reads a time given as a number of units, above 0.
func span(b []byte, unit, hi time.Duration) (time.Duration, Reason) {
	f, why := number(b, 0, float64(hi)/float64(unit))
	if why != taken {
		return 0, why
	}
	d := time.Duration(f * float64(unit))
	if d <= 0 {
		return 0, OutOfRange
	}
	return d, taken
}

// ttl reads the lifetime of a cache entry: seconds, or a whole number with s, m or h, such as "5m".
func ttl(raw []byte) (time.Duration, Reason) {
	if len(raw) == 0 || raw[0] != '"' {
		return span(raw, time.Second, maxTTL)
	}
	s, why := jsonText(raw)
	if why != taken || s == "" {
		return 0, max(why, WrongType)
	}
	unit := unitOf(s[len(s)-1])
	if unit == 0 {
		return 0, Unknown
	}
	n, why := whole([]byte(s[:len(s)-1]), uint64(maxTTL/unit))
	if why == taken && n == 0 {
		why = OutOfRange
	}
	return time.Duration(n) * unit, why
}

// unitOf is the time that a letter stands for; 0 for none.
func unitOf(letter byte) time.Duration {
	switch letter {
	case 's':
		return time.Second
	case 'm':
		return time.Minute
	case 'h':
		return time.Hour
	default:
		return 0
	}
}

// flag reads true or false; headers may also say 1 or 0.
func flag(b []byte) (bool, Reason) {
	switch string(bytes.TrimSpace(b)) {
	case "true", "True", "TRUE", "1":
		return true, taken
	case "false", "False", "FALSE", "0":
		return false, taken
	default:
		return false, Unknown
	}
}
