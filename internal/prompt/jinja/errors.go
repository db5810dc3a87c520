package jinja

import (
	"errors"
	"fmt"
)

// SyntaxError is what Parse returns for a template that does not follow the language.
type SyntaxError struct {
	Position

	Message string // what was found, and what was expected
}

func (e *SyntaxError) Error() string { return e.String() + ": " + e.Message }

// Fault is an error of a template, or of a template with the variables that it was given, while rendering.
type Fault struct { //nolint:errname // the other errors of a rendering have names of their own
	Position

	Message string
}

func (e *Fault) Error() string { return e.String() + ": " + e.Message }

// RaisedError is an error that the template raised on purpose, by calling raise_exception: it refuses the conversation.
type RaisedError struct {
	Position

	Message string // the argument of raise_exception
}

func (e *RaisedError) Error() string { return e.String() + ": " + e.Message }

// Budget names one of the bounds of Options.
type Budget string

// The budgets.
const (
	Steps  Budget = "steps"
	Output Budget = "output"
	Time   Budget = "time"
	Depth  Budget = "depth"
)

// BudgetError tells that a rendering used up one of its budgets.
type BudgetError struct {
	Position

	Budget Budget
	Limit  int64 // in steps, bytes, or levels; 0 for the time
}

func (e *BudgetError) Error() string {
	if e.Budget == Time {
		return e.String() + ": not done by the deadline"
	}
	return fmt.Sprintf("%s: more than %d of %s", e.Position, e.Limit, e.Budget)
}

// Position is a place in a template.
type Position struct {
	Name         string // of the template
	Line, Column int    // from 1 on; columns count characters
}

func (p Position) String() string { return fmt.Sprintf("%s:%d:%d", p.Name, p.Line, p.Column) }

func faultf(format string, a ...any) error { return &Fault{Message: fmt.Sprintf(format, a...)} }

// undefinedError is the error of using an undefined value for anything but printing, testing, and walking.
func undefinedError(v Value) error {
	name := Value{kind: KindString, n: v.n, p: v.p}.str()
	switch v.flag {
	case flagHint:
		return &Fault{Message: name}
	case flagAttribute:
		return faultf("the object has no attribute %q", name)
	default:
		return faultf("%q is undefined", name)
	}
}

// locate adds the position to an error that has none yet.
func (t *Template) locate(err error, pos int32) error {
	var p *Position
	var fault *Fault
	var raised *RaisedError
	var budget *BudgetError
	switch {
	case errors.As(err, &fault):
		p = &fault.Position
	case errors.As(err, &raised):
		p = &raised.Position
	case errors.As(err, &budget):
		p = &budget.Position
	}
	if p != nil && p.Line == 0 {
		*p = t.position(pos)
	}
	return err
}

func (t *Template) position(pos int32) Position { return positionIn(t.name, t.source, pos) }

func positionIn(name, source string, pos int32) Position {
	p := Position{Name: name, Line: 1}
	start := 0
	for i := range min(int(pos), len(source)) {
		if source[i] == '\n' {
			p.Line++
			start = i + 1
		}
	}
	p.Column = runeCount(source[start:min(int(pos), len(source))]) + 1
	return p
}
