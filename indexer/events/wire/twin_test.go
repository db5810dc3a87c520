package wire

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"
)

// The dumb twin of Decode: it reads MessagePack into a tree, then walks the tree and writes the same lines as describe.

// node is a value of any type.
type node struct {
	kind rune // 'z' nil, 'i' integer, 'f' float, 's' string, 'x' bytes, 'l' list, 'm' map (keys and values in turn), '?' others
	u    uint64
	neg  bool
	f    float64
	s    []byte
	list []node
	raw  []byte
}

var errDumb = errors.New("not MessagePack")

// dumb reads one value and returns what is behind it. Broken input panics with errDumb or an index out of range.
func dumb(b []byte) (n node, rest []byte) {
	all := b
	c := b[0]
	b = b[1:]
	size := func(width int) (v uint64) {
		for range width {
			v = v<<8 | uint64(b[0])
			b = b[1:]
		}
		return v
	}
	take := func(k uint64) (s []byte) {
		if k > uint64(len(b)) {
			panic(errDumb)
		}
		s, b = b[:k:k], b[k:]
		return s
	}
	list := func(k uint64) {
		for range k {
			var one node
			one, b = dumb(b)
			n.list = append(n.list, one)
		}
	}
	switch {
	case c <= 0x7f:
		n.kind, n.u = 'i', uint64(c)
	case c <= 0x8f:
		n.kind = 'm'
		list(2 * uint64(c&15))
	case c <= 0x9f:
		n.kind = 'l'
		list(uint64(c & 15))
	case c <= 0xbf:
		n.kind, n.s = 's', take(uint64(c&31))
	case c == 0xc0:
		n.kind = 'z'
	case c == 0xc1:
		panic(errDumb)
	case c <= 0xc3:
		n.kind = '?'
	case c <= 0xc6:
		n.kind, n.s = 'x', take(size(1<<(c-0xc4)))
	case c <= 0xc9:
		n.kind = '?'
		k := size(1 << (c - 0xc7))
		take(k + 1)
	case c == 0xca:
		n.kind, n.f = 'f', float64(math.Float32frombits(uint32(size(4))))
	case c == 0xcb:
		n.kind, n.f = 'f', math.Float64frombits(size(8))
	case c <= 0xcf:
		n.kind, n.u = 'i', size(1<<(c-0xcc))
	case c <= 0xd3:
		width := 1 << (c - 0xd0)
		shift := 64 - 8*width
		v := int64(size(width)<<shift) >> shift
		n.kind, n.u, n.neg = 'i', uint64(v), v < 0
	case c <= 0xd8:
		n.kind = '?'
		take(1 + 1<<(c-0xd4))
	case c <= 0xdb:
		n.kind, n.s = 's', take(size(1<<(c-0xd9)))
	case c <= 0xdd:
		n.kind = 'l'
		list(size(2 << (c - 0xdc)))
	case c <= 0xdf:
		n.kind = 'm'
		list(2 * size(2<<(c-0xde)))
	default:
		n.kind, n.u, n.neg = 'i', uint64(int64(int8(c))), true
	}
	n.raw = all[:len(all)-len(b)]
	return n, b
}

// dumbTree reads a payload; ok is false if it is broken.
func dumbTree(payload []byte) (n node, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	n, rest := dumb(payload)
	return n, len(rest) == 0
}

// jsonTree reads the decoding that a recording brings along.
func jsonTree(v any) node {
	switch v := v.(type) {
	case nil:
		return node{kind: 'z'}
	case string:
		return node{kind: 's', s: []byte(v)}
	case json.Number:
		if i, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return node{kind: 'i', u: uint64(i), neg: i < 0}
		}
		if u, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return node{kind: 'i', u: u}
		}
		f, _ := v.Float64()
		return node{kind: 'f', f: f}
	case []any:
		n := node{kind: 'l'}
		for _, one := range v {
			n.list = append(n.list, jsonTree(one))
		}
		return n
	case map[string]any:
		if s, ok := v["bytes_hex"].(string); ok && len(v) == 1 {
			b, _ := hex.DecodeString(s)
			return node{kind: 'x', s: b}
		}
		n := node{kind: 'm'}
		for key, one := range v {
			n.list = append(n.list, node{kind: 's', s: []byte(key)}, jsonTree(one))
		}
		return n
	default:
		return node{kind: '?'}
	}
}

// twin walks the tree of a batch.
type twin struct {
	time                           float64
	rank                           node
	events                         []string
	unknown, extra, opaque, missed int
}

func (n node) number() (float64, bool) {
	switch {
	case n.kind == 'f':
		return n.f, true
	case n.kind == 'i' && n.neg:
		return float64(int64(n.u)), true
	case n.kind == 'i':
		return float64(n.u), true
	default:
		return 0, false
	}
}

func (n node) upTo(limit uint64) bool { return n.kind == 'i' && !n.neg && n.u <= limit }

// describeTwin is describe of the batch in a tree; ok is false where Decode reports an error.
func describeTwin(batch node) (lines string, ok bool) {
	var w twin
	var events node
	set := func(name string, n node) {
		switch {
		case name == "ts":
			f, ok := n.number()
			if w.time = f; !ok && n.kind != 'z' {
				w.extra++
			}
		case name == "events" && events.kind == 0:
			events = n
		case name == "rank" || name == "data_parallel_rank" || name == "attn_dp_rank":
			if n.kind == 'z' {
				return
			}
			if w.rank = n; !n.upTo(math.MaxInt32) {
				w.rank = node{}
				w.extra++
			}
		default:
			w.extra++
		}
	}
	switch batch.kind {
	case 'l':
		if len(batch.list) < 2 {
			return "", false
		}
		for i, n := range batch.list {
			set([]string{"ts", "events", "rank", ""}[min(i, 3)], n)
		}
	case 'm':
		for i := 0; i < len(batch.list); i += 2 {
			name := ""
			if batch.list[i].kind == 's' {
				name = string(batch.list[i].s)
			}
			if name == "rank" {
				name = ""
			}
			set(name, batch.list[i+1])
		}
	}
	if events.kind != 'l' {
		return "", false
	}
	for _, e := range events.list {
		w.event(e)
	}
	s := fmt.Sprintf("batch time=%v", w.time)
	rank := ""
	if w.rank.kind != 0 {
		rank = fmt.Sprintf(" rank=%d", w.rank.u)
	}
	s += rank
	for _, e := range w.events {
		s += "\n" + e + rank
	}
	return s + describeCounts(w.unknown, w.extra, w.opaque, w.missed), true
}

// twinEvent is an event in the making: fields by name, the last of equal names that is not nil.
type twinEvent struct {
	kind    string
	fields  map[string]node
	told    map[string]bool
	digests bool
	extra   int
	wrong   bool
	keys    node // of extra_keys or block_mm_infos
}

var twinNames = strings.Fields("block_hashes parent_block_hash token_ids block_size lora_id medium lora_name extra_keys group_idx " +
	"kv_cache_spec_kind kv_cache_spec_sliding_window locality ownership session_id cache_salt block_mm_infos remaining_copy_counts")

var twinKinds = map[string]string{"BlockStored": "stored", "BlockRemoved": "removed", "AllBlocksCleared": "cleared"}

func (w *twin) event(n node) {
	e := twinEvent{fields: map[string]node{}, told: map[string]bool{}}
	shape := false
	switch {
	case n.kind == 'l' && len(n.list) > 0 && n.list[0].kind == 's':
		e.kind = twinKinds[string(n.list[0].s)]
		var order []string
		switch e.kind {
		case "":
			w.unknown++
			return
		case "stored":
			order = twinNames[:11]
		case "removed":
			order = strings.Fields("block_hashes medium group_idx")
		}
		for i, v := range n.list[1:] {
			switch {
			case i >= len(order):
				e.extra++
			case order[i] == "lora_name" && v.kind == 'm':
				e.members(v, true)
			default:
				e.set(order[i], v)
			}
		}
	case n.kind == 'm':
		known, told := e.members(n, false)
		if told && !known {
			w.unknown++
			return
		}
		shape = !told
	default:
		shape = true
	}
	if e.kind != "cleared" && (!e.told["block_hashes"] || e.kind == "stored" && (!e.told["token_ids"] || !e.told["block_size"])) {
		shape = true
	}
	if shape || e.wrong {
		w.missed++
		return
	}
	w.extra += e.extra
	w.events = append(w.events, e.describe(w))
}

func (e *twinEvent) members(n node, inside bool) (known, told bool) {
	for i := 0; i < len(n.list); i += 2 {
		key, v := n.list[i], n.list[i+1]
		name := string(key.s)
		switch {
		case key.kind == 's' && name == "type" && !told && !inside:
			if v.kind != 's' {
				return false, false
			}
			told = true
			e.kind = twinKinds[string(v.s)]
			if e.kind == "" {
				return false, true
			}
		case key.kind == 's' && slices.Contains(twinNames, name):
			e.set(name, v)
		default:
			e.extra++
		}
	}
	return true, told
}

// set takes the value of a field, if it is of the right type.
func (e *twinEvent) set(name string, v node) {
	e.told[name] = true
	if v.kind == 'z' {
		return
	}
	ok := true
	switch name {
	case "block_hashes":
		ok = v.kind == 'l' && len(v.list) <= MaxHashes
		for _, h := range v.list {
			_, is := twinHash(h)
			ok = ok && is
			e.digests = e.digests || h.kind == 'x'
		}
	case "parent_block_hash":
		_, ok = twinHash(v)
		e.digests = e.digests || v.kind == 'x'
	case "token_ids":
		_, _, _, ok = twinTokens(v)
	case "remaining_copy_counts":
		ok = v.kind == 'l' && len(v.list) <= MaxHashes
		for _, c := range v.list {
			ok = ok && c.upTo(math.MaxUint32)
		}
	case "block_size", "kv_cache_spec_sliding_window":
		ok = v.upTo(math.MaxUint32)
	case "group_idx":
		ok = v.upTo(math.MaxInt32)
	case "lora_id":
		ok = v.kind == 'i' && (v.neg || v.u <= math.MaxInt64)
	case "extra_keys", "block_mm_infos":
		if v.kind == 'l' && !slices.ContainsFunc(v.list, func(n node) bool { return n.kind != 'z' }) {
			return
		}
		if name == "extra_keys" || e.keys.kind == 0 {
			e.keys = v
		}
	default:
		ok = v.kind == 's'
	}
	e.wrong = e.wrong || !ok
	e.fields[name] = v
}

func twinHash(n node) (uint64, bool) {
	switch {
	case n.kind == 'i':
		return n.u, true
	case n.kind == 'x' && len(n.s) > 0:
		var last [8]byte
		tail := n.s[max(0, len(n.s)-8):]
		copy(last[8-len(tail):], tail)
		return binary.BigEndian.Uint64(last[:]), true
	default:
		return 0, false
	}
}

func twinTokens(n node) (tokens []uint32, bigram bool, next uint32, ok bool) {
	if n.kind != 'l' || len(n.list) > MaxTokens {
		return nil, false, 0, false
	}
	bigram = len(n.list) > 0 && n.list[0].kind == 'l'
	for i, t := range n.list {
		if bigram {
			if t.kind != 'l' || len(t.list) != 2 || !t.list[1].upTo(math.MaxUint32) || i > 0 && t.list[0].u != uint64(next) {
				return nil, false, 0, false
			}
			next = uint32(t.list[1].u)
			t = t.list[0]
		}
		if !t.upTo(math.MaxUint32) {
			return nil, false, 0, false
		}
		tokens = append(tokens, uint32(t.u))
	}
	return tokens, bigram, next, true
}

func (e *twinEvent) describe(w *twin) string {
	var s strings.Builder
	s.WriteString(e.kind)
	text := func(label, name string) {
		if n := e.fields[name]; len(n.s) > 0 {
			fmt.Fprintf(&s, " %s=%q", label, n.s)
		}
	}
	number := func(label, name string, zero bool) {
		switch n := e.fields[name]; {
		case n.kind == 0 || n.u == 0 && !zero:
		case n.neg:
			fmt.Fprintf(&s, " %s=%d", label, int64(n.u))
		default:
			fmt.Fprintf(&s, " %s=%d", label, n.u)
		}
	}
	if m := e.fields["medium"]; len(m.s) > 0 {
		tier := "other"
		for name, t := range map[string]string{"gpu": "device", "cpu": "host", "cpu_pinned": "host", "disk": "disk", "storage": "disk",
			"external": "remote", "remote": "remote", "localcpubackend": "host", "localdiskbackend": "disk", "remotebackend": "remote"} {
			if strings.EqualFold(name, string(m.s)) && len(m.s) == len(name) {
				tier = t
			}
		}
		fmt.Fprintf(&s, " tier=%s", tier)
	}
	text("medium", "medium")
	hashes := []uint64{}
	for _, h := range e.fields["block_hashes"].list {
		v, _ := twinHash(h)
		hashes = append(hashes, v)
	}
	if e.kind != "cleared" {
		fmt.Fprintf(&s, " hashes=%v", hashes)
	}
	if e.digests {
		s.WriteString(" digests=true")
	}
	if p := e.fields["parent_block_hash"]; p.kind != 0 {
		h, _ := twinHash(p)
		fmt.Fprintf(&s, " parent=%d", h)
	}
	tokens, bigram, next, _ := twinTokens(e.fields["token_ids"])
	if e.kind == "stored" {
		fmt.Fprintf(&s, " tokens=%v", tokens)
	}
	if bigram {
		fmt.Fprintf(&s, " next=%d", next)
	}
	number("size", "block_size", false)
	if c := e.fields["remaining_copy_counts"]; len(c.list) > 0 {
		copies, _, _, _ := twinTokens(c)
		fmt.Fprintf(&s, " copies=%v", copies)
	}
	text("lora", "lora_name")
	number("lora_id", "lora_id", true)
	salt, keys := string(e.fields["cache_salt"].s), ""
	if e.kind != "cleared" {
		salt, keys = e.extraKeys(w, salt, len(hashes))
	}
	if salt != "" {
		fmt.Fprintf(&s, " salt=%q", salt)
	}
	s.WriteString(keys)
	number("group", "group_idx", true)
	if spec := e.fields["kv_cache_spec_kind"]; len(spec.s) > 0 {
		kinds := strings.Fields("full_attention mla_attention sliding_window sliding_window_mla mamba chunked_local_attention " +
			"sink_full_attention encoder_only_attention cross_attention unknown")
		i := slices.Index(kinds, string(spec.s))
		if i < 0 {
			i = len(kinds)
		}
		fmt.Fprintf(&s, " spec=%d", i+1)
	}
	text("specs", "kv_cache_spec_kind")
	number("window", "kv_cache_spec_sliding_window", false)
	if l := e.fields["locality"]; len(l.s) > 0 {
		switch strings.ToUpper(string(l.s)) {
		case "LOCAL":
			s.WriteString(" locality=1")
		case "REMOTE":
			s.WriteString(" locality=2")
		default:
			s.WriteString(" locality=3")
		}
	}
	text("ownership", "ownership")
	text("session", "session_id")
	return s.String()
}

// extraKeys tells names, salts and media apart.
func (e *twinEvent) extraKeys(w *twin, salt string, blocks int) (foundSalt, keys string) {
	lora := string(e.fields["lora_name"].s)
	write := func(block int, form KeyForm, text []byte, offset int64) {
		keys += fmt.Sprintf(" key=%d/%d/%q%+d#%x", block, form, text, offset, xxh3.Hash(text))
	}
	if e.keys.kind == 0 || blocks == 0 {
		return salt, ""
	}
	if e.keys.kind != 'l' {
		w.opaque++
		write(0, Opaque, e.keys.raw, 0)
		return salt, keys
	}
	given := salt
	for block, entry := range e.keys.list {
		if block >= blocks || entry.kind == 'z' {
			continue
		}
		if entry.kind != 'l' {
			w.opaque++
			write(block, Opaque, entry.raw, 0)
			continue
		}
		parts := slices.Clone(entry.list)
		if lora != "" {
			if i := slices.IndexFunc(parts, func(n node) bool { return n.kind == 's' && string(n.s) == lora }); i >= 0 {
				parts = slices.Delete(parts, i, i+1)
			}
		}
		if block == 0 && given == "" && e.fields["parent_block_hash"].kind == 0 {
			last := -1
			for i, p := range parts {
				if p.kind == 's' {
					last = i
				}
			}
			if last >= 0 {
				salt = string(parts[last].s)
				parts = slices.Delete(parts, last, last+1)
			}
		} else if salt != "" {
			parts = slices.DeleteFunc(parts, func(n node) bool { return n.kind == 's' && string(n.s) == salt })
		}
		for _, p := range parts {
			switch {
			case p.kind == 's':
				write(block, Text, p.s, 0)
			case p.kind == 'x':
				write(block, Digest, p.s, 0)
			case p.kind == 'l' && len(p.list) == 2 && p.list[0].kind == 's' && p.list[1].kind == 'i' &&
				(p.list[1].neg || p.list[1].u <= math.MaxInt64):
				write(block, Item, p.list[0].s, int64(p.list[1].u))
			default:
				w.opaque++
				write(block, Opaque, p.raw, 0)
			}
		}
	}
	return salt, keys
}
