package indexer

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"attache/internal/golden"
	"attache/internal/slot"
)

// TestScripts runs testdata/*.txt: a command, a line of dashes, what it prints, an empty line. A prompt is a word, one
// letter per block; a block is shown as the word that leads to it.
func TestScripts(t *testing.T) {
	golden.Scripts(t, func(t *testing.T) func([]string) string { return newStage().run })
}

// stage is a table with a clock and names for its blocks.
type stage struct {
	table *table
	now   uint32
	names map[uint64]string
}

func newStage() *stage {
	return &stage{
		table: newTable(Config{DefaultCapacity: 100, MaxBlocks: 1000, TTL: time.Minute}),
		names: map[uint64]string{},
	}
}

func (s *stage) run(words []string) string {
	number := func(i int) int {
		n, err := strconv.Atoi(words[i])
		if err != nil {
			panic(err)
		}
		return n
	}
	switch words[0] {
	case "limits": // default capacity, global bound
		s.table.defaultCapacity, s.table.bound = number(1), number(2)
	case "remember":
		s.table.remember(slot.Slot(number(1)), s.chain(words[2]), s.now, 1000, new(Mark))
	case "touch":
		s.table.refresh(slot.Slot(number(1)), s.chain(words[2]), s.now, 1000)
	case "capacity":
		s.table.setCapacity(slot.Slot(number(1)), number(2), 1000)
	case "wait":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			panic(err)
		}
		s.now += uint32(d.Seconds())
	case "detach":
		s.table.detach(slot.Slot(number(1)))
	case "overlap":
		line := ""
		for i, n := range s.table.overlap(s.chain(words[1]), s.now, nil) {
			line += fmt.Sprintf("slot %d: %d  ", i, n)
		}
		return strings.TrimSpace(line) + "\n"
	default:
		panic("unknown command " + words[0])
	}
	return s.show()
}

func (s *stage) chain(word string) []uint64 {
	chain := path([]byte(word), map[uint64]uint64{})
	for i, h := range chain {
		s.names[h] = word[:i+1]
	}
	return chain
}

// show prints every owner's blocks from the freshest to the oldest, with the second of the last touch where it changes.
func (s *stage) show() string {
	var out strings.Builder
	for i := 1; i < len(s.table.owners); i++ {
		o := &s.table.owners[i]
		if o.slot == slot.None {
			out.WriteString("cleared:")
		} else {
			fmt.Fprintf(&out, "slot %d:", o.slot)
		}
		at := ^uint32(0)
		for id := o.head; id != 0; id = s.table.at(id).older {
			n := s.table.at(id)
			if n.at != at {
				at = n.at
				fmt.Fprintf(&out, " @%d", at)
			}
			out.WriteString(" " + s.names[n.hash])
		}
		out.WriteByte('\n')
	}
	return out.String()
}
