package tokenizer

// model turns a word into ids. It does not change and is safe for concurrent use.
type model interface {
	// append appends the ids of one word, which is not empty.
	append(dst []uint32, word []byte, s *scratch) []uint32
	// spelled returns the id of a token as the file spells it.
	spelled(token string) (uint32, bool)
}

// scratch is what a model works with while it looks at a word. It is kept from word to word.
type scratch struct {
	merge merger
	paths pathBuffer
}

// trim gives back what an uncommonly long word has grown.
func (s *scratch) trim() {
	s.merge.trim()
	s.paths.trim()
}
