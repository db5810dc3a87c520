package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a change may take to be seen on a slow machine.
const patience = 20 * time.Second

// watched is a file that a test follows. It refuses texts that begin with "bad".
type watched struct {
	*File

	taken chan string
	told  chan error
}

func params(path string, w *watched) Params {
	return Params{Path: path, Most: 100, Log: slog.New(slog.DiscardHandler),
		Take: func(text []byte) error {
			if strings.HasPrefix(string(text), "bad") {
				return fmt.Errorf("%s is refused", text)
			}
			w.taken <- string(text)
			return nil
		},
		Told: func(err error) { w.told <- err }}
}

// follow opens the file and follows it until the test ends.
func follow(t *testing.T, path string, known []byte) *watched {
	t.Helper()
	w := &watched{taken: make(chan string, 1000), told: make(chan error, 1000)}
	p := params(path, w)
	p.Text = known
	var err error
	if w.File, err = Open(p); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the watch ended: %v", err)
		}
	})
	return w
}

// until waits for a text. Others before it are let pass: a write in place may be seen half done.
func (w *watched) until(t *testing.T, want string) {
	t.Helper()
	last, timeout := "nothing", time.After(patience)
	for {
		select {
		case last = <-w.taken:
			if last == want {
				return
			}
		case <-timeout:
			t.Fatalf("%q was never taken; the last was %q", want, last)
		}
	}
}

// hears waits for news: of a mistake that says this, or "" for none.
func (w *watched) hears(t *testing.T, want string) {
	t.Helper()
	select {
	case err := <-w.told:
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Fatalf("told %v, want %q", err, want)
		}
	case <-time.After(patience):
		t.Fatalf("never told %q", want)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace puts a file in place in one step, as editors do.
func replace(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// mount puts a file in place as Kubernetes does with a ConfigMap: the file is a link into the folder "..data", which is
// itself a link, and that one alone is replaced.
func mount(t *testing.T, path, text string) {
	t.Helper()
	dir := filepath.Dir(path)
	data, err := os.MkdirTemp(dir, "..version")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(data, filepath.Base(path)), text)
	if err := os.Symlink(filepath.Base(data), filepath.Join(dir, "..data_tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join("..data", filepath.Base(path)), path); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
}

func TestFollow(t *testing.T) {
	for _, c := range []struct {
		name string
		put  func(t *testing.T, path, text string)
	}{
		{"written in place", write},
		{"replaced by renaming another over it", replace},
		{"mounted from a ConfigMap", mount},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file.yaml")
			c.put(t, path, "one")
			w := follow(t, path, nil)
			w.until(t, "one")
			c.put(t, path, "two")
			w.until(t, "two")
			c.put(t, path, "three")
			w.until(t, "three")
		})
	}
}

// TestABusyFolderDoesNotHoldTheFileBack writes a neighbour all the time.
func TestABusyFolderDoesNotHoldTheFileBack(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file.yaml")
	write(t, path, "one")
	w := follow(t, path, nil)
	w.until(t, "one")
	busy := time.NewTicker(Settle / 4)
	defer busy.Stop()
	replace(t, path, "two")
	timeout := time.After(patience)
	for {
		select {
		case <-busy.C:
			write(t, filepath.Join(dir, "neighbour"), "x")
		case text := <-w.taken:
			if text == "two" {
				return
			}
		case <-timeout:
			t.Fatal("the change is not seen while the folder is busy")
		}
	}
}

// TestBadFile: a mistake is told once, and again when somebody asks; that it is gone is told, too, also when the text is the old one.
func TestBadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.yaml")
	write(t, path, "one")
	w := follow(t, path, nil)
	w.until(t, "one")
	replace(t, path, "bad 1")
	w.hears(t, "bad 1 is refused")
	w.Again()
	w.hears(t, "bad 1 is refused")
	replace(t, path, "bad 2")
	w.hears(t, "bad 2 is refused")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	w.hears(t, "no such file")
	replace(t, path, "one")
	w.hears(t, "")
	replace(t, path, "two")
	w.until(t, "two")
	if len(w.told) != 0 || len(w.taken) != 0 {
		t.Errorf("told %d times more, taken %d times more", len(w.told), len(w.taken))
	}
}

// TestKnownText: what is known is not taken again, unless somebody asks; what has changed meanwhile is.
func TestKnownText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.yaml")
	write(t, path, "one")
	w := follow(t, path, []byte("one"))
	w.Again()
	w.until(t, "one")
	if len(w.taken) != 0 {
		t.Error("it was taken twice, and asked for once")
	}
	late := follow(t, path, []byte("zero"))
	late.until(t, "one")
}

// TestAFileThatIsWritten: what was found half written is not taken.
func TestAFileThatIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.yaml")
	write(t, path, "one")
	w := follow(t, path, []byte("one"))
	ctx, cancel := context.WithCancel(t.Context())
	writing := make(chan struct{})
	go func() {
		defer close(writing)
		for i := 0; ctx.Err() == nil; i++ {
			_ = os.WriteFile(path, fmt.Append(nil, "part ", i), 0o600)
			time.Sleep(Settle / 20)
		}
	}()
	w.hears(t, "changes all the time")
	cancel()
	<-writing
	write(t, path, "two")
	w.until(t, "two")
	if len(w.taken) != 0 {
		t.Errorf("%q was taken after the last text", <-w.taken)
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	bad, good := filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "good.yaml")
	write(t, bad, "bad")
	write(t, good, strings.Repeat("x", 200))
	for _, c := range []struct{ name, path, want string }{
		{"no file", filepath.Join(dir, "none.yaml"), "no such file"},
		{"a bad one", bad, "bad is refused"},
	} {
		if _, err := Open(params(c.path, &watched{})); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	w := &watched{taken: make(chan string, 1)}
	f, err := Open(params(good, w))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n := len(<-w.taken); n != 101 {
		t.Errorf("%d bytes of a file that is too long, want one more than the most", n)
	}
}
