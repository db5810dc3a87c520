package tokenizer

import "fmt"

// unigram takes a word apart into the tokens whose scores have the highest sum (Viterbi's algorithm).
type unigram struct {
	vocab  vocabulary
	trie   byteTrie
	scores []float64 // by id
	// fallback: an unknown piece becomes its bytes if each has a token, and byteIDs are those tokens.
	fallback bool
	byteIDs  byteIDs
	unknown  uint32 // none if the vocabulary has none; what is unknown is then left out
	unkScore float64
}

// unknownPenalty is by how much an unknown character is worse than the worst token.
const unknownPenalty = 10

// path is the best way to the end of a token: the score of all tokens up to there and where the last one begins.
type path struct {
	score float64
	start int32 // -1 where no token ends
	id    uint32
}

// pathBuffer holds a path for every byte of a word and one more.
type pathBuffer struct {
	paths []path
	cuts  []int32 // ends of the tokens of the best path, last one first
}

func (b *pathBuffer) trim() {
	if cap(b.paths) > keepWork {
		*b = pathBuffer{}
	}
}

// append appends the ids of one word. Sums are made in the order in which upstream makes them, as floating point sums depend
// on it; of equal ones the first is kept.
func (u *unigram) append(dst []uint32, word []byte, s *scratch) []uint32 {
	b := &s.paths
	b.paths = append(b.paths[:0], path{})
	for range word {
		b.paths = append(b.paths, path{start: -1})
	}
	for i := 0; i < len(word); {
		_, n := decode(word[i:])
		if !u.extend(b.paths, word, i, n) {
			b.offer(i, i+n, u.unkScore, u.unknown)
		}
		i += n
	}
	b.cuts = b.cuts[:0]
	for end := int32(len(word)); end > 0; end = b.paths[end].start {
		b.cuts = append(b.cuts, end)
	}
	return u.appendCuts(dst, word, b)
}

// extend offers all tokens that begin at i and tells whether the character of n bytes there is one itself.
func (u *unigram) extend(paths []path, word []byte, i, n int) (single bool) {
	b := pathBuffer{paths: paths}
	node := uint32(0)
	for j := i; j < len(word); j++ {
		var ok bool
		if node, ok = u.trie.step(node, word[j]); !ok {
			break
		}
		if id := u.trie.tokens[node]; id != none {
			b.offer(i, j+1, u.scores[id], id)
			single = single || j+1 == i+n
		}
	}
	return single
}

// offer makes the path over a token the best one to its end if it is.
func (b *pathBuffer) offer(start, end int, score float64, id uint32) {
	score += b.paths[start].score
	if p := &b.paths[end]; p.start < 0 || score > p.score {
		*p = path{score, int32(start), id}
	}
}

// appendCuts appends the tokens of the best path. Neighbouring unknown characters count as one piece.
func (u *unigram) appendCuts(dst []uint32, word []byte, b *pathBuffer) []uint32 {
	start := int32(0)
	for k := len(b.cuts) - 1; k >= 0; {
		end := b.cuts[k]
		id := b.paths[end].id
		k--
		if id != u.unknown {
			dst, start = append(dst, id), end
			continue
		}
		for k >= 0 && b.paths[b.cuts[k]].id == u.unknown {
			end = b.cuts[k]
			k--
		}
		dst, start = u.appendUnknown(dst, word[start:end]), end
	}
	return dst
}

func (u *unigram) appendUnknown(dst []uint32, piece []byte) []uint32 {
	if id, ok := u.vocab.id(piece); ok {
		return append(dst, id) // the unknown token itself, spelled in the text
	}
	if u.fallback && u.byteIDs.cover(piece) {
		for _, c := range piece {
			dst = append(dst, u.byteIDs[c])
		}
		return dst
	}
	if u.unknown == none {
		return dst
	}
	return append(dst, u.unknown)
}

func (u *unigram) spelled(token string) (uint32, bool) { return u.vocab.id([]byte(token)) }

// byteTrie leads from the bytes of a text to the tokens that it begins with. All edges are in one table.
type byteTrie struct {
	edges  []uint64 // open addressing: node<<40 | byte<<32 | next node, 0 where empty, as nothing leads to the root
	tokens []uint32 // by node, none where no token ends
}

const maxNodes = 1 << 24

func newByteTrie(v *vocabulary) (byteTrie, error) {
	size := 0
	for id := range v.spans {
		if v.spans[id].length != absent {
			size += int(v.spans[id].length)
		}
	}
	if size >= maxNodes {
		return byteTrie{}, fmt.Errorf("model.vocab: %d bytes, expected less than %d", size, maxNodes)
	}
	t := byteTrie{edges: make([]uint64, tableSize(size)), tokens: []uint32{none}}
	for id := range v.spans {
		if v.spans[id].length == absent || v.spans[id].length == 0 {
			continue
		}
		node := uint32(0)
		for _, c := range v.text(uint32(id)) {
			slot, found := t.find(node, c)
			if !found {
				t.tokens = append(t.tokens, none)
				*slot = uint64(node)<<40 | uint64(c)<<32 | uint64(len(t.tokens)-1)
			}
			node = uint32(*slot)
		}
		t.tokens[node] = uint32(id)
	}
	return t, nil
}

func (t *byteTrie) step(node uint32, c byte) (uint32, bool) {
	slot, found := t.find(node, c)
	return uint32(*slot), found
}

func (t *byteTrie) find(node uint32, c byte) (slot *uint64, found bool) {
	key := uint64(node)<<8 | uint64(c)
	mask := uint64(len(t.edges) - 1)
	for i := key * 0x9E3779B97F4A7C15 >> 32 & mask; ; i = (i + 1) & mask {
		if t.edges[i] == 0 {
			return &t.edges[i], false
		}
		if t.edges[i]>>32 == key {
			return &t.edges[i], true
		}
	}
}
