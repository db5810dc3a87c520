package register

import (
	"crypto/sha256"
	"crypto/subtle"
	"sync"
	"time"

	"attache/internal/worker"
)

// token is the one that workers show, from a file that may change. Safe for concurrent use.
type token struct {
	path string

	mu     sync.Mutex // guards what follows
	digest [sha256.Size]byte
	read   time.Time
}

// tokenAge is how long a token is used before its file is read again.
const tokenAge = time.Second

func newToken(path string) (*token, error) {
	text, err := worker.ReadToken(path)
	return &token{path: path, digest: sha256.Sum256([]byte(text)), read: time.Now()}, err
}

// is reports whether a text is the token, in a time that does not tell how much of it was right. A file that turned bad keeps the last
// good one.
func (t *token) is(text string) bool {
	t.mu.Lock()
	if time.Since(t.read) >= tokenAge {
		if fresh, err := worker.ReadToken(t.path); err == nil {
			t.digest = sha256.Sum256([]byte(fresh))
		}
		t.read = time.Now()
	}
	want := t.digest
	t.mu.Unlock()
	got := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}
