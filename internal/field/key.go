package field

import (
	"errors"
	"io"
	"os"
	"strings"
)

// maxKey bounds a key file.
const maxKey = 64 << 10

// ReadKey reads the one line of a key file. Errors never show what the file holds.
func ReadKey(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", errors.New("must be a file that can be read")
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxKey))
	if err != nil {
		return "", errors.New("must be a file that can be read")
	}
	key := strings.TrimSpace(string(text))
	if key == "" || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", errors.New("must hold one key of printable characters without spaces")
	}
	return key, nil
}
