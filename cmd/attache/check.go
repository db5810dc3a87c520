package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"attache/internal/admin"
	"attache/internal/config"
	"attache/internal/worker"
)

type checkCmd struct {
	flags

	Config  string `short:"c" required:"" type:"path" help:"YAML configuration; see docs/configuration.md."`
	Print   bool   `help:"Print the whole configuration in effect, defaults included."`
	Against string `help:"Print what would change in a running attache, whose admin API listens there: at once, and after a restart. Give the flags that it runs with, too." placeholder:"URL"`
}

func (c *checkCmd) Run(ctx context.Context, out io.Writer) error {
	from := source{Config: c.Config, flags: c.flags}
	cfg, err := from.load()
	if err != nil {
		return err
	}
	if c.Against != "" {
		return c.compare(ctx, cfg, out)
	}
	if c.Print {
		_, err := io.WriteString(out, cfg.YAML())
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s is good.\n", c.Config)
	for i, p := range cfg.Pools {
		models := "every model"
		if len(p.Models) > 0 {
			models = strings.Join(p.Models, ", ")
		}
		role := ""
		if i == 0 {
			role = " (default)"
		}
		from := fmt.Sprintf("%d workers", len(p.Workers))
		if p.WorkersFile != "" {
			specs, err := worker.ReadFile(p.WorkersFile, p.Name, p.Engine)
			if err != nil {
				return err
			}
			from += fmt.Sprintf(", and now %d in %s", len(specs), p.WorkersFile)
		}
		if n := len(p.Discovery.DNS) + len(p.Discovery.Kubernetes); n > 0 {
			from += fmt.Sprintf(", and what %d sources of discovery find", n)
		}
		fmt.Fprintf(&b, "  pool %s%s: %s; %s\n", p.Name, role, models, from)
	}
	fmt.Fprintf(&b, "  ext_proc on %s, xDS on %s, dashboard on http://%s\n", cfg.ExtProc.Listen, cfg.XDS.Listen, cfg.Admin.Listen)
	_, err = io.WriteString(out, b.String())
	return err
}

// compare prints what differs from a running attache.
func (c *checkCmd) compare(ctx context.Context, cfg *config.Config, out io.Writer) error {
	api, err := newAPI("--against", c.Against)
	if err != nil {
		return err
	}
	text, err := api.text(ctx, "config")
	if err != nil {
		return err
	}
	running, err := config.Read(api.base+"/api/v1/config", text)
	if err != nil {
		return fmt.Errorf("%w; it may run another version of attache", err)
	}
	var live, restart []string
	hidden := 0
	for _, change := range config.Changes(running, cfg) {
		switch {
		case strings.Trim(change.Before, `"`) == admin.Redacted: // nobody tells whether it differs
			hidden++
		case change.Live:
			live = append(live, change.String())
		default:
			restart = append(restart, change.String())
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s is good.\n", c.Config)
	for _, part := range []struct {
		what  string
		lines []string
	}{{"at once", live}, {"after a restart", restart}} {
		if len(part.lines) > 0 {
			fmt.Fprintf(&b, "Would change %s:\n  %s\n", part.what, strings.Join(part.lines, "\n  "))
		}
	}
	if len(live)+len(restart) == 0 {
		fmt.Fprintf(&b, "Nothing would change in %s.\n", api.base)
	}
	if hidden > 0 {
		fmt.Fprintf(&b, "Not compared, because they are not shown: %d settings.\n", hidden)
	}
	if running.Validate() == nil { // else it names files that are not here
		if _, err := config.Merge(running, cfg); err != nil {
			fmt.Fprintf(&b, "Without a restart %v\n", err)
		}
	}
	_, err = io.WriteString(out, b.String())
	return err
}
