package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/goccy/go-yaml"
)

// ParseAddress checks "host:port" without looking the host up; IPv6 addresses stand in brackets.
func ParseAddress(s string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(s)
	if err == nil && host != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if err == nil && n > 0 {
			return host, uint16(n), nil
		}
	}
	return "", 0, errors.New("must be host:port, such as 10.0.0.1:8000 or [fd00::1]:8000")
}

// resolveTimeout bounds the look-up of one host name.
const resolveTimeout = 2 * time.Second

// resolve turns "host:port" into an address. A name that has several addresses stands for the first.
func resolve(s string) (netip.AddrPort, error) {
	host, port, err := ParseAddress(s)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q: %w", s, err)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return netip.AddrPortFrom(ip.Unmap(), port), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(ips) == 0 {
		return netip.AddrPort{}, fmt.Errorf("%q: the host name cannot be resolved: %w", s, err)
	}
	return netip.AddrPortFrom(ips[0].Unmap(), port), nil
}

// Static makes the workers of a pool from addresses in the configuration.
func Static(pool string, engine Engine, addresses []string) ([]Spec, error) {
	var specs []Spec
	for _, a := range addresses {
		addr, err := resolve(a)
		if err != nil {
			return nil, err
		}
		specs = append(specs, Spec{Name: a, Pool: pool, Address: a, Addr: addr, Engine: engine})
	}
	return specs, unique(specs)
}

func unique(specs []Spec) error {
	names, addrs := map[string]bool{}, map[netip.AddrPort]bool{}
	for _, s := range specs {
		if names[s.Name] {
			return fmt.Errorf("two workers are called %q; every worker needs a name of its own", s.Name)
		}
		if addrs[s.Addr] {
			return fmt.Errorf("two workers have the address %s", s.Addr)
		}
		names[s.Name], addrs[s.Addr] = true, true
	}
	return nil
}

// fileForm is a workers file. The second list is how llm-d's file discovery writes the same.
type fileForm struct {
	Workers []struct {
		Name    string            `yaml:"name"`
		Address string            `yaml:"address"`
		Pool    string            `yaml:"pool"`
		Engine  Engine            `yaml:"engine"`
		Drain   bool              `yaml:"drain"`
		Labels  map[string]string `yaml:"labels"`
	} `yaml:"workers"`
	Endpoints []struct {
		Name      string            `yaml:"name"`
		Namespace string            `yaml:"namespace"`
		Address   string            `yaml:"address"`
		Port      any               `yaml:"port"`
		Labels    map[string]string `yaml:"labels"`
	} `yaml:"endpoints"`
}

// maxFile bounds a workers file.
const maxFile = 8 << 20

// parseFile reads a workers file (YAML, and so JSON). Unknown keys are errors with their line.
func parseFile(text []byte, pool string, engine Engine) ([]Spec, error) {
	if len(text) > maxFile {
		return nil, errors.New("the file exceeds 8 MiB")
	}
	var form fileForm
	if err := yaml.UnmarshalWithOptions(text, &form, yaml.Strict()); err != nil {
		var y yaml.Error
		if errors.As(err, &y) && y.GetToken() != nil {
			return nil, fmt.Errorf("line %d: %s", y.GetToken().Position.Line, y.GetMessage())
		}
		return nil, err
	}
	var specs []Spec
	add := func(s Spec) error {
		addr, err := resolve(s.Address)
		if err != nil {
			return err
		}
		s.Addr = addr
		if s.Name == "" {
			s.Name = s.Address
		}
		if s.Pool == "" {
			s.Pool = pool
		}
		if s.Engine == "" {
			s.Engine = engine
		}
		if !s.Engine.Valid() {
			return fmt.Errorf("worker %s: engine %q: must be auto, vllm, sglang or trtllm", s.Name, s.Engine)
		}
		specs = append(specs, s)
		return nil
	}
	for _, w := range form.Workers {
		if err := add(Spec{Name: w.Name, Address: w.Address, Pool: w.Pool, Engine: w.Engine, Drain: w.Drain, Labels: w.Labels}); err != nil {
			return nil, err
		}
	}
	for _, e := range form.Endpoints {
		if err := add(Spec{Name: e.Name, Address: net.JoinHostPort(e.Address, fmt.Sprint(e.Port)), Labels: e.Labels}); err != nil {
			return nil, err
		}
	}
	return specs, unique(specs)
}

// ReadFile reads a workers file once.
func ReadFile(path, pool string, engine Engine) ([]Spec, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("workers file: %w", err)
	}
	specs, err := parseFile(text, pool, engine)
	if err != nil {
		return nil, fmt.Errorf("workers file %s: %w", path, err)
	}
	return specs, nil
}

// FileParams are what a watched workers file needs.
type FileParams struct {
	Path   string
	Pool   string // of workers that name none
	Engine Engine // of workers that name none
	Apply  func([]Spec)
	Bad    func(error) // told when a changed file is bad; nil: nobody
	Log    *slog.Logger
}

// File is a watched workers file.
type File struct {
	p       FileParams
	watcher *fsnotify.Watcher
	last    string
}

// OpenFile reads the file and applies it; a file that is missing or bad at this moment is an error.
func OpenFile(p FileParams) (*File, error) {
	f := &File{p: p}
	if err := f.read(); err != nil {
		return nil, fmt.Errorf("workers file %s: %w", p.Path, err)
	}
	var err error
	if f.watcher, err = fsnotify.NewWatcher(); err != nil {
		return nil, err
	}
	// The folder is watched, not the file: editors and Kubernetes replace files instead of writing them.
	if err := f.watcher.Add(filepath.Dir(p.Path)); err != nil {
		_ = f.watcher.Close()
		return nil, fmt.Errorf("watching %s: %w", filepath.Dir(p.Path), err)
	}
	return f, nil
}

// settle is how long a change may take to be complete.
const settle = 50 * time.Millisecond

// Run follows the file until ctx ends. A file that turns bad or disappears keeps the last good list.
func (f *File) Run(ctx context.Context) error {
	defer func() { _ = f.watcher.Close() }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case _, open := <-f.watcher.Events:
			if !open {
				return errors.New("the file watcher ended")
			}
			timer.Reset(settle)
		case err := <-f.watcher.Errors:
			f.p.Log.Warn("watching the workers file", "file", f.p.Path, "error", err)
		case <-timer.C:
			if err := f.read(); err != nil {
				f.p.Log.Error("the workers file is bad; the last good list is kept", "file", f.p.Path, "error", err)
				if f.p.Bad != nil {
					f.p.Bad(err)
				}
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *File) read() error {
	text, err := os.ReadFile(f.p.Path)
	if err != nil {
		return err
	}
	if string(text) == f.last && strings.TrimSpace(f.last) != "" {
		return nil
	}
	specs, err := parseFile(text, f.p.Pool, f.p.Engine)
	if err != nil {
		return err
	}
	f.last = string(text)
	f.p.Apply(specs)
	return nil
}
