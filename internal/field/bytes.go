package field

import (
	"fmt"
	"strconv"
	"strings"
)

// Bytes is a size in bytes. In YAML it is a number of bytes or a number with a unit: "512KiB", "16MiB", "1GiB".
type Bytes int64

// The units, binary as memory is.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
)

var units = []struct {
	suffix string
	size   Bytes
}{{"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", 1}}

// BytesRule is what ParseBytes expects, as the end of a sentence.
const BytesRule = "must be a size such as 65536, 512KiB, 16MiB or 1GiB"

// ParseBytes reads "16MiB", "16 MiB" or "16777216". The error says what is understood.
func ParseBytes(s string) (Bytes, error) {
	number, unit := strings.TrimSpace(s), Bytes(1)
	for _, u := range units {
		if cut, ok := strings.CutSuffix(number, u.suffix); ok {
			number, unit = strings.TrimSpace(cut), u.size
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > int64(1<<62)/int64(unit) {
		return 0, fmt.Errorf("%q: %s", s, BytesRule)
	}
	return Bytes(n) * unit, nil
}

// String uses the largest unit that leaves a whole number.
func (b Bytes) String() string {
	for _, u := range units {
		if b >= u.size && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// UnmarshalText reads the YAML form.
func (b *Bytes) UnmarshalText(text []byte) error {
	v, err := ParseBytes(string(text))
	if err != nil {
		return err
	}
	*b = v
	return nil
}

// MarshalText writes the YAML form.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }
