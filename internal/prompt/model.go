package prompt

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"attache/internal/openai"
	"attache/internal/prompt/jinja"
	"attache/internal/prompt/tokenizer"
)

// Model is a model's chat template and tokenizer: what makes tokens of requests. It does not change and is safe for
// concurrent use.
type Model struct {
	tokenizer *tokenizer.Tokenizer
	plain     chatTemplate // of chats; its template is nil when there is none
	tools     chatTemplate // of chats with tools, where the model has a template of its own for them; else as plain
	special   *jinja.Dict  // the tokens that templates name, such as bos_token
	defaults  *jinja.Dict  // variables that requests may override
	media     []uint32     // the tokens that stand for images, sounds and videos
	// before and after are what the tokenizer puts around a text that is no chat.
	before, after []uint32
}

// chatTemplate is a template and what its text says of how it wants messages.
type chatTemplate struct {
	template       *jinja.Template
	parts          [2]bool // by Dialect: contents are lists of parts, not texts
	knowsDeveloper bool
}

// OpenModel reads a model's folder, see ModelConfig. Errors name the file.
func OpenModel(cfg ModelConfig) (*Model, error) {
	t, err := tokenizer.Open(cfg.ModelDir)
	if err != nil {
		return nil, err
	}
	m := &Model{tokenizer: t, special: jinja.NewDict(8)}
	m.around()
	if m.media, err = mediaTokens(cfg.ModelDir); err != nil {
		return nil, err
	}
	sources, err := m.configure(cfg.ModelDir)
	if err != nil {
		return nil, err
	}
	if cfg.ChatTemplate != "" {
		text, err := os.ReadFile(cfg.ChatTemplate)
		if err != nil {
			return nil, fmt.Errorf("chat_template: %w", err)
		}
		sources = map[string]string{templateDefault: string(text)}
	}
	if m.plain, err = parseTemplate(cfg, sources[templateDefault]); err != nil {
		return nil, err
	}
	m.tools = m.plain
	if source := sources["tool_use"]; source != "" {
		if m.tools, err = parseTemplate(cfg, source); err != nil {
			return nil, err
		}
	}
	if cfg.ChatTemplateKwargs != "" {
		kwargs, err := jinja.FromJSON([]byte(cfg.ChatTemplateKwargs))
		if err != nil {
			return nil, fmt.Errorf("chat_template_kwargs: %w", err)
		}
		m.defaults = kwargs.Dict()
	}
	return m, nil
}

// templateDefault is the name of the template that is used where no other is meant.
const templateDefault = "default"

func parseTemplate(cfg ModelConfig, source string) (chatTemplate, error) {
	if source == "" {
		return chatTemplate{}, nil // models without a chat template are usual
	}
	t, err := jinja.Parse(cmp.Or(cfg.ChatTemplate, filepath.Join(cfg.ModelDir, "chat template")), source)
	if err != nil {
		return chatTemplate{}, err
	}
	c := chatTemplate{template: t, knowsDeveloper: strings.Contains(source, "developer")}
	for d := range c.parts {
		c.parts[d] = cfg.ContentFormat == formatOpenAI || cfg.ContentFormat != formatString && wantsParts(t, source, Dialect(d))
	}
	return c, nil
}

// wantsParts tells how a template wants contents, the way the engines find out: a template that goes over the content of
// messages in a loop wants lists. SGLang takes every mention of media for a sign of it, too.
func wantsParts(t *jinja.Template, source string, d Dialect) bool {
	if d == SGLang {
		for _, word := range []string{"image", "audio", "video", "vision"} {
			if strings.Contains(source, word) {
				return true
			}
		}
	}
	return t.LoopsOver("messages", "content")
}

// around finds out what the tokenizer puts around a text.
func (m *Model) around() {
	probe := []byte("a")
	bare, whole := m.tokenizer.Append(nil, probe), m.tokenizer.AppendSpecial(nil, probe)
	for i := 0; i+len(bare) <= len(whole); i++ {
		if slices.Equal(whole[i:i+len(bare)], bare) {
			m.before, m.after = whole[:i], whole[i+len(bare):]
			return
		}
	}
}

// Budgets of one rendering: far more than any conversation needs that fits into a request, and little enough that a
// hostile one costs no more than a long one.
const (
	renderSteps  = 50_000_000
	renderOutput = 64 << 20
	renderTime   = 2 * time.Second
)

// Rendered is the text that an engine makes of a request before it cuts it into tokens.
type Rendered struct {
	Text []byte
	// Around says that the tokenizer puts its own tokens, such as a BOS, around the text.
	Around bool
	// Media is how many images, sounds and videos the text has places for.
	Media int

	decoder jinja.Decoder // memory that is used again
}

// reset empties r for another request; it keeps its memory.
func (r *Rendered) reset() { r.Text, r.Around, r.Media = r.Text[:0], false, 0 }

// Render appends the text of a request to r.Text: a chat as its template renders it, a completion's prompt as it is. An
// error is a *UnknownError.
func (m *Model) Render(r *Rendered, body []byte, req *openai.Request, d Dialect) error {
	switch {
	case req.Template.Truncated:
		return &UnknownError{Why: Truncation}
	case req.Kind == openai.Chat:
		r.Around = req.Template.SpecialTokens.Or(false)
		return m.chat(r, body, req, d)
	case req.Kind != openai.Completions:
		return &UnknownError{Why: OtherAPI}
	case len(req.Parts) == 0 || req.Parts[0].Kind != openai.Prompt:
		return &UnknownError{Why: NoPrompt}
	default:
		r.Around = req.Template.SpecialTokens.Or(true)
		r.Text = openai.AppendUnescaped(r.Text, body, req.Parts[0].Span)
		return nil
	}
}

// Tokens appends the tokens of a rendered text to dst. Media stand as one token each.
func (m *Model) Tokens(dst []uint32, r *Rendered) []uint32 {
	if r.Around {
		return m.tokenizer.AppendSpecial(dst, r.Text)
	}
	return m.tokenizer.Append(dst, r.Text)
}

// Tokenizer is the model's tokenizer.
func (m *Model) Tokenizer() *tokenizer.Tokenizer { return m.tokenizer }

// UnknownError says why the tokens of a request are not known.
type UnknownError struct {
	Why Reason
	Err error // more about it; nil for nothing
}

// Error tells the reason and, if there is more to tell, what happened.
func (u *UnknownError) Error() string {
	if u.Err == nil {
		return string(u.Why)
	}
	return string(u.Why) + ": " + u.Err.Error()
}

// asUnknown is an error of Render as what it is.
func asUnknown(err error) *UnknownError {
	if u := new(UnknownError); errors.As(err, &u) {
		return u
	}
	return &UnknownError{Why: Odd, Err: err}
}

// Unwrap is what happened.
func (u *UnknownError) Unwrap() error { return u.Err }

// configure reads the small files: the special tokens into m, and the templates by name.
func (m *Model) configure(dir string) (templates map[string]string, err error) {
	var config, special map[string]json.RawMessage
	if err := readJSON(filepath.Join(dir, "tokenizer_config.json"), &config); err != nil {
		return nil, err
	}
	if err := readJSON(filepath.Join(dir, "special_tokens_map.json"), &special); err != nil {
		return nil, err
	}
	for _, key := range []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"} {
		for _, from := range []map[string]json.RawMessage{config, special} {
			if token, ok := tokenText(from[key]); ok {
				m.special.Set(key, jinja.String(token))
				break
			}
		}
	}
	if templates, err = namedTemplates(config["chat_template"]); err != nil {
		return nil, fmt.Errorf("%s: chat_template: %w", filepath.Join(dir, "tokenizer_config.json"), err)
	}
	var older struct {
		Template string `json:"chat_template"`
	}
	if err := readJSON(filepath.Join(dir, "chat_template.json"), &older); err != nil {
		return nil, err
	}
	if older.Template != "" {
		templates[templateDefault] = older.Template
	}
	text, err := readFile(filepath.Join(dir, "chat_template.jinja"))
	if err != nil {
		return nil, err
	}
	if text != nil {
		templates[templateDefault] = string(text)
	}
	return templates, nil
}

// tokenText is the text of a special token: a string, or an object that has it.
func tokenText(raw json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, len(raw) > 0 && raw[0] == '"'
	}
	var object struct {
		Content *string `json:"content"`
	}
	if json.Unmarshal(raw, &object) == nil && object.Content != nil {
		return *object.Content, true
	}
	return "", false
}

// namedTemplates reads chat_template: one template, or a list of named ones.
func namedTemplates(raw json.RawMessage) (map[string]string, error) {
	templates := map[string]string{}
	if len(raw) == 0 || string(raw) == "null" {
		return templates, nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		templates[templateDefault] = one
		return templates, nil
	}
	var named []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if err := json.Unmarshal(raw, &named); err != nil {
		return nil, errors.New("must be a template, or a list of objects with name and template")
	}
	for _, n := range named {
		templates[n.Name] = n.Template
	}
	return templates, nil
}

// mediaTokens reads from config.json which tokens stand for media.
func mediaTokens(dir string) ([]uint32, error) {
	var config map[string]json.RawMessage
	if err := readJSON(filepath.Join(dir, "config.json"), &config); err != nil {
		return nil, err
	}
	var ids []uint32
	for _, kind := range []string{"image", "video", "audio"} {
		for _, suffix := range []string{"_token_id", "_token_index"} {
			var id uint32
			if raw := config[kind+suffix]; len(raw) > 0 && json.Unmarshal(raw, &id) == nil {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}

// readJSON reads a file that may be missing.
func readJSON(path string, into any) error {
	text, err := readFile(path)
	if err != nil || text == nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// maxSmallFile bounds the small files of a model, in bytes.
const maxSmallFile = 16 << 20

// readFile reads a file; nil when it is missing.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxSmallFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(text) > maxSmallFile {
		return nil, fmt.Errorf("%s: must be at most %d bytes", path, maxSmallFile)
	}
	return text, nil
}
