package tokenizer

// splitCJK is DeepSeek's second pattern: [一-龥぀-ゟ゠-ヿ]+.
func splitCJK(_ *unicodeTables, text []byte) int {
	i := 0
	for i < len(text) && isCJK(text[i:]) {
		i += 3
	}
	if i > 0 {
		return i
	}
	for i < len(text) && (text[i] < 0xE3 || !isCJK(text[i:])) {
		i++
	}
	return i
}

// isCJK tells whether text begins with U+4E00 to U+9FA5 or U+3040 to U+30FF. These characters are three bytes long.
func isCJK(text []byte) bool {
	if len(text) < 3 || text[0] < 0xE3 || text[0] > 0xE9 {
		return false
	}
	r, _ := decode(text)
	return 0x4E00 <= r && r <= 0x9FA5 || 0x3040 <= r && r <= 0x30FF
}

// splitDeepSeek is DeepSeek's third pattern. A is the ASCII punctuation and symbols:
//
//	[A][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func splitDeepSeek(t *unicodeTables, text []byte) int {
	const letters = letter | mark
	k, n := t.class(text)
	switch {
	case k&letters != 0:
		return t.run(text, n, letters)
	case text[0] < 0x80 && k&symbol != 0 && len(text) > 1 && isASCIILetter(text[1]):
		for n < len(text) && isASCIILetter(text[n]) {
			n++
		}
		return n
	case k&(newline|symbol) == 0 && n < len(text):
		if k, m := t.class(text[n:]); k&letters != 0 {
			return t.run(text, n+m, letters)
		}
	}
	start := 0
	if text[0] == ' ' {
		start = 1
	}
	if end := t.run(text, start, symbol); end > start {
		return lineEnds(text, end, false)
	}
	if k&space != 0 {
		return t.spaces(text)
	}
	return t.unmatched(text, n)
}

// unmatched returns the end of the run of characters, going on at i, at none of which splitDeepSeek's pattern matches: such
// that are neither letter, mark, symbol nor white space and do not stand before a letter or mark.
func (t *unicodeTables) unmatched(text []byte, i int) int {
	for i < len(text) {
		k, n := t.class(text[i:])
		if k&(letter|mark|symbol|space) != 0 {
			return i
		}
		if i+n < len(text) {
			if k, _ := t.class(text[i+n:]); k&(letter|mark) != 0 {
				return i
			}
		}
		i += n
	}
	return i
}

func isASCIILetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
