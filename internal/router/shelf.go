package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"attache/internal/packed"
	"attache/internal/wholefile"
)

// Blobs is a store of whole values that replicas share. Safe for concurrent use.
type Blobs interface {
	// Save keeps a value for as long as ttl, and replaces the one there was. The value is the store's from then on.
	Save(ctx context.Context, key string, value []byte, ttl time.Duration) error
	// Load returns a value; the error is an fs.ErrNotExist when there is none.
	Load(ctx context.Context, key string) ([]byte, error)
	// Delete forgets a value; one that is not there is no error.
	Delete(ctx context.Context, key string) error
}

// shelf is where a pool's snapshot is kept: one for each name, the newest.
type shelf interface {
	// put replaces what is kept by what write writes. After an error what was kept is as it was.
	put(ctx context.Context, name string, write func(io.Writer) error) error
	// get opens what is kept; the error is an fs.ErrNotExist when nothing is. Reading may find that it was replaced meanwhile.
	get(ctx context.Context, name string) (io.ReadCloser, error)
	// fresh reports whether another replica has put something there so lately that it need not be replaced.
	fresh(ctx context.Context, name string, now time.Time) bool
	String() string
}

// folder keeps snapshots as files.
type folder string

func (f folder) String() string { return string(f) }

func (f folder) path(name string) string { return filepath.Join(string(f), name+".snapshot") }

func (f folder) put(_ context.Context, name string, write func(io.Writer) error) error {
	return wholefile.Replace(f.path(name), write)
}

func (f folder) get(_ context.Context, name string) (io.ReadCloser, error) {
	return os.Open(f.path(name))
}

func (folder) fresh(context.Context, string, time.Time) bool { return false }

// shared keeps snapshots in a store that replicas share. Values there must not be large, so a snapshot lies in pieces, and the value
// under its name, which is replaced last, says which: the contents page. Readers of a snapshot that was replaced meanwhile miss a
// piece, and begin anew.
type shared struct {
	blobs   Blobs
	replica string
	enough  time.Duration // what another replica has put is not replaced for so long
	now     func() time.Time
}

const (
	pieceBytes = 8 << 20
	// sharedFor is how long a snapshot outlives the last replica.
	sharedFor    = 24 * time.Hour
	contentMagic = "attache pieces\x01"
	maxPieces    = 1 << 16
	maxReplica   = 1 << 10
)

var errContents = errors.New("not a sound contents page of a snapshot")

// contents is a contents page.
type contents struct {
	replica    string
	at         time.Time
	generation string
	pieces     int
}

func (shared) String() string { return "the shared store" }

func (shared) key(name string) string { return "snapshot/" + name }

func (s shared) piece(name, generation string, n int) string {
	return s.key(name) + "/" + generation + "/" + strconv.Itoa(n)
}

func (s shared) put(ctx context.Context, name string, write func(io.Writer) error) error {
	before, known := s.contents(ctx, name)
	c := contents{replica: s.replica, at: s.now(), generation: strconv.FormatUint(rand.Uint64(), 36)}
	to := &pieces{save: func(p []byte) error {
		c.pieces++
		return s.blobs.Save(ctx, s.piece(name, c.generation, c.pieces-1), p, sharedFor)
	}}
	err := write(to)
	if err == nil {
		err = to.flush()
	}
	if err == nil {
		err = s.blobs.Save(ctx, s.key(name), c.text(), sharedFor)
	}
	if err != nil {
		s.forget(ctx, name, c)
		return err
	}
	if known == nil {
		s.forget(ctx, name, before)
	}
	return nil
}

// forget deletes the pieces of a snapshot. What is left for want of an answer is gone when its time is.
func (s shared) forget(ctx context.Context, name string, c contents) {
	for n := range c.pieces {
		if s.blobs.Delete(ctx, s.piece(name, c.generation, n)) != nil {
			return
		}
	}
}

func (s shared) contents(ctx context.Context, name string) (c contents, err error) {
	text, err := s.blobs.Load(ctx, s.key(name))
	if err != nil {
		return c, err
	}
	r := packed.NewReader(bytes.NewReader(text), errContents)
	magic := make([]byte, len(contentMagic))
	r.Raw(magic)
	r.Check(string(magic) == contentMagic, "it begins otherwise")
	c = contents{replica: r.Text(maxReplica), at: time.Unix(int64(r.Number(math.MaxInt)), 0), generation: r.Text(32), pieces: r.Number(maxPieces)}
	return c, r.Close()
}

func (c contents) text() []byte {
	var b bytes.Buffer
	w := packed.NewWriter(&b)
	w.Raw([]byte(contentMagic))
	w.Text(c.replica[:min(len(c.replica), maxReplica)])
	w.Number(int(max(c.at.Unix(), 0)))
	w.Text(c.generation)
	w.Number(c.pieces)
	_, _ = w.Close() // a buffer takes all
	return b.Bytes()
}

func (s shared) get(ctx context.Context, name string) (io.ReadCloser, error) {
	c, err := s.contents(ctx, name)
	if err != nil {
		return nil, err
	}
	n := 0
	return io.NopCloser(&joined{next: func() ([]byte, error) {
		if n == c.pieces {
			return nil, io.EOF
		}
		p, err := s.blobs.Load(ctx, s.piece(name, c.generation, n))
		if err != nil {
			return nil, fmt.Errorf("piece %d of %d: %w", n+1, c.pieces, err)
		}
		n++
		return p, nil
	}}), nil
}

func (s shared) fresh(ctx context.Context, name string, now time.Time) bool {
	c, err := s.contents(ctx, name)
	age := now.Sub(c.at)
	return err == nil && c.replica != s.replica && age >= 0 && age < s.enough
}

// pieces cuts what is written.
type pieces struct {
	save func([]byte) error
	full []byte
}

func (p *pieces) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		if p.full == nil {
			p.full = make([]byte, 0, pieceBytes)
		}
		fits := min(len(b), pieceBytes-len(p.full))
		p.full = append(p.full, b[:fits]...)
		b, n = b[fits:], n+fits
		if len(p.full) == pieceBytes {
			if err := p.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (p *pieces) flush() error {
	if len(p.full) == 0 {
		return nil
	}
	full := p.full
	p.full = nil
	return p.save(full)
}

// joined reads pieces one after the other.
type joined struct {
	next func() ([]byte, error)
	left []byte
}

func (j *joined) Read(b []byte) (int, error) {
	for len(j.left) == 0 {
		var err error
		if j.left, err = j.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, j.left)
	j.left = j.left[n:]
	return n, nil
}
