package pages

// Stats are the figures of a Joiner.
type Stats struct {
	counters

	Pages   int // remembered, on whatever tier, those that wait included
	Waiting int // pages whose parent is not known
	Blocks  [tiers]int
	Lines   int
	Bytes   int // memory in use, but for small change
}

// counters count since the Joiner was made.
type counters struct {
	Dropped   uint64 // pages that waited and were forgotten
	Refused   uint64 // pages that were not taken, as Limit or Waiting was reached
	Unknown   uint64 // removals of pages that were not held
	Saturated uint64 // announcements of pages that were held 256 times already: not counted
	Malformed uint64 // calls that make no sense: another number of tokens than of pages, tiers out of range
}

// joinerBytes stand for the Joiner itself and for its buffers.
const joinerBytes = 4096

// Stats returns the figures.
func (j *Joiner) Stats() Stats {
	return Stats{
		Pages: j.pages, Waiting: j.waiting, Blocks: j.blocks, Lines: j.lines, Bytes: j.bytes, counters: j.counts,
	}
}
