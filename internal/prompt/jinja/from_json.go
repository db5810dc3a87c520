package jinja

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// maxJSONDepth is how deep arrays and objects may stand within each other.
const maxJSONDepth = 500

// DataError is what FromJSON returns for data that is no JSON.
type DataError struct {
	Offset  int // in bytes
	Message string
}

func (e *DataError) Error() string { return fmt.Sprintf("offset %d: %s", e.Offset, e.Message) }

// FromJSON makes a value of JSON, the way Python's json.loads does: members keep their order, of members with the same name
// the last one counts, at the place of the first, integers are of any size, and numbers too large for a float are infinite.
// NaN and Infinity, which Python accepts, are errors. Lone surrogates, which Python keeps, and for which engines then fail,
// become U+FFFD. The error is a *DataError.
//
// Texts without escapes are not copied: the value refers to data, which must not change afterwards.
func FromJSON(data []byte) (Value, error) { return new(Decoder).Decode(data) }

// Decoder makes values of JSON as FromJSON does, in memory that it uses again. It is not for concurrent use.
type Decoder struct {
	texts []byte // of strings with escapes
}

// keepTexts is the size in bytes above which a Decoder does not keep its memory for what comes after a Reset.
const keepTexts = 8 << 20

// Reset gives up all values that the Decoder has made so far: they must not be used any more, nor what was made of them.
func (c *Decoder) Reset() {
	c.texts = c.texts[:0]
	if cap(c.texts) > keepTexts {
		c.texts = nil
	}
}

// Decode is FromJSON. The value is good until Reset.
func (c *Decoder) Decode(data []byte) (Value, error) {
	d := decoder{s: unsafe.String(unsafe.SliceData(data), len(data)), texts: c.texts} //nolint:gosec // data does not change, see above
	defer func() { c.texts = d.texts }()
	if !utf8.ValidString(d.s) {
		return Value{}, d.fail(invalidOffset(d.s), "found bytes that are no UTF-8")
	}
	v, err := d.value(0)
	if err != nil {
		return Value{}, err
	}
	if d.space(); d.pos < len(d.s) {
		return Value{}, d.fail(d.pos, "found more behind the value")
	}
	return v, nil
}

func invalidOffset(s string) int {
	for i, c := range s {
		if c == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD") {
			return i
		}
	}
	return len(s)
}

// decoder reads JSON. Elements and members are collected on stacks until their number is known, and then cut off slabs, so
// that a conversation takes a few allocations instead of several per message.
type decoder struct {
	s       string
	pos     int
	items   []Value
	members []entry
	values  []Value
	entries []entry
	arrays  []array
	dicts   []Dict
	texts   []byte // of strings with escapes, which are never longer than their source
}

const slab = 64

func (d *decoder) fail(pos int, message string) error {
	return &DataError{Offset: pos, Message: message}
}

func (d *decoder) unexpected(expected string) error {
	if d.pos >= len(d.s) {
		return d.fail(d.pos, "found the end, expected "+expected)
	}
	c, _ := utf8.DecodeRuneInString(d.s[d.pos:])
	return d.fail(d.pos, fmt.Sprintf("found %q, expected %s", c, expected))
}

func (d *decoder) space() {
	for d.pos < len(d.s) {
		switch d.s[d.pos] {
		case ' ', '\t', '\n', '\r':
			d.pos++
		default:
			return
		}
	}
}

// peek is the next byte behind white space, or 0.
func (d *decoder) peek() byte {
	d.space()
	if d.pos < len(d.s) {
		return d.s[d.pos]
	}
	return 0
}

func (d *decoder) value(depth int) (Value, error) {
	if depth > maxJSONDepth {
		return Value{}, d.fail(d.pos, fmt.Sprintf("found more than %d levels", maxJSONDepth))
	}
	switch c := d.peek(); c {
	case '{':
		return d.object(depth)
	case '[':
		return d.array(depth)
	case '"':
		s, err := d.text()
		return String(s), err
	case 't':
		return d.word("true", Bool(true))
	case 'f':
		return d.word("false", Bool(false))
	case 'n':
		return d.word("null", None())
	default:
		if c == '-' || isDecimal(c) {
			return d.number()
		}
		return Value{}, d.unexpected("a value")
	}
}

func (d *decoder) word(word string, v Value) (Value, error) {
	if !strings.HasPrefix(d.s[d.pos:], word) {
		return Value{}, d.unexpected("a value")
	}
	d.pos += len(word)
	return v, nil
}

func (d *decoder) array(depth int) (Value, error) {
	base := len(d.items)
	d.pos++
	if d.peek() == ']' {
		d.pos++
		return List(nil), nil
	}
	for {
		v, err := d.value(depth + 1)
		if err != nil {
			return Value{}, err
		}
		d.items = append(d.items, v)
		switch d.peek() {
		case ',':
			d.pos++
			continue
		case ']':
			d.pos++
		default:
			return Value{}, d.unexpected(`"," or "]"`)
		}
		break
	}
	items := cutSlab(&d.values, d.items[base:])
	clear(d.items[base:])
	d.items = d.items[:base]
	if len(d.arrays) == 0 {
		d.arrays = make([]array, slab)
	}
	a := &d.arrays[0]
	d.arrays = d.arrays[1:]
	a.items = items
	return objectOf(KindList, a), nil
}

// cutSlab copies items into a part of the slab.
func cutSlab[T any](from *[]T, items []T) []T {
	n := len(items)
	if n > slab/2 {
		return append(make([]T, 0, n), items...)
	}
	if len(*from) < n {
		*from = make([]T, 2*slab)
	}
	out := (*from)[:n:n]
	*from = (*from)[n:]
	copy(out, items)
	return out
}

func (d *decoder) object(depth int) (Value, error) {
	base := len(d.members)
	d.pos++
	if d.peek() == '}' {
		d.pos++
		return DictOf(&Dict{}), nil
	}
	for {
		if d.peek() != '"' {
			return Value{}, d.unexpected("the name of a member")
		}
		key, err := d.text()
		if err != nil {
			return Value{}, err
		}
		if d.peek() != ':' {
			return Value{}, d.unexpected(`":"`)
		}
		d.pos++
		v, err := d.value(depth + 1)
		if err != nil {
			return Value{}, err
		}
		d.members = append(d.members, entry{String(key), v})
		switch d.peek() {
		case ',':
			d.pos++
			continue
		case '}':
			d.pos++
		default:
			return Value{}, d.unexpected(`"," or "}"`)
		}
		break
	}
	v := d.mapping(d.members[base:])
	clear(d.members[base:])
	d.members = d.members[:base]
	return v, nil
}

func (d *decoder) mapping(members []entry) Value {
	if len(d.dicts) == 0 {
		d.dicts = make([]Dict, slab/2)
	}
	dict := &d.dicts[0]
	d.dicts = d.dicts[1:]
	if len(members) <= fewKeys && distinct(members) {
		dict.entries = cutSlab(&d.entries, members)
		return DictOf(dict)
	}
	dict.entries = make([]entry, 0, len(members))
	for _, m := range members {
		dict.set(m.key, m.value)
	}
	return DictOf(dict)
}

func distinct(members []entry) bool {
	for i := range members {
		for j := range i {
			if members[i].key.n == members[j].key.n && members[i].key.str() == members[j].key.str() {
				return false
			}
		}
	}
	return true
}

// text reads a string.
func (d *decoder) text() (string, error) {
	start := d.pos + 1
	end := plainEnd(d.s, start)
	if end < len(d.s) && d.s[end] == '"' {
		d.pos = end + 1
		return d.s[start:end], nil
	}
	if left := len(d.s) - d.pos; cap(d.texts)-len(d.texts) < left {
		d.texts = make([]byte, 0, left) // strings that were made go on referring to the old one
	}
	mark, out := len(d.texts), d.texts
	for {
		out = append(out, d.s[start:end]...)
		switch {
		case end >= len(d.s):
			return "", d.fail(d.pos, "found a string without end")
		case d.s[end] == '"':
			d.pos, d.texts = end+1, out
			return unsafe.String(unsafe.SliceData(out[mark:]), len(out)-mark), nil //nolint:gosec // never written again
		case d.s[end] != '\\':
			return "", d.fail(end, "found a control character, expected an escape")
		}
		var ok bool
		if out, start, ok = d.escape(out, end); !ok {
			return "", d.fail(end, "found a broken escape")
		}
		end = plainEnd(d.s, start)
	}
}

// plainEnd is where the characters end that stand for themselves: at a quotation mark, a backslash, a control character, or
// the end. It looks at eight bytes at a time: the high bit of each byte of the tests below tells whether it is one of them,
// at least up to the first that is.
func plainEnd(s string, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(s); i += 8 {
		w := eightBytes(s[i : i+8])
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		if ((quote-ones)&^quote|(slash-ones)&^slash|(w-ones*' ')&^w)&highs != 0 {
			break
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c == '"' || c == '\\' || c < ' ' {
			return i
		}
	}
	return len(s)
}

// eightBytes reads the bytes of s, the first one lowest. The compiler makes one load of it.
func eightBytes(s string) uint64 {
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// escape appends what the escape at i stands for, and returns where it ends.
func (d *decoder) escape(out []byte, i int) ([]byte, int, bool) {
	if i+1 >= len(d.s) {
		return out, i, false
	}
	const letters, meanings = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if n := strings.IndexByte(letters, d.s[i+1]); n >= 0 {
		return append(out, meanings[n]), i + 2, true
	}
	if d.s[i+1] != 'u' {
		return out, i, false
	}
	c, ok := hex4(d.s, i+2)
	if !ok {
		return out, i, false
	}
	i += 6
	if utf16.IsSurrogate(c) && strings.HasPrefix(d.s[i:], `\u`) {
		if low, ok := hex4(d.s, i+2); ok {
			if pair := utf16.DecodeRune(c, low); pair != utf8.RuneError {
				return utf8.AppendRune(out, pair), i + 6, true
			}
		}
	}
	return utf8.AppendRune(out, c), i, true // U+FFFD for a lone surrogate
}

func hex4(s string, i int) (rune, bool) {
	if i+4 > len(s) {
		return 0, false
	}
	var n rune
	for _, c := range []byte(s[i : i+4]) {
		switch {
		case isDecimal(c):
			n = n<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			n = n<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return n, true
}

func (d *decoder) number() (Value, error) {
	start := d.pos
	i := start
	if d.s[i] == '-' {
		i++
	}
	digits := func() bool {
		from := i
		for i < len(d.s) && isDecimal(d.s[i]) {
			i++
		}
		return i > from
	}
	zero := i < len(d.s) && d.s[i] == '0'
	first := i
	if !digits() || zero && i > first+1 {
		d.pos = first
		return Value{}, d.unexpected("a number without zeros in front")
	}
	float := false
	if i < len(d.s) && d.s[i] == '.' {
		float = true
		if i++; !digits() {
			d.pos = i
			return Value{}, d.unexpected("a digit")
		}
	}
	if i < len(d.s) && d.s[i]|0x20 == 'e' {
		float = true
		if i++; i < len(d.s) && (d.s[i] == '+' || d.s[i] == '-') {
			i++
		}
		if !digits() {
			d.pos = i
			return Value{}, d.unexpected("a digit")
		}
	}
	text := d.s[start:i]
	d.pos = i
	if float {
		f, _ := strconv.ParseFloat(text, 64) // out of range is infinite
		return Float(f), nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return Int(n), nil
	}
	if len(text) > maxDigits {
		return Value{}, d.fail(start, fmt.Sprintf("found an integer of more than %d digits", maxDigits))
	}
	n, _ := new(big.Int).SetString(text, 10)
	return bigInt(n), nil
}
