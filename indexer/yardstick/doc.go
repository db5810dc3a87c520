// Package yardstick is what indexes of prompt blocks are measured on: seeded and recorded inputs, and the answers that every
// right index must give, whatever it is made of.
//
// In the common case an input's stores are applied, its queries are asked and the answers summed up, its removes are
// applied, and some queries are asked again: the sums must be those that stand here. The seeded input and the one of the
// trace are those on which other projects' indexes were measured as well, so that figures can stand side by side.
//
// Files: synthetic.go the seeded input; trace.go a recorded one; long.go very long prompts; replay.go the trace as a fleet
// of workers with bounded caches would have it.
package yardstick
