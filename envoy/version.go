package envoy

import (
	"fmt"
	"strconv"
	"strings"
)

// Version is an Envoy minor version of the 1 series: 40 is Envoy 1.40.
type Version int

// The versions that are known and tested.
const (
	Oldest Version = 38
	Newest Version = 40
)

// ParseVersion reads "1.40", "1.40.0" or "v1.40.0". Versions newer than the newest known are taken for that one.
func ParseVersion(s string) (Version, error) {
	parts := strings.Split(strings.TrimPrefix(s, "v"), ".")
	if len(parts) >= 2 && parts[0] == "1" {
		if minor, err := strconv.Atoi(parts[1]); err == nil {
			if Version(minor) < Oldest {
				return 0, fmt.Errorf("%q: Envoy 1.%d is the oldest that works: older ones do not report who served", s, Oldest)
			}
			return min(Version(minor), Newest), nil
		}
	}
	return 0, fmt.Errorf("%q: must be an Envoy version such as 1.40", s)
}

// String is "1.40".
func (v Version) String() string { return fmt.Sprintf("1.%d", int(v)) }
