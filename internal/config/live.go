package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// effects says of every setting whether a running process takes a change of it: the rule of the longest path that the setting is
// at or below. There is no rule for what nobody has thought about, and a test demands one for every setting.
var effects = map[string]bool{
	"replica": restart,

	"pools":              restart, // names, order and number: they are in Envoy's clusters and in metrics
	"pools.models":       live,
	"pools.aliases":      live,
	"pools.prompt":       restart, // model folders are read at the start
	"pools.events":       restart,
	"pools.scoring":      live,
	"pools.workers":      live,
	"pools.workers_file": live,
	"pools.engine":       live,
	"pools.discovery":    restart,

	"workers":              live,
	"workers.registration": restart,

	"redis":    restart,
	"replicas": restart,

	"router.max_in_flight": live,
	"router.saturation":    live,
	"router.queue":         live,
	"router.affinity":      live,
	"router.retry_after":   live,
	"router.alternatives":  live,
	"router.feedback_ttl":  live,
	"router.recent":        restart,
	"router.tenants":       live,
	"router.auto":          restart,
	"router.learnt_dir":    restart,
	"router.booking_ttl":   live,
	"router.prompt":        restart,
	"router.index":         restart,
	"router.events":        restart,
	"router.scoring":       live,
	"router.snapshot":      restart,

	"extproc.listen":           restart,
	"extproc.tls":              restart, // other files; what is in them is read at every handshake
	"extproc.max_body":         live,
	"extproc.max_message":      restart,
	"extproc.malformed":        live,
	"extproc.other":            live,
	"extproc.answer_models":    live,
	"extproc.include_usage":    live,
	"extproc.assume_mode":      live,
	"extproc.drain_wait":       live,
	"extproc.drain_timeout":    live,
	"extproc.record_panics":    live,
	"extproc.record_bodies":    live,
	"extproc.client_header":    live,
	"extproc.response_headers": restart, // Envoy's filter changes with it
	"extproc.hints":            live,

	"tracing":       restart,
	"tracing.ratio": live,
	"warm":          restart,
	"xds":           restart,
	"admin":         restart,
	"log.level":     live,
	"log.format":    restart,
	"runtime":       restart,
}

const (
	live    = true
	restart = false
)

// Live reports whether a running process takes a change of a setting, which is named without indices, as "pools.workers". known is false when
// there is no rule, or when there are several rules below it, as for "router".
func Live(path string) (takes, known bool) {
	for rule, effect := range effects {
		if strings.HasPrefix(rule, path+".") && len(rule) > len(path) {
			if at, _ := ruleOf(path); at == "" || effects[at] != effect {
				return false, false
			}
		}
	}
	at, takes := ruleOf(path)
	return takes, at != ""
}

// ruleOf is the rule of a setting, and its effect.
func ruleOf(path string) (rule string, effect bool) {
	for at := path; at != ""; at = at[:max(strings.LastIndexByte(at, '.'), 0)] {
		if effect, ok := effects[at]; ok {
			return at, effect
		}
	}
	return "", restart
}

// Change is one setting that differs between two configurations.
type Change struct {
	// Path leads to the setting, with the indices of the first configuration.
	Path string
	// Before and After are its values as YAML.
	Before, After string
	// Live: a running process takes it. Otherwise it must be started again.
	Live bool
}

// String reads as `router.alternatives: 3 -> 2`.
func (c Change) String() string { return c.Path + ": " + c.Before + " -> " + c.After }

// Changes lists what differs, in the order of the file's documentation. Pools are compared by name; where these differ, that is one change,
// of "pools". A replica without a name gets one from its host, which is no change.
func Changes(before, after *Config) []Change {
	var d differ
	if after.Replica == "" {
		named := *after
		named.Replica = before.Replica
		after = &named
	}
	for i := range reflect.TypeFor[Config]().NumField() {
		f := reflect.TypeFor[Config]().Field(i)
		if f.Name != "Pools" {
			d.compare(f.Tag.Get("yaml"), reflect.ValueOf(before).Elem().Field(i), reflect.ValueOf(after).Elem().Field(i))
			continue
		}
		if a, b := names(before.Pools), names(after.Pools); a != b {
			d.all = append(d.all, Change{Path: "pools", Before: a, After: b})
		}
		for i := range before.Pools {
			if other := poolOf(after, before.Pools[i].Name); other != nil {
				d.compare(fmt.Sprintf("pools[%d]", i), reflect.ValueOf(before.Pools[i]), reflect.ValueOf(*other))
			}
		}
	}
	return d.all
}

func names(pools []Pool) string {
	list := make([]string, len(pools))
	for i, p := range pools {
		list[i] = p.Name
	}
	return strings.Join(list, ", ")
}

func poolOf(c *Config, name string) *Pool {
	for i := range c.Pools {
		if c.Pools[i].Name == name {
			return &c.Pools[i]
		}
	}
	return nil
}

// differ gathers changes.
type differ struct{ all []Change }

// compare compares two values of one type, down to single settings.
func (d *differ) compare(path string, a, b reflect.Value) {
	t := a.Type()
	if t.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil() {
		d.compare(path, a.Elem(), b.Elem())
		return
	}
	if t.Kind() != reflect.Struct {
		if before, after := written(a), written(b); before != after {
			takes, _ := Live(plain(path))
			d.all = append(d.all, Change{Path: path, Before: before, After: after, Live: takes})
		}
		return
	}
	for i := range t.NumField() {
		if below, is := below(path, t.Field(i)); is {
			d.compare(below, a.Field(i), b.Field(i))
		}
	}
}

// below is the path of a struct's field; is says whether it is a setting.
func below(path string, f reflect.StructField) (at string, is bool) {
	switch tag := f.Tag.Get("yaml"); tag {
	case "-", "":
		return "", false
	case ",inline":
		return path, true
	default:
		return path + "." + tag, true
	}
}

// plain is a path without indices.
func plain(path string) string {
	for {
		open := strings.IndexByte(path, '[')
		if open < 0 {
			return path
		}
		path = path[:open] + path[open+strings.IndexByte(path[open:], ']')+1:]
	}
}

// written is a value as YAML, on one line.
func written(v reflect.Value) string {
	if v.Kind() == reflect.String && v.Len() == 0 {
		return "empty"
	}
	if k := v.Kind(); (k == reflect.Pointer || k == reflect.Slice || k == reflect.Map) && (v.IsZero() || k != reflect.Pointer && v.Len() == 0) {
		return "unset"
	}
	text, err := yaml.MarshalWithOptions(v.Interface(), yaml.Flow(true))
	if err != nil {
		return fmt.Sprint(v.Interface())
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

// Merge is what a running process makes of a changed configuration: the running one with what it takes of the next. Both are left as
// they are. The error says that these do not go together without what needs a restart.
func Merge(running, next *Config) (*Config, error) {
	merged := *running
	merged.Pools = slices.Clone(running.Pools)
	for i := range merged.Pools {
		if from := poolOf(next, merged.Pools[i].Name); from != nil {
			take("pools", reflect.ValueOf(&merged.Pools[i]).Elem(), reflect.ValueOf(*from))
		}
	}
	for i := range reflect.TypeFor[Config]().NumField() {
		if f := reflect.TypeFor[Config]().Field(i); f.Name != "Pools" {
			take(f.Tag.Get("yaml"), reflect.ValueOf(&merged).Elem().Field(i), reflect.ValueOf(next).Elem().Field(i))
		}
	}
	if err := merged.Validate(); err != nil {
		return nil, fmt.Errorf("nothing is changed, because this does not go together with what needs a restart: %w", err)
	}
	return &merged, nil
}

// take copies what a running process takes.
func take(path string, to, from reflect.Value) {
	if to.Kind() != reflect.Struct {
		if takes, _ := Live(path); takes {
			to.Set(from)
		}
		return
	}
	for i := range to.NumField() {
		if below, is := below(path, to.Type().Field(i)); is {
			take(below, to.Field(i), from.Field(i))
		}
	}
}

// Restarts are the paths of those changes that need a restart.
func Restarts(changes []Change) []string {
	var paths []string
	for _, c := range changes {
		if !c.Live {
			paths = append(paths, c.Path)
		}
	}
	return paths
}
