package tokenizer

import (
	"encoding/json"
	"fmt"
)

// parseNormalizer appends the steps of a normalizer.
func (t *Tokenizer) parseNormalizer(at string, part json.RawMessage) error {
	if isNull(part) {
		return nil
	}
	var e struct {
		Type    string            `json:"type"`
		Parts   []json.RawMessage `json:"normalizers"`
		Prepend string            `json:"prepend"`
		Pattern pattern           `json:"pattern"`
		Content string            `json:"content"`
		Left    bool              `json:"strip_left"`
		Right   bool              `json:"strip_right"`
	}
	if err := read(at, part, &e); err != nil {
		return err
	}
	switch e.Type {
	case "Sequence":
		for i, p := range e.Parts {
			if err := t.parseNormalizer(fmt.Sprintf("%s.normalizers[%d]", at, i), p); err != nil {
				return err
			}
		}
		return nil
	case "NFC", "NFD", "NFKC", "NFKD":
		t.normalizer = append(t.normalizer, normalForm{compatible: len(e.Type) == 4, compose: e.Type[len(e.Type)-1] == 'C'})
	case "Lowercase":
		t.normalizer = append(t.normalizer, lowercase{})
	case "Prepend":
		t.normalizer = append(t.normalizer, prepend{[]byte(e.Prepend)})
	case "Strip":
		t.normalizer = append(t.normalizer, strip{e.Left, e.Right})
	case "Replace":
		if e.Pattern.String == nil || *e.Pattern.String == "" {
			return fmt.Errorf("%s.pattern: a Replace by regular expression is not supported (%s), expected a plain text", at, part)
		}
		t.normalizer = append(t.normalizer, replace{[]byte(*e.Pattern.String), []byte(e.Content)})
	default:
		return fmt.Errorf("%s: type %q is not supported, expected NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip or "+
			"Sequence", at, e.Type)
	}
	return nil
}

// checkGrowth refuses chains of replacements that would make something huge of a short text.
func (t *Tokenizer) checkGrowth() error {
	grows := 1
	for _, n := range t.normalizer {
		switch n := n.(type) {
		case prepend:
			grows *= 1 + len(n.prefix)
		case replace:
			grows *= max(1, (len(n.to)+len(n.from)-1)/len(n.from))
		}
		if grows > maxGrowth {
			return fmt.Errorf("normalizer: a text may become %d times as long, expected at most %d", grows, maxGrowth)
		}
	}
	return nil
}

// parseDecoder sets how ids become text. Without a decoder the pre-tokenizer decides.
func (t *Tokenizer) parseDecoder(at string, part json.RawMessage, byteLevel bool) error {
	if isNull(part) {
		t.decoding.byteLevel = byteLevel
		return nil
	}
	var e struct {
		Type        string            `json:"type"`
		Parts       []json.RawMessage `json:"decoders"`
		Pattern     pattern           `json:"pattern"`
		Content     string            `json:"content"`
		Start       int               `json:"start"`
		Stop        int               `json:"stop"`
		Replacement string            `json:"replacement"`
		Scheme      string            `json:"prepend_scheme"`
		AddPrefix   *bool             `json:"add_prefix_space"`
	}
	if err := read(at, part, &e); err != nil {
		return err
	}
	d := &t.decoding
	switch {
	case e.Type == "Sequence":
		for i, p := range e.Parts {
			if err := t.parseDecoder(fmt.Sprintf("%s.decoders[%d]", at, i), p, byteLevel); err != nil {
				return err
			}
		}
	case e.Type == "ByteLevel":
		d.byteLevel = true
	case e.Type == "ByteFallback":
		d.byteFallback = true
	case e.Type == "Fuse":
	case e.Type == "Metaspace":
		d.space = e.Replacement
		d.trimAll = e.Scheme != "never" && (e.AddPrefix == nil || *e.AddPrefix)
	case e.Type == "Replace" && e.Pattern.String != nil && e.Content == " ":
		d.space = *e.Pattern.String
	case e.Type == "Strip" && e.Content == " " && e.Stop == 0 && e.Start <= 1:
		d.trimSpace = e.Start == 1
	default:
		return fmt.Errorf("%s: %s is not supported, expected ByteLevel, ByteFallback, Fuse, Metaspace, a Replace of a text by a "+
			"blank, a Strip of one blank at the start, or a Sequence", at, part)
	}
	return nil
}
