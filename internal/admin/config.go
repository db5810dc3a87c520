package admin

import (
	"net"
	"strconv"
	"time"

	"attache/internal/field"
)

// Config is the operator's listener.
type Config struct {
	// Listen is the TCP address of metrics, health, API and dashboard, as host:port; port 0 takes a free one. There is no
	// authentication and workers can be drained from here: an address that strangers reach hands them that. Kubernetes
	// probes need an address the kubelet reaches, such as ":9902", and workers that register themselves one that they reach.
	Listen string `yaml:"listen"`
	// Pprof serves Go's profiles under /debug/pprof/. They cost nothing until asked for, but they show the command line
	// and slow the process while a profile is taken.
	Pprof bool `yaml:"pprof"`
	// Refresh is how often an open dashboard is sent the state. Shorter than 250ms is refused: a state of hundreds of
	// workers is hundreds of kilobytes.
	Refresh time.Duration `yaml:"refresh"`
	// MaxViewers is how many dashboards may be open at once; one more is answered 503. 0: the page works, but gets no
	// live data.
	MaxViewers int `yaml:"max_viewers"`
}

// DefaultConfig listens on loopback only.
func DefaultConfig() Config {
	return Config{
		Listen:     "127.0.0.1:9902",
		Pprof:      false,
		Refresh:    time.Second,
		MaxViewers: 32,
	}
}

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	check.Check(validListen(c.Listen), "listen", c.Listen, `must be host:port, such as "127.0.0.1:9902" or ":9902"`)
	check.Check(c.Refresh >= 250*time.Millisecond && c.Refresh <= time.Minute, "refresh", c.Refresh, "must be 250ms to 1m")
	check.Check(c.MaxViewers >= 0 && c.MaxViewers <= 1000, "max_viewers", c.MaxViewers, "must be 0 to 1000 viewers")
	return check.Err()
}

func validListen(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}
