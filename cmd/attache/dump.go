package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"attache/internal/admin"
)

type dumpCmd struct {
	Admin  string `default:"${admin_url}" help:"Where attache's admin API listens. Default: ${admin_url}." placeholder:"URL"`
	JSON   bool   `name:"json" help:"Print one JSON object."`
	Worker string `help:"This worker only, with the prefixes that it was used for most recently." placeholder:"NAME"`
}

// dumpVars are what the flags of dumpCmd refer to.
func dumpVars() kong.Vars { return kong.Vars{"admin_url": "http://" + admin.DefaultConfig().Listen} }

// dumped is what is printed.
type dumped struct {
	Status   admin.Status           `json:"status"`
	Workers  []admin.Worker         `json:"workers"`
	Feeds    []admin.Feed           `json:"feeds"`
	Index    []admin.Index          `json:"index"`
	Prefixes []admin.WorkerPrefixes `json:"prefixes,omitempty"` // of the worker that was named
}

// dumpPrefixes is how many prefixes of each rank are shown.
const dumpPrefixes = 20

func (c *dumpCmd) Run(ctx context.Context, out io.Writer) error {
	api, err := newAPI("--admin", c.Admin)
	if err != nil {
		return err
	}
	d, err := fetch(ctx, api, c.Worker)
	if err != nil {
		return err
	}
	if !c.JSON {
		return writeDump(out, d)
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(d)
}

// fetch asks for everything; of one worker only when it is named.
func fetch(ctx context.Context, api *api, worker string) (*dumped, error) {
	var (
		d       dumped
		workers = struct{ Workers *[]admin.Worker }{&d.Workers}
		feeds   = struct{ Feeds *[]admin.Feed }{&d.Feeds}
		index   = struct{ Pools *[]admin.Index }{&d.Index}
		held    = struct{ Workers *[]admin.WorkerPrefixes }{&d.Prefixes}
	)
	type question struct {
		path string
		into any
	}
	questions := []question{{"status", &d.Status}, {"workers", &workers}, {"feeds", &feeds}, {"index", &index}}
	if worker != "" {
		query := url.Values{"worker": {worker}, "n": {strconv.Itoa(dumpPrefixes)}}
		questions = append([]question{{"prefixes?" + query.Encode(), &held}}, questions...) // it knows whether there is such a worker
	}
	for _, q := range questions {
		if err := api.get(ctx, q.path, q.into); err != nil {
			return nil, err
		}
	}
	if worker != "" {
		d.Workers = only(d.Workers, func(w *admin.Worker) bool { return w.Name == worker })
		d.Feeds = only(d.Feeds, func(f *admin.Feed) bool { return f.Worker == worker })
		d.Index = only(d.Index, func(x *admin.Index) bool {
			return len(only(d.Workers, func(w *admin.Worker) bool { return w.Pool == x.Pool })) > 0
		})
	}
	return &d, nil
}

func only[T any](all []T, wanted func(*T) bool) []T {
	some := []T{}
	for i := range all {
		if wanted(&all[i]) {
			some = append(some, all[i])
		}
	}
	return some
}

// api asks a running attache.
type api struct {
	flag   string // that it was given with
	base   string
	client http.Client
}

// Bounds of an answer.
const (
	apiTimeout = 15 * time.Second
	maxAnswer  = 64 << 20
)

// newAPI takes a URL, or host:port alone.
func newAPI(flag, address string) (*api, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%s: %q: must be a URL, such as http://127.0.0.1:9902", flag, address)
	}
	return &api{flag: flag, base: strings.TrimRight(u.String(), "/"), client: http.Client{Timeout: apiTimeout}}, nil
}

func (a *api) get(ctx context.Context, path string, into any) error {
	text, err := a.text(ctx, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s does not answer as attache does: /api/v1/%s: %w; %s must be its admin.listen", a.base, path, err, a.flag)
	}
	return nil
}

// text is an answer as it is.
func (a *api) text(ctx context.Context, path string) ([]byte, error) {
	defer a.client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+"/api/v1/"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := a.client.Do(r)
	if err != nil {
		return nil, a.unreachable(ctx, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, a.unreachable(ctx, err)
	case len(text) > maxAnswer:
		return nil, fmt.Errorf("%s: the answer exceeds %d MiB", r.URL.Path, maxAnswer>>20)
	case resp.StatusCode != http.StatusOK:
		return nil, a.refused(resp.StatusCode, r.URL.Path, text)
	}
	return text, nil
}

// unreachable says what to do where nobody answers.
func (a *api) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var whole *url.Error
	if errors.As(err, &whole) { // says the address again
		err = whole.Err
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		err = op.Err
	}
	return fmt.Errorf("no attache at %s: %w; is it running? Where its dashboard listens is logged at its start (admin.listen): give that with %s",
		a.base, err, a.flag)
}

// refused shows what attache said; anything else did not come from it.
func (a *api) refused(status int, path string, text []byte) error {
	var p struct {
		Error   string            `json:"error"`
		Workers []string          `json:"workers"`
		Paths   map[string]string `json:"paths"`
	}
	if json.Unmarshal(text, &p) != nil || p.Error == "" {
		return fmt.Errorf("%s does not answer as attache does: %s: status %d; %s must be its admin.listen", a.base, path, status, a.flag)
	}
	switch {
	case p.Paths != nil:
		return fmt.Errorf("%s: %s; it seems to run another version of attache", a.base, p.Error)
	case len(p.Workers) > 0:
		return fmt.Errorf("%s; there are %s", p.Error, strings.Join(p.Workers, ", "))
	}
	return errors.New(p.Error)
}
