package admin

import (
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// Figure is a number that may be unknown: null in JSON, a dash on the page. The zero value is unknown, so that a figure
// nobody filled in never reads as a measured 0. It is written with at most six decimals (microseconds, when in seconds).
type Figure struct {
	value float64
	known bool
}

// Known makes a figure of a number; NaN and infinities, which JSON cannot carry, make an unknown one.
func Known[T ~int | ~int32 | ~int64 | ~uint32 | ~uint64 | ~float64](v T) Figure {
	f := float64(v)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return Figure{}
	}
	return Figure{value: f, known: true}
}

// Seconds makes a figure of a duration.
func Seconds(d time.Duration) Figure { return Known(d.Seconds()) }

// Share makes the figure part/whole, unknown when the whole is 0.
func Share[T ~int | ~int64 | ~uint64 | ~float64](part, whole T) Figure {
	return Known(float64(part) / float64(whole))
}

// Get returns the number, and whether it is known.
func (f Figure) Get() (float64, bool) { return f.value, f.known }

// MarshalJSON writes a number or null.
func (f Figure) MarshalJSON() ([]byte, error) {
	if !f.known {
		return []byte("null"), nil
	}
	v := f.value
	if math.Abs(v) < 1e9 { // beyond that a float has no six decimals to round to
		v = math.Round(v*1e6) / 1e6
	}
	if v == 0 {
		v = 0 // no "-0"
	}
	if math.Abs(v) >= 1e21 {
		return json.Marshal(v)
	}
	return strconv.AppendFloat(nil, v, 'f', -1, 64), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (f *Figure) UnmarshalJSON(text []byte) error {
	var v *float64
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	*f = Figure{}
	if v != nil {
		*f = Known(*v)
	}
	return nil
}
