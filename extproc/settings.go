package extproc

import "attache/internal/hints"

// settings are one configuration with what follows from it. They do not change: a request has the same ones from begin to end.
type settings struct {
	Config

	trust   hints.Groups
	assumed bodyMode
}

func newSettings(cfg Config) *settings {
	s := &settings{Config: cfg, trust: cfg.Hints.Trusted(), assumed: modeBuffered}
	if cfg.AssumeMode == "full_duplex" {
		s.assumed = modeFullDuplex
	}
	return s
}

// Reconfigure serves requests that begin from now on by another configuration, which must have been validated. It must not differ in
// listen, tls, max_message and response_headers: that would have no effect, or half of it. It is safe for concurrent use.
func (s *Server) Reconfigure(cfg Config) { s.settings.Store(newSettings(cfg)) }
