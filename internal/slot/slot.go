// Package slot names where a KV cache lives, in integers small enough to index arrays with.
//
// The registry of workers hands out slots; the indexer and the scoring count and compare them without knowing what a
// worker is. The package is a leaf: it imports nothing of ours.
package slot

// Slot is one (worker, rank) pair as a small dense integer: valid slots count up from 0, and a slot that was freed is
// handed out again only after a quarantine, so an array indexed by Slot stays short.
type Slot uint32

// None is no slot.
const None = ^Slot(0)

// Rank is a data-parallel rank inside a worker; 0 when there is only one.
type Rank uint16

// Tier says in which memory of a worker a block lives. Lower is faster to reach.
type Tier uint8

// The tiers, from the accelerator outwards.
const (
	Device Tier = iota
	Host
	Disk
	Remote
)

// String names the tier as it appears in metrics and in explanations.
func (t Tier) String() string {
	switch t {
	case Device:
		return "device"
	case Host:
		return "host"
	case Disk:
		return "disk"
	case Remote:
		return "remote"
	default:
		return "unknown"
	}
}
