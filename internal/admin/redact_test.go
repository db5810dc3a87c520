package admin

import (
	"fmt"
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", ""},
		{"only comments", "# nothing\n", "null\n"},
		{"plain stays", "listen: :9001\nmax_in_flight: 8\n", "listen: :9001\nmax_in_flight: 8\n"},
		{"password", "redis:\n  password: hunter2\n", "redis:\n  password: (redacted)\n"},
		{"unset stays visible as unset", "password: \"\"\ntoken: null\n", "password: \"\"\ntoken: null\n"},
		{"number as password", "password: 12345\n", "password: (redacted)\n"},
		{"camel, kebab, dotted", "apiKey: a\nauth-token: b\nclient.secret: c\nAPI_KEY: d\n",
			"apiKey: (redacted)\nauth-token: (redacted)\nclient.secret: (redacted)\nAPI_KEY: (redacted)\n"},
		{"lists and maps below", "api_keys:\n- a\n- b\nsecret:\n  name: c\n  count: 4\n",
			"api_keys:\n- (redacted)\n- (redacted)\nsecret:\n  name: (redacted)\n  count: (redacted)\n"},
		{"in a list", "users:\n- name: a\n  pass: b\n", "users:\n- name: a\n  pass: (redacted)\n"},
		{"block scalar", "key: |\n  -----BEGIN\n  abc\n", "key: (redacted)\n"},
		{"paths to secrets stay",
			"key_file: /etc/tls/key.pem\ntoken_path: /var/token\n", "key_file: /etc/tls/key.pem\ntoken_path: /var/token\n"},
		{"counts of tokens stay",
			"block_tokens: 16\nbytes_per_token: 4\ntokenizer: bpe\n", "block_tokens: 16\nbytes_per_token: 4\ntokenizer: bpe\n"},
		{"tokens that are none of that",
			"tokens: [a1b2]\nbytes_per_token: a1b2\n", "tokens:\n- (redacted)\nbytes_per_token: (redacted)\n"},
		{"a token may be a number", "token: 4711\n", "token: (redacted)\n"},
		{"URL", "url: redis://app:hunter2@redis:6379/0\n", "url: redis://app:(redacted)@redis:6379/0\n"},
		{"URL without password", "url: http://app@host/a:b@c\n", "url: http://app@host/a:b@c\n"},
		{"headers", "headers:\n  Authorization: Bearer abc\n", "headers:\n  Authorization: (redacted)\n"},
	} {
		got, err := Redact(c.in)
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
	for _, bad := range []string{"password: [hunter2", "\tpassword: hunter2", strings.Repeat("x", maxConfig+1)} {
		if got, err := Redact(bad); err == nil || got != "" || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Redact(%.30q) = %q, %v; want nothing and an error that does not quote it", bad, got, err)
		}
	}
}

// Whatever stands under a secret's key does not come out, wherever the key stands.
func FuzzRedact(f *testing.F) {
	f.Add("a: 1", "password")
	f.Add("- b\n- {c: d}", "api_key")
	f.Add("x: |\n y\n", "authToken")
	f.Fuzz(func(t *testing.T, around, key string) {
		const canary = "c4n4ry"
		if strings.Contains(around, canary) || strings.Contains(key, canary) || secretKey(key) == plain {
			t.Skip()
		}
		indented := "  " + strings.ReplaceAll(around, "\n", "\n  ")
		document := fmt.Sprintf("before:\n%s\nunder:\n  - %q: %s\n    more: [{%q: {deep: %s}}]\n", indented, key, canary, key, canary)
		if got, err := Redact(document); err == nil && strings.Contains(got, canary) {
			t.Errorf("%q\ncame out of\n%s\nas\n%s", canary, document, got)
		}
	})
}
