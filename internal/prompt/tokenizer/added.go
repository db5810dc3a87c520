package tokenizer

import (
	"bytes"
	"cmp"
	"slices"
)

// addedToken is a token that is cut out of the text before words are looked for.
type addedToken struct {
	content string
	id      uint32
	// singleWord: only where no word character touches it. left, right: it swallows the white space on that side.
	singleWord, left, right bool
	// inner tells that a longer token holds this one before its last byte, so that what follows decides which of them is found.
	inner bool
}

// matcher finds added tokens in one pass over a text. It is a trie walked from every byte with which a token begins; what a
// walk may cost is bounded by the longest token. At equal beginnings the longest token wins, as upstream.
type matcher struct {
	tokens []addedToken
	nodes  []trieNode
	// first leads from the first byte of a token to its node, 0 for none.
	first [256]int32
	// only is the first byte of all tokens if they share it (most often '<'), so that the search is bytes.IndexByte.
	only    byte
	hasOnly bool
	// anySingle tells that what touches a token can matter to another one.
	anySingle bool
}

// trieNode has its edges sorted by byte.
type trieNode struct {
	edges []trieEdge
	token int32 // index of the token that ends here, or -1
}

type trieEdge struct {
	b  byte
	to int32
}

// newMatcher expects tokens with distinct, non-empty contents.
func newMatcher(tokens []addedToken) *matcher {
	m := &matcher{tokens: tokens, nodes: []trieNode{{token: -1}}}
	for i, t := range tokens {
		m.insert(t.content, int32(i))
		m.anySingle = m.anySingle || t.singleWord
	}
	for _, e := range m.nodes[0].edges {
		m.first[e.b] = e.to
	}
	for i := range tokens {
		m.markInner(int32(i))
	}
	if len(m.nodes[0].edges) == 1 {
		m.only, m.hasOnly = m.nodes[0].edges[0].b, true
	}
	return m
}

func (m *matcher) insert(content string, token int32) {
	at := int32(0)
	for _, b := range []byte(content) {
		i, found := slices.BinarySearchFunc(m.nodes[at].edges, b, func(e trieEdge, b byte) int { return cmp.Compare(e.b, b) })
		if !found {
			m.nodes = append(m.nodes, trieNode{token: -1})
			m.nodes[at].edges = slices.Insert(m.nodes[at].edges, i, trieEdge{b, int32(len(m.nodes) - 1)})
		}
		at = m.nodes[at].edges[i].to
	}
	m.nodes[at].token = token
}

// markInner marks all tokens that end within the given one.
func (m *matcher) markInner(token int32) {
	content := m.tokens[token].content
	for from := range len(content) {
		at := m.first[content[from]]
		for i := from + 1; at > 0; i++ {
			if i == len(content) {
				break
			}
			if t := m.nodes[at].token; t >= 0 {
				m.tokens[t].inner = true
			}
			at = m.nodes[at].step(content[i])
		}
	}
}

// scan is how far a search through a text has come.
type scan struct {
	at   int // where the next match may begin
	done int // end of the last token with the white space it swallowed; the caller sets it
}

// next returns the next token in text with the white space that it swallows.
func (m *matcher) next(t *unicodeTables, text []byte, s *scan) (start, end int, token *addedToken) {
	for {
		start, end, found := m.match(text, s.at)
		if found < 0 {
			s.at = len(text)
			return 0, 0, nil
		}
		s.at = end
		a := &m.tokens[found]
		if a.singleWord && (t.endsWithWord(text[:start]) || t.beginsWithWord(text[end:])) {
			continue // its text is not looked at again, as upstream
		}
		if a.left {
			start = max(t.spacesBefore(text[:start]), s.done)
		}
		if a.right {
			end = t.run(text, end, space)
		}
		return start, end, a
	}
}

// match returns the leftmost longest token at or behind from; token is -1 if there is none.
func (m *matcher) match(text []byte, from int) (start, end int, token int32) {
	if len(m.tokens) == 0 {
		return 0, 0, -1
	}
	for i := from; i < len(text); i++ {
		if m.hasOnly {
			n := bytes.IndexByte(text[i:], m.only)
			if n < 0 {
				break
			}
			i += n
		}
		at, best := m.first[text[i]], int32(-1)
		if at == 0 {
			continue
		}
		for j := i + 1; ; j++ {
			if n := &m.nodes[at]; n.token >= 0 {
				best, end = n.token, j
			}
			if j == len(text) {
				break
			}
			if at = m.nodes[at].step(text[j]); at < 0 {
				break
			}
		}
		if best >= 0 {
			return i, end, best
		}
	}
	return 0, 0, -1
}

// step returns the node behind the edge b, or -1.
func (n *trieNode) step(b byte) int32 {
	for _, e := range n.edges {
		if e.b >= b {
			if e.b == b {
				return e.to
			}
			break
		}
	}
	return -1
}

// cuts tells whether what stands on either side of a found token can be tokenized without it, whatever follows. It cannot if
// what follows decides whether the token is found and where it ends; nor if a token beside it asks whether a word touches it
// and this one looks like a part of a word.
func (m *matcher) cuts(t *unicodeTables, a *addedToken, found []byte) bool {
	if a.singleWord || a.right || a.inner {
		return false
	}
	return !m.anySingle || !t.beginsWithWord(found) && !t.endsWithWord(found)
}

func (t *unicodeTables) beginsWithWord(text []byte) bool {
	if len(text) == 0 {
		return false
	}
	r, _ := decode(text)
	return t.traits[r]&wordChar != 0
}

func (t *unicodeTables) endsWithWord(text []byte) bool {
	if len(text) == 0 {
		return false
	}
	r, _ := decodeLast(text)
	return t.traits[r]&wordChar != 0
}

// spacesBefore returns where the white space at the end of text begins.
func (t *unicodeTables) spacesBefore(text []byte) int {
	for len(text) > 0 {
		r, n := decodeLast(text)
		if t.classes[r]&space == 0 {
			break
		}
		text = text[:len(text)-n]
	}
	return len(text)
}
