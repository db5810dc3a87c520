package prompt

import (
	"slices"

	"attache/internal/block"
	"attache/internal/openai"
)

// assumedMediaTokens is what an image counts as load where nobody says how many tokens it becomes: about what common models
// make of a small one.
const assumedMediaTokens = 256

// withMedia makes the chain of a prompt with images, sounds or videos. The template leaves one token for each; engines put
// as many there as the picture needs. Here each becomes a run of the length that is configured, or assumed, that begins
// with the hash of the medium: so equal texts with other pictures differ from the picture on, and what comes before it is
// exact.
func (k *Keyer) withMedia(e *exact, dst *Chain, q *Query, s *scratch) *UnknownError {
	gaveUp := e.model.tokenizer.GaveUp()
	s.ids = e.model.Tokens(s.ids[:0], &s.rendered)
	if e.model.tokenizer.GaveUp() != gaveUp {
		return errGaveUp
	}
	parts := mediaParts(q.Scan)
	run := k.model.MediaTokens
	if run == 0 {
		run = assumedMediaTokens
	}
	all, first := s.all[:0], -1
	for _, id := range s.ids {
		if !slices.Contains(e.model.media, id) {
			all = append(all, id)
			continue
		}
		if len(parts) == 0 {
			return &UnknownError{Why: MediaParts}
		}
		if first < 0 {
			first = len(all)
		}
		hash := block.Local(parts[0].Span.In(q.Body), 0)
		parts = parts[1:]
		all = append(all, uint32(hash), uint32(hash>>32))
		for range run - 2 {
			all = append(all, id)
		}
	}
	s.all = all
	if first < 0 || len(parts) > 0 {
		return &UnknownError{Why: MediaParts} // the template shows other places than there are media
	}
	dst.Hashes = block.AppendBlocks(dst.Hashes[:0], all, k.cfg.BlockTokens, q.Seed)
	dst.Tokens, dst.Own, dst.Why = len(all), min(first/k.cfg.BlockTokens, len(dst.Hashes)), MediaParts
	if k.model.MediaTokens > 0 {
		dst.Count, dst.Ours = len(all), true
	}
	return nil
}

// mediaParts are the media of a request, in order.
func mediaParts(req *openai.Request) (parts []openai.Part) {
	for _, p := range req.Parts {
		if p.Kind == openai.Media {
			parts = append(parts, p)
		}
	}
	return parts
}
