package tokenizer

// splitGPT2 is the pattern of GPT-2 and of ByteLevel with use_regex:
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func splitGPT2(t *unicodeTables, text []byte) int {
	if n := contraction(text); n > 0 && isLower(text[1:n]) {
		return n
	}
	i := 0
	if text[0] == ' ' && len(text) > 1 {
		i = 1
	}
	k, n := t.class(text[i:])
	switch {
	case k&letter != 0:
		return t.run(text, i+n, letter)
	case k&number != 0:
		return t.run(text, i+n, number)
	case k&space == 0:
		return t.runNot(text, i+n, space|letter|number)
	default:
		return t.spacesGPT2(text)
	}
}

func isLower(text []byte) bool {
	for _, c := range text {
		if c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}

// splitCL100K is the pattern of cl100k, Llama 3 and Qwen, which differ in how many digits stay together and in whether marks
// count as letters:
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func splitCL100K(digits int, letters class) splitter {
	return func(t *unicodeTables, text []byte) int {
		k, n := t.class(text)
		if k&letters != 0 {
			return t.run(text, n, letters)
		}
		if text[0] == '\'' {
			if n := contraction(text); n > 0 {
				return n
			}
		}
		if k&number != 0 {
			return t.digits(text, digits)
		}
		if k&newline == 0 && n < len(text) {
			if k, m := t.class(text[n:]); k&letters != 0 {
				return t.run(text, n+m, letters)
			}
		}
		if n := t.symbols(text, space|letters|number, false); n > 0 {
			return n
		}
		return t.spaces(text)
	}
}

// splitO200K is the pattern of o200k (gpt-oss, Llama 4) and, with one digit and no contractions, of Tekken. With
// U for [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], V for [\p{Ll}\p{Lm}\p{Lo}\p{M}] and C for (?i:'s|'t|'re|'ve|'m|'ll|'d)? it is
//
//	[^\r\n\p{L}\p{N}]?U*V+C|[^\r\n\p{L}\p{N}]?U+V*C|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
func splitO200K(digits int, contractions bool) splitter {
	return func(t *unicodeTables, text []byte) int {
		k, n := t.class(text)
		lead := 0
		if k&(newline|letter|number) == 0 {
			lead = n
		}
		if end := t.cased(text, lead); end > 0 {
			if contractions {
				end += contraction(text[end:])
			}
			return end
		}
		if k&number != 0 {
			return t.digits(text, digits)
		}
		if n := t.symbols(text, space|letter|number, true); n > 0 {
			return n
		}
		return t.spaces(text)
	}
}

// cased matches the first two alternatives of splitO200K without C, in the order in which they would be tried: each with the
// leading character of that length if there is one, then without.
func (t *unicodeTables) cased(text []byte, lead int) int {
	if end := t.capitalsThenSmall(text, lead); end > 0 {
		return end
	}
	if lead > 0 {
		if end := t.capitalsThenSmall(text, 0); end > 0 {
			return end
		}
	}
	if end := t.run(text, lead, upper|caseless|mark); end > lead {
		return end // no V stands behind, or the first alternative would have matched
	}
	return t.run(text, 0, upper|caseless|mark)
}

// capitalsThenSmall matches U*V+ from i on and returns its end or 0. If no V follows the run of U, the run gives back what
// stands behind its last character that is a V, too.
func (t *unicodeTables) capitalsThenSmall(text []byte, i int) int {
	both := 0
	for i < len(text) {
		k, n := t.class(text[i:])
		if k&(upper|caseless|mark) == 0 {
			break
		}
		i += n
		if k&(caseless|mark) != 0 {
			both = i
		}
	}
	if end := t.run(text, i, lower|caseless|mark); end > i {
		return end
	}
	return both
}

// splitDigits cuts runs of at most most digits out: \p{N}{1,most}, and all of a run if most is 0.
func splitDigits(most int) splitter {
	return func(t *unicodeTables, text []byte) int {
		if n := t.digits(text, most); n > 0 {
			return n
		}
		return t.runNot(text, 0, number)
	}
}

// splitDigitsType is the Digits pre-tokenizer, whose idea of a digit is not that of the patterns.
func splitDigitsType(individual bool) splitter {
	return func(t *unicodeTables, text []byte) int {
		r, n := decode(text)
		first := t.traits[r] & digitChar
		if first != 0 && individual {
			return n
		}
		for n < len(text) {
			r, m := decode(text[n:])
			if t.traits[r]&digitChar != first {
				break
			}
			n += m
		}
		return n
	}
}

// splitKimi is splitO200K with runs of the script Han apart from other letters, and no slash behind symbols. With U, V and C as
// there, but without Han, it is
//
//	[\p{Han}]+|[^\r\n\p{L}\p{N}]?U*V+C|[^\r\n\p{L}\p{N}]?U+V*C|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func splitKimi(t *unicodeTables, text []byte) int {
	if n := t.han(text, 0); n > 0 {
		return n
	}
	k, n := t.class(text)
	lead := 0
	if k&(newline|letter|number) == 0 {
		lead = n
	}
	if end := t.cased(text[:t.notHan(text, lead, letter|mark)], lead); end > 0 {
		return end + contraction(text[end:])
	}
	if k&number != 0 {
		return t.digits(text, 3)
	}
	if n := t.symbols(text, space|letter|number, false); n > 0 {
		return n
	}
	return t.spaces(text)
}

// han returns the end of the run of the script Han that begins at i.
func (t *unicodeTables) han(text []byte, i int) int {
	for i < len(text) {
		r, n := decode(text[i:])
		if t.traits[r]&hanChar == 0 {
			break
		}
		i += n
	}
	return i
}

// notHan is run for the characters of set that are not Han.
func (t *unicodeTables) notHan(text []byte, i int, set class) int {
	for i < len(text) {
		r, n := decode(text[i:])
		if t.classes[r]&set == 0 || t.traits[r]&hanChar != 0 {
			break
		}
		i += n
	}
	return i
}
