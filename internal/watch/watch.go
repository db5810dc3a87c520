// Package watch follows a file that others change.
//
// Its folder is watched, not the file: editors and Kubernetes replace files instead of writing them, a ConfigMap by swapping a symlink
// beside it. It is also read every few seconds without being told, because folders can be replaced as a whole, symlinks can lead
// elsewhere, and network file systems tell nothing. A text that was found changed is read twice: whoever writes a file in place empties it
// first, and an empty file may be a valid one.
package watch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// File is a watched file. Make one with Open, then Run it once, or Close it.
type File struct {
	p       Params
	watcher *fsnotify.Watcher // nil: the system tells of no changes
	again   chan struct{}     // read it whether it has changed or not; capacity 1
	last    string            // text that was taken
	mistake string            // that was told last; "" when the file was good
}

// Params are what a File needs. Take and Told are called by one goroutine at a time: by Open's caller, then by Run.
type Params struct {
	Path string
	// Most is how many bytes are read; a file that is longer comes with one byte more than that.
	Most int64
	// Text is what was read of it before, and is known therefore; nil: Open reads it, and fails unless Take takes it.
	Text []byte
	// Take is given the text when it has changed. The error says what is wrong with it; then it is given again later, in case
	// that has changed.
	Take func(text []byte) error
	// Told is told of a mistake, once however often it is met, and of nil when the file is good again.
	Told func(error)
	// Good is told whenever Run has read the file and it is good, changed or not; nil: nobody is.
	Good func()
	Log  *slog.Logger
}

// Open begins to watch a file. Where the system cannot watch, the log says so, and changes are found by reading alone.
func Open(p Params) (*File, error) {
	f := &File{p: p, again: make(chan struct{}, 1), last: string(p.Text)}
	if p.Text == nil {
		text, err := Read(p.Path, p.Most)
		if err == nil {
			err = f.take(text)
		}
		if err != nil {
			return nil, err
		}
	}
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		if err = watcher.Add(filepath.Dir(p.Path)); err != nil {
			_ = watcher.Close()
		}
	}
	if err != nil {
		p.Log.Warn("a file's folder cannot be watched; the file is read every few seconds", "file", p.Path, "error", err)
		return f, nil
	}
	f.watcher = watcher
	return f, nil
}

// Close ends watching a file that does not Run.
func (f *File) Close() {
	if f.watcher != nil {
		_ = f.watcher.Close()
	}
}

// Again has Run read the file and give it to Take, whether it has changed or not. It returns at once.
func (f *File) Again() {
	select {
	case f.again <- struct{}{}:
	default:
	}
}

// Settle is how long a change may take to be complete.
const Settle = 50 * time.Millisecond

// every is how often the file is read without being told of a change.
const every = 5 * time.Second

// Run follows the file until ctx ends. It returns early, with an error, when the file cannot be watched any more.
func (f *File) Run(ctx context.Context) error {
	defer f.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	waiting := true // for the timer; more events do not put it off
	var events <-chan fsnotify.Event
	var failures <-chan error
	if f.watcher != nil {
		events, failures = f.watcher.Events, f.watcher.Errors
	}
	for {
		select {
		case _, open := <-events:
			if !open {
				return errors.New("the file watcher ended")
			}
			if !waiting {
				waiting = true
				timer.Reset(Settle)
			}
		case err := <-failures:
			f.p.Log.Warn("watching a file", "file", f.p.Path, "error", err)
		case <-timer.C:
			waiting = false
			f.follow(ctx, false)
		case <-f.again:
			f.follow(ctx, true)
		case <-ticker.C:
			if f.watcher != nil {
				_ = f.watcher.Add(filepath.Dir(f.p.Path)) // again, should it be another folder by now
			}
			f.follow(ctx, false)
		case <-ctx.Done():
			return nil
		}
	}
}

// follow reads the file and tells of a mistake once, however often it is read, unless somebody asked for that.
func (f *File) follow(ctx context.Context, always bool) {
	err := f.read(ctx, always)
	if ctx.Err() != nil {
		return
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if f.p.Told != nil && (text != f.mistake || always && err != nil) {
		f.p.Told(err)
	}
	if err == nil && f.p.Good != nil {
		f.p.Good()
	}
	f.mistake = text
}

// tries is how often a file is read that is never the same twice.
const tries = 10

// read takes the file in if it has changed, once it does not change any more.
func (f *File) read(ctx context.Context, always bool) error {
	before, err := Read(f.p.Path, f.p.Most)
	if err != nil || string(before) == f.last && !always {
		return err
	}
	for range tries {
		select {
		case <-time.After(Settle):
		case <-ctx.Done():
			return nil
		}
		text, err := Read(f.p.Path, f.p.Most)
		switch {
		case err != nil:
			return err
		case bytes.Equal(text, before) && string(text) == f.last && !always:
			return nil
		case bytes.Equal(text, before):
			return f.take(text)
		}
		before = text
	}
	return errors.New("the file changes all the time")
}

// take hands a text over.
func (f *File) take(text []byte) error {
	if err := f.p.Take(text); err != nil {
		return err
	}
	f.last = string(text)
	return nil
}

// Read reads a file, and at most one byte more of it than is allowed.
func Read(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, most+1))
}
