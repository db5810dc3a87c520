package wire

import (
	"fmt"
	"strings"
)

// describe writes a decoded batch as lines: one for the batch, one for each event, one for what was not understood.
func describe(b *Batch, payload []byte) string {
	var s strings.Builder
	fmt.Fprintf(&s, "batch time=%v", b.Time)
	if b.HasRank {
		fmt.Fprintf(&s, " rank=%d", b.Rank)
	}
	for i := range b.Events {
		s.WriteByte('\n')
		describeEvent(&s, &b.Events[i], payload)
	}
	s.WriteString(describeCounts(b.Counts.UnknownTags, b.Counts.ExtraFields, b.Counts.OpaqueKeys, b.Counts.Missed()))
	return s.String()
}

func describeCounts(unknown, extra, opaque, missed int) string {
	if unknown+extra+opaque+missed == 0 {
		return ""
	}
	return fmt.Sprintf("\ncounts unknown=%d extra=%d opaque=%d missed=%d", unknown, extra, opaque, missed)
}

var kinds = map[Kind]string{Stored: "stored", Removed: "removed", Cleared: "cleared", Created: "created"}

func describeEvent(s *strings.Builder, e *Event, payload []byte) {
	s.WriteString(kinds[e.Kind])
	say := func(name string, is bool, v any) {
		if is {
			fmt.Fprintf(s, " %s=%v", name, v)
		}
	}
	text := func(name string, v Span) { say(name, !v.Empty(), fmt.Sprintf("%q", v.In(payload))) }
	say("tier", e.Tier != TierUnsaid, e.Tier)
	text("medium", e.Medium)
	say("hashes", e.Kind == Stored || e.Kind == Removed, e.Hashes)
	say("digests", e.Digests, e.Digests)
	say("parent", e.HasParent, e.Parent)
	say("tokens", e.Kind == Stored, e.Tokens)
	say("next", e.Bigram, e.NextToken)
	say("size", e.BlockTokens != 0, e.BlockTokens)
	say("copies", len(e.Copies) > 0, e.Copies)
	text("lora", e.LoRA)
	say("lora_id", e.HasLoRAID, e.LoRAID)
	text("salt", e.Salt)
	for _, k := range e.Keys {
		fmt.Fprintf(s, " key=%d/%d/%q%+d#%x", k.Block, k.Form, k.At.In(payload), k.Offset, k.Hash)
	}
	say("group", e.HasGroup, e.Group)
	say("spec", e.Spec != SpecUnsaid, int(e.Spec))
	text("specs", e.SpecText)
	say("window", e.Window != 0, e.Window)
	say("locality", e.Locality != LocalityUnsaid, e.Locality)
	text("ownership", e.Ownership)
	text("session", e.Session)
	say("rank", e.HasRank, e.Rank)
	say("id", e.ID != 0, e.ID)
}
