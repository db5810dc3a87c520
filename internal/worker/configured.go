package worker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"attache/internal/watch"
)

// Configured tells a registry who serves, as the configuration says it and the files that it names, which are watched. Prepare what the
// configuration says, commit it, and Run. Safe for concurrent use.
type Configured struct {
	registry *Registry
	log      *slog.Logger

	mu       sync.Mutex // guards what follows
	followed map[string]*followed
	start    func(*followed) // nil while Run does not run
	over     bool            // Run has ended
}

// ConfiguredPool is where the workers of one pool come from, as the configuration says it.
type ConfiguredPool struct {
	Pool      string
	Engine    Engine   // of workers that name none
	Addresses []string // host:port
	File      string   // "" none
}

// followed is a watched workers file.
type followed struct {
	pool   string
	engine Engine
	path   string
	source *Source
	file   *watch.File
	specs  []Spec // as it was opened
	taken  bool   // the registry has them: what the file says from now on is applied
	stop   context.CancelFunc
}

// NewConfigured makes one that says nothing yet.
func NewConfigured(registry *Registry, log *slog.Logger) *Configured {
	return &Configured{registry: registry, log: log, followed: map[string]*followed{}}
}

// Prepare finds the workers of every pool, and changes nothing before commit is called, which brings them into effect all at once. The
// error says which address or file is bad: then there is nothing to be committed. A file that is followed already is not read again. It
// is for one caller at a time.
func (s *Configured) Prepare(sources []ConfiguredPool) (commit func(), err error) {
	var lists []List
	opened := map[string]*followed{}
	defer func() {
		if err != nil {
			for _, f := range opened {
				f.file.Close()
			}
		}
	}()
	for _, src := range sources {
		specs, err := Static(src.Pool, src.Engine, src.Addresses)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", src.Pool, err)
		}
		lists = append(lists, List{"static/" + src.Pool, specs})
		var is *followed
		if src.File != "" {
			if is = s.following(src); is == nil {
				if is, err = s.open(src); err != nil {
					return nil, err
				}
				opened[src.Pool] = is
			}
		}
		if is == nil || !is.taken {
			list := List{Source: "file/" + src.Pool}
			if is != nil {
				list.Specs = is.specs
			}
			lists = append(lists, list)
		}
	}
	return func() { s.commit(sources, lists, opened) }, nil
}

// following is the file of a source, if it is followed already.
func (s *Configured) following(src ConfiguredPool) *followed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.followed[src.Pool]; f != nil && f.path == src.File && f.engine == src.Engine {
		return f
	}
	return nil
}

// open reads a file and begins to watch it.
func (s *Configured) open(src ConfiguredPool) (*followed, error) {
	f := &followed{pool: src.Pool, engine: src.Engine, path: src.File, source: s.registry.Source("file/" + src.Pool)}
	file, err := watch.Open(watch.Params{
		Path: src.File, Most: maxFile, Log: s.log, Take: func(text []byte) error { return s.take(f, text) },
		Told: func(err error) {
			if err != nil {
				s.registry.BadFile(err)
				f.source.Failed(err)
			}
		},
		Good: f.source.Confirm,
	})
	if err != nil {
		return nil, fmt.Errorf("workers file %s: %w", src.File, err)
	}
	f.file = file
	return f, nil
}

// take takes in what a file says now.
func (s *Configured) take(f *followed, text []byte) error {
	specs, err := parseFile(text, f.pool, f.engine)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !f.taken:
		f.specs = specs
	case s.followed[f.pool] == f: // else another one took its place
		s.registry.Apply("file/"+f.pool, specs)
	}
	return nil
}

func (s *Configured) commit(sources []ConfiguredPool, lists []List, opened map[string]*followed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, src := range sources {
		was, is := s.followed[src.Pool], opened[src.Pool]
		if was != nil && (is != nil || src.File == "") {
			delete(s.followed, src.Pool)
			was.end()
			if is == nil {
				was.source.Close()
			}
		}
		if is != nil {
			is.taken = true
			s.followed[src.Pool] = is
			switch {
			case s.start != nil:
				s.start(is)
			case s.over:
				is.file.Close()
			}
		}
	}
	s.registry.ApplyAll(lists...)
}

// end ends following a file.
func (f *followed) end() {
	if f.stop != nil {
		f.stop()
	} else {
		f.file.Close()
	}
}

// Run follows the files until ctx ends. It returns early, with an error, when one of them cannot be watched any more.
func (s *Configured) Run(ctx context.Context) (err error) {
	failed := make(chan error, 1)
	var running sync.WaitGroup
	s.mu.Lock()
	s.start = func(f *followed) {
		mine, stop := context.WithCancel(ctx)
		f.stop = stop
		running.Go(func() {
			if err := f.file.Run(mine); err != nil {
				select {
				case failed <- fmt.Errorf("workers file %s: %w", f.path, err):
				default: // one is enough
				}
			}
		})
	}
	for _, f := range s.followed {
		s.start(f)
	}
	s.mu.Unlock()
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.mu.Lock()
	s.start, s.over = nil, true
	for _, f := range s.followed {
		f.stop()
	}
	s.mu.Unlock()
	running.Wait()
	return err
}
