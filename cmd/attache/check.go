package main

import (
	"fmt"
	"io"
	"strings"

	"attache/internal/config"
	"attache/internal/worker"
)

type checkCmd struct {
	Config string `short:"c" required:"" type:"path" help:"YAML configuration; see docs/configuration.md."`
	Print  bool   `help:"Print the whole configuration in effect, defaults included."`
}

func (c *checkCmd) Run(out io.Writer) error {
	cfg, err := config.Load(c.Config)
	if err != nil {
		return err
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
