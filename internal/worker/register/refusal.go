package register

import (
	"fmt"
	"strconv"
)

// RefusedError is why a worker was not taken in. Its text is for the person who started the worker.
type RefusedError struct {
	Kind Kind
	Text string
}

// Error implements error.
func (r *RefusedError) Error() string { return r.Text }

// Kind is what a refusal is about, and so what helps.
type Kind int

// The kinds of refusals.
const (
	Invalid  Kind = iota // what was said breaks a rule: say something else
	TooLarge             // it is too much
	Off                  // workers cannot register here: configure it
	Stranger             // the token is missing, or another one
	Unknown              // nobody of that name is registered: register again
	Taken                // the name or the address is another worker's
	Full                 // there are as many as may be
)

func invalid(where string, value any, rule string, args ...any) error {
	if s, is := value.(string); is {
		value = strconv.Quote(s)
	}
	return invalidf("%s: %v: %s", where, value, fmt.Sprintf(rule, args...))
}

func invalidf(format string, args ...any) error {
	return &RefusedError{Kind: Invalid, Text: fmt.Sprintf(format, args...)}
}
