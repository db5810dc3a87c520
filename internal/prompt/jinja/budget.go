package jinja

import "time"

// Options bound a rendering, because templates are data, and give it the time of day. Zero fields have defaults.
type Options struct {
	// MaxSteps bounds the work: statements, operations, turns of loops, and elements and texts (one step per stepBytes)
	// that are made on the way. Default DefaultMaxSteps.
	MaxSteps int
	// MaxOutput bounds the output in bytes, and every text on the way. Default DefaultMaxOutput.
	MaxOutput int
	// Deadline is when a rendering gives up. The zero time is never. It is looked at every few thousand steps.
	Deadline time.Time
	// Now is what strftime_now formats. The time zone is that of the time. Default time.Now, which is in local time, as it is
	// in Python.
	Now func() time.Time
}

// Defaults of Options.
const (
	DefaultMaxSteps  = 4 << 20
	DefaultMaxOutput = 16 << 20
)

const (
	maxDepth     = 200  // calls of macros within each other
	maxValue     = 1000 // values within each other, when they are printed or compared
	stepBytes    = 64   // bytes of text that count as a step
	stepsPerLook = 4096 // steps between looks at the clock
	maxRange     = 100_000
	maxDigits    = 4300 // of integers in text, as in Python
)

// spend takes n steps.
func (r *renderer) spend(n int) error {
	if r.left -= n; r.left >= 0 {
		return nil
	}
	return r.refill()
}

// refill looks at the budgets and allows the next few steps.
func (r *renderer) refill() error {
	if r.left+r.reserve < 0 {
		return &BudgetError{Budget: Steps, Limit: int64(r.options.MaxSteps)}
	}
	if !r.options.Deadline.IsZero() && time.Now().After(r.options.Deadline) {
		return &BudgetError{Budget: Time}
	}
	r.reserve += r.left
	r.left = min(r.reserve, stepsPerLook)
	r.reserve -= r.left
	return nil
}

// text takes the budget of making a text of n bytes.
func (r *renderer) text(n int) error {
	if n > r.options.MaxOutput {
		return &BudgetError{Budget: Output, Limit: int64(r.options.MaxOutput)}
	}
	return r.spend(n / stepBytes)
}

// write appends to the output.
func (r *renderer) write(s string) error {
	if len(r.out)-r.start+len(s) > r.options.MaxOutput {
		return &BudgetError{Budget: Output, Limit: int64(r.options.MaxOutput)}
	}
	r.out = append(r.out, s...)
	return nil
}

// cut takes what was written since mark off the output.
func (r *renderer) cut(mark int) (string, error) {
	if err := r.text(len(r.out) - mark); err != nil {
		return "", err
	}
	s := string(r.out[mark:])
	r.out = r.out[:mark]
	return s, nil
}
