package wholefile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	writes := func(text string, err error) func(io.Writer) error {
		return func(to io.Writer) error {
			_, wrote := io.WriteString(to, text)
			return errors.Join(wrote, err)
		}
	}
	broken := errors.New("broken")
	for _, c := range []struct {
		text string
		err  error
		want string
	}{{"first", nil, "first"}, {"second", nil, "second"}, {"half of the th", broken, "second"}} {
		if err := Replace(path, writes(c.text, c.err)); !errors.Is(err, c.err) {
			t.Errorf("%q: error %v, want %v", c.text, err, c.err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != c.want {
			t.Errorf("after %q: %q, %v, want %q", c.text, got, err, c.want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
	if err := Replace(filepath.Join(dir, "nowhere", "state"), writes("", nil)); err == nil {
		t.Error("a folder that does not exist takes a file")
	}
}
