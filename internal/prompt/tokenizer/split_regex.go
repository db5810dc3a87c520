package tokenizer

import (
	"slices"
	"time"

	"github.com/dlclark/regexp2"
)

// regexSplit splits at the matches of any regular expression. It is for patterns that have no splitter: it is some hundred times
// slower, and it knows the characters of Go's Unicode version.
type regexSplit struct {
	re       *regexp2.Regexp
	behavior string
	invert   bool
}

// matchTime bounds the time that one piece of text may take. What is left then stays one word, and the text counts as given up:
// its ids are wrong, but a pattern that some text drives into exponential time cannot hold up a gateway. It is much longer than
// any honest text needs, for on a machine without a free processor the clock jumps.
const matchTime = 3 * time.Second

// part is a piece between two borders.
type part struct {
	from, to int
	match    bool
}

// behaviors are the rules by which matches and what is between them become words.
var behaviors = []string{"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"}

// cut returns the words of text, and whether there was time to find them all.
func (s *regexSplit) cut(text []byte) ([]part, bool) {
	parts, inTime := s.matches(text)
	if s.invert {
		for i := range parts {
			parts[i].match = !parts[i].match
		}
	}
	switch s.behavior {
	case "Removed":
		parts = slices.DeleteFunc(parts, func(p part) bool { return p.match })
	case "MergedWithPrevious":
		parts = join(parts, func(p, before part) bool { return p.match && !before.match })
	case "MergedWithNext":
		// Of two matches in a row only the second stands right before what is none.
		parts = join(parts, func(p, before part) bool { return before.match && !p.match })
	case "Contiguous":
		parts = join(parts, func(p, before part) bool { return p.match == before.match })
	}
	return slices.DeleteFunc(parts, func(p part) bool { return p.from == p.to }), inTime
}

// join makes one part of each run in which a part belongs to the one before.
func join(parts []part, belongs func(p, before part) bool) []part {
	out := parts[:0]
	var before part
	for i, p := range parts {
		if i > 0 && belongs(p, before) {
			out[len(out)-1].to = p.to
		} else {
			out = append(out, p)
		}
		before = p
	}
	return out
}

// matches cuts text at the borders of all matches.
func (s *regexSplit) matches(text []byte) (parts []part, inTime bool) {
	runes := make([]rune, 0, len(text))
	starts := make([]int, 0, len(text)+1) // by rune
	for i := 0; i < len(text); {
		r, n := decode(text[i:])
		if r >= rawByte {
			r = '\uFFFD'
		}
		runes, starts = append(runes, r), append(starts, i)
		i += n
	}
	starts = append(starts, len(text))

	done, began := 0, time.Now()
	m, err := s.re.FindRunesMatch(runes)
	for err == nil && m != nil && time.Since(began) < matchTime {
		from, to := starts[m.Index], starts[m.Index+m.Length]
		if done < from {
			parts = append(parts, part{done, from, false})
		}
		parts = append(parts, part{from, to, true})
		done = to
		m, err = s.re.FindNextMatch(m)
	}
	if done < len(text) {
		parts = append(parts, part{done, len(text), false})
	}
	return parts, err == nil && m == nil
}
