package tokenizer

// encode appends the ids of a whole text to w.dst.
func (w *workspace) encode(t *Tokenizer, text []byte) {
	var s scan
	for {
		start, end, token := t.raw.next(t.chars, text, &s)
		if token == nil {
			break
		}
		if s.done < start {
			w.between(t, text[s.done:start], s.done == 0)
		}
		w.dst = append(w.dst, token.id)
		s.done = end
	}
	w.between(t, text[s.done:], s.done == 0)
}

// between appends the ids of what stands between two added tokens: normalized, and cut at the added tokens that are looked for
// only now. atStart tells that the prompt begins with it.
func (w *workspace) between(t *Tokenizer, text []byte, atStart bool) {
	buffer := 0
	for _, n := range t.normalizer {
		if n.keeps(t.chars, text) {
			continue
		}
		w.norm[buffer] = n.append(w, t.chars, w.norm[buffer][:0], text)
		text, buffer = w.norm[buffer], 1-buffer
	}
	var s scan
	for {
		start, end, token := t.normalized.next(t.chars, text, &s)
		if token == nil {
			break
		}
		if s.done < start {
			w.piece(t, text[s.done:start], atStart && s.done == 0)
		}
		w.dst = append(w.dst, token.id)
		s.done = end
	}
	w.piece(t, text[s.done:], atStart && s.done == 0)
}

// split hands a piece from one stage of the pre-tokenizer to the next, and the words of the last one to the model. Each stage
// sees the words of the one before as texts of their own.
func (w *workspace) split(t *Tokenizer, stages []stage, text []byte, atStart bool) {
	if len(text) == 0 {
		return
	}
	if len(stages) == 0 {
		w.word(t.model, text)
		return
	}
	st, stages := stages[0], stages[1:]
	if st.rewrite != nil {
		w.cut = st.rewrite(w.cut[:0], text, atStart)
		text = w.cut
	}
	if st.regex != nil {
		parts, inTime := st.regex.cut(text)
		if !inTime {
			t.gaveUp.Add(1)
		}
		for _, p := range parts {
			w.split(t, stages, text[p.from:p.to], atStart && p.from == 0)
		}
		return
	}
	if st.next == nil {
		w.split(t, stages, text, atStart)
		return
	}
	for len(text) > 0 {
		n := st.next(t.chars, text)
		if len(stages) == 0 {
			w.word(t.model, text[:n])
		} else {
			w.split(t, stages, text[:n], atStart)
		}
		text, atStart = text[n:], false
	}
}
