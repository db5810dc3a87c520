package tokenizer

// stage is one step of the pre-tokenizer.
type stage struct {
	// rewrite changes a piece before it is split; nil if it stays as it is. A tokenizer has at most one such stage, as they
	// share a buffer.
	rewrite func(dst, text []byte, atStart bool) []byte
	// next splits a piece; nil if it stays whole.
	next splitter
	// regex splits in the place of next.
	regex *regexSplit
	// byteLevel marks the stage behind which upstream writes a text in the byte alphabet.
	byteLevel bool
	role      role
	// shortcut marks a stage that upstream does not have: it changes no ids.
	shortcut bool
}

// splitter returns the length of the first word of text, which is not empty. A word is what the pattern matches at its
// beginning or, if it matches nothing there, all that stands before the next match.
type splitter func(t *unicodeTables, text []byte) int

// spaces matches \s*[\r\n]+|\s+(?!\S)|\s+ at the beginning of text: up to the last line end among the white space, else all
// but the last character of it, which belongs to the word behind, else all. It returns 0 if text begins with something else.
func (t *unicodeTables) spaces(text []byte) int {
	end, last, line := t.spaceRun(text)
	switch {
	case line > 0:
		return line
	case end == len(text) || last == 0:
		return end
	default:
		return last
	}
}

// spacesGPT2 is spaces without the rule for line ends: \s+(?!\S)|\s+.
func (t *unicodeTables) spacesGPT2(text []byte) int {
	if end, last, _ := t.spaceRun(text); end < len(text) && last > 0 {
		return last
	} else {
		return end
	}
}

// spaceRun returns where the white space at the beginning of text ends, where its last character begins and where its last
// line end ends (0 for none).
func (t *unicodeTables) spaceRun(text []byte) (end, last, line int) {
	for end < len(text) {
		k, n := t.class(text[end:])
		if k&space == 0 {
			break
		}
		last = end
		end += n
		if k&newline != 0 {
			line = end
		}
	}
	return end, last, line
}

// symbols matches " ?[…]+[tail]*" with any characters of no class in not, and returns 0 for no match.
func (t *unicodeTables) symbols(text []byte, not class, slash bool) int {
	start := 0
	if text[0] == ' ' {
		start = 1
	}
	end := t.runNot(text, start, not)
	if end == start {
		return 0
	}
	return lineEnds(text, end, slash)
}

// lineEnds matches [\r\n]*, or [\r\n/]* with slash, from i on.
func lineEnds(text []byte, i int, slash bool) int {
	for i < len(text) && (text[i] == '\n' || text[i] == '\r' || slash && text[i] == '/') {
		i++
	}
	return i
}

// digits matches \p{N}{1,most} at the beginning of text; most 0 stands for no limit.
func (t *unicodeTables) digits(text []byte, most int) int {
	i := 0
	for k := 0; i < len(text) && (most == 0 || k < most); k++ {
		c, n := t.class(text[i:])
		if c&number == 0 {
			break
		}
		i += n
	}
	return i
}

// contraction matches (?i:'s|'t|'re|'ve|'m|'ll|'d) and returns its length or 0. Case folding knows a third s, U+017F.
func contraction(text []byte) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	switch text[1] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if len(text) > 2 && text[2]|0x20 == 'e' {
			return 3
		}
	case 'l':
		if len(text) > 2 && text[2]|0x20 == 'l' {
			return 3
		}
	}
	if len(text) > 2 && text[1] == 0xC5 && text[2] == 0xBF {
		return 3
	}
	return 0
}
