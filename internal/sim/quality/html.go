package quality

import "io"

// WriteHTML writes a report.
func WriteHTML(w io.Writer, outcomes []*Outcome) error { return nil }
