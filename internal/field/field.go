// Package field is what the Config of every package shares: errors that name a configuration field, what it holds and
// the rule it breaks, and the size type with units. It is a leaf: it imports nothing of ours.
package field

import (
	"errors"
	"fmt"
	"strings"
)

// Error says which configuration field is wrong, what it holds and what was expected.
type Error struct {
	// Path leads to the field by its YAML keys, as in "pools[0].block_size"; the loader turns it into a line number.
	Path string
	// Value is what the field holds.
	Value any
	// Rule is what was expected, as the end of a sentence: "must be above 0 tokens".
	Rule string
}

// Error reads as "path: value: rule"; text values are quoted so that an empty one shows.
func (e *Error) Error() string {
	switch v := e.Value.(type) {
	case nil:
		return fmt.Sprintf("%s: %s", e.Path, e.Rule)
	case string:
		return fmt.Sprintf("%s: %q: %s", e.Path, v, e.Rule)
	default:
		return fmt.Sprintf("%s: %v: %s", e.Path, v, e.Rule)
	}
}

// Checker collects the errors of one Validate, so that a user sees all of them at once. The zero value is ready.
type Checker struct{ errs []error }

// Check records an error unless ok.
func (c *Checker) Check(ok bool, path string, value any, rule string) {
	if !ok {
		c.errs = append(c.errs, &Error{Path: path, Value: value, Rule: rule})
	}
}

// Under records the errors of a part of the configuration, their paths prefixed with the part's own.
func (c *Checker) Under(prefix string, err error) {
	for _, e := range All(err) {
		moved := *e
		switch {
		case moved.Path == "":
			moved.Path = prefix
		case strings.HasPrefix(moved.Path, "["):
			moved.Path = prefix + moved.Path
		default:
			moved.Path = prefix + "." + moved.Path
		}
		c.errs = append(c.errs, &moved)
	}
}

// Err returns what was recorded: nil, or an error that All takes apart again.
func (c *Checker) Err() error { return errors.Join(c.errs...) }

// All returns the field errors inside err, in the order they were recorded. An error of another kind becomes one with
// an empty path.
func All(err error) []*Error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*Error
		for _, e := range joined.Unwrap() {
			all = append(all, All(e)...)
		}
		return all
	}
	var fe *Error
	if errors.As(err, &fe) {
		return []*Error{fe}
	}
	return []*Error{{Rule: err.Error()}}
}
