package admin

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml"
)

// Redacted stands in place of every secret.
const Redacted = "(redacted)"

// maxConfig bounds what is parsed for showing.
const maxConfig = 4 << 20

// Redact blanks every value of a YAML document that stands under a key named like a secret, and passwords inside URLs.
// Comments are lost. It errs on the side of blanking; a document that cannot be parsed is not shown at all.
//
// It is the second line of defence: the first is whoever renders the configuration and knows which fields are secret.
func Redact(document string) (string, error) {
	if len(document) > maxConfig {
		return "", fmt.Errorf("configuration is %d bytes long: must be at most %d to be shown", len(document), maxConfig)
	}
	if strings.TrimSpace(document) == "" {
		return "", nil
	}
	var tree any
	if err := yaml.UnmarshalWithOptions([]byte(document), &tree, yaml.UseOrderedMap()); err != nil {
		// The parser's own message quotes the document.
		return "", errors.New("configuration is not shown: it could not be parsed as YAML, so its secrets could not be found")
	}
	out, err := yaml.Marshal(redact(tree))
	if err != nil {
		return "", errors.New("configuration is not shown: it could not be written as YAML again")
	}
	return string(out), nil
}

func redact(node any) any {
	switch n := node.(type) {
	case yaml.MapSlice:
		for i := range n {
			if kind := secretKey(fmt.Sprint(n[i].Key)); kind == secret || kind == countable && !counts(n[i].Value) {
				n[i].Value = blanked(n[i].Value)
			} else {
				n[i].Value = redact(n[i].Value)
			}
		}
	case []any:
		for i := range n {
			n[i] = redact(n[i])
		}
	case string:
		return redactURL(n)
	}
	return node
}

// blanked replaces every scalar below node; what is unset stays unset, so that one sees whether a secret is configured.
func blanked(node any) any {
	switch n := node.(type) {
	case yaml.MapSlice:
		for i := range n {
			n[i].Value = blanked(n[i].Value)
		}
		return n
	case []any:
		for i := range n {
			n[i] = blanked(n[i])
		}
		return n
	case nil:
		return nil
	case string:
		if n == "" {
			return n
		}
	}
	return Redacted
}

func counts(v any) bool {
	switch v.(type) {
	case int, int64, uint64, float64, bool:
		return true
	}
	return false
}

type keyKind int

const (
	plain     keyKind = iota
	countable         // "max_tokens", "bytes_per_token": a secret unless its value is a number, or true or false
	secret
)

// secretKey tells by the last word of a key: api_key and apiKey are secrets, key_file and block_tokens are not.
func secretKey(key string) keyKind {
	words := keyWords(key)
	if len(words) == 0 {
		return plain
	}
	switch words[len(words)-1] {
	case "key", "keys", "apikey", "apikeys", "secret", "secrets", "password", "passwords", "passwd", "pwd", "pass", "passphrase",
		"credential", "credentials", "authorization", "bearer", "cookie":
		return secret
	case "tokens":
		return countable
	case "token":
		if len(words) > 1 && words[len(words)-2] == "per" {
			return countable
		}
		return secret
	}
	return plain
}

// keyWords splits snake_case, kebab-case, dotted and camelCase keys into lower-case words.
func keyWords(key string) []string {
	var b strings.Builder
	previous := rune(0)
	for _, r := range key {
		if unicode.IsUpper(r) && unicode.IsLower(previous) {
			b.WriteByte(' ')
		}
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			r = ' '
		}
		b.WriteRune(unicode.ToLower(r))
		previous = r
	}
	return strings.Fields(b.String())
}

// userinfo is the password part of scheme://user:password@host.
var userinfo = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://[^\s/@:]*):[^\s/]*@`)

func redactURL(s string) string { return userinfo.ReplaceAllString(s, "${1}:"+Redacted+"@") }
