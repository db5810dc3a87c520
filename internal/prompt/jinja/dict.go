package jinja

// Dict is a mapping that keeps the order in which its keys were first set, as Python's does. It is safe for concurrent
// reading as long as nobody sets.
type Dict struct {
	entries []entry
	index   map[string]int32 // of the string keys, once there are more than a few
}

type entry struct{ key, value Value }

// fewKeys is how many keys are faster to compare than to hash.
const fewKeys = 8

// NewDict makes an empty mapping with room for n keys.
func NewDict(n int) *Dict { return &Dict{entries: make([]entry, 0, n)} }

// Len counts the keys.
func (d *Dict) Len() int { return len(d.entries) }

// Set sets the value of a key. A key that was set before keeps its place.
func (d *Dict) Set(key string, value Value) { d.set(String(key), value) }

// Get is the value of a key.
func (d *Dict) Get(key string) (Value, bool) {
	if i := d.find(key); i >= 0 {
		return d.entries[i].value, true
	}
	return Value{}, false
}

// Keys lists the keys that are strings, in order.
func (d *Dict) Keys() []string {
	keys := make([]string, 0, len(d.entries))
	for _, e := range d.entries {
		if e.key.kind == KindString {
			keys = append(keys, e.key.str())
		}
	}
	return keys
}

// find is the place of a string key, or -1.
func (d *Dict) find(key string) int {
	if d.index != nil {
		if i, ok := d.index[key]; ok {
			return int(i)
		}
		return -1
	}
	for i := range d.entries {
		if k := d.entries[i].key; k.kind == KindString && int(k.n) == len(key) && k.str() == key {
			return i
		}
	}
	return -1
}

// lookup is the place of a key of any kind, or -1. Keys that are no strings are rare, and few.
func (d *Dict) lookup(key Value) int {
	if key.kind == KindString {
		return d.find(key.str())
	}
	for i := range d.entries {
		if equal(d.entries[i].key, key) {
			return i
		}
	}
	return -1
}

func (d *Dict) set(key, value Value) {
	if i := d.lookup(key); i >= 0 {
		d.entries[i].value = value
		return
	}
	d.entries = append(d.entries, entry{key, value})
	switch {
	case d.index != nil:
		if key.kind == KindString {
			d.index[key.str()] = int32(len(d.entries) - 1)
		}
	case len(d.entries) > fewKeys:
		d.index = make(map[string]int32, 2*len(d.entries))
		for i, e := range d.entries {
			if e.key.kind == KindString {
				d.index[e.key.str()] = int32(i)
			}
		}
	}
}

func (d *Dict) copy() *Dict {
	out := NewDict(len(d.entries))
	for _, e := range d.entries {
		out.set(e.key, e.value)
	}
	return out
}

// hashable tells whether v may be a key.
func hashable(v Value) bool {
	fuel := maxKey
	return hashableWithin(v, &fuel)
}

// maxKey bounds the elements of tuples that are keys: tuples that share parts many times over might take for ever.
const maxKey = 1 << 12

func hashableWithin(v Value, fuel *int) bool {
	if *fuel--; *fuel < 0 {
		return false
	}
	switch v.kind {
	case KindList, KindDict, KindView, KindNamespace, kindSlice:
		return false
	case KindTuple:
		for _, item := range v.items() {
			if !hashableWithin(item, fuel) {
				return false
			}
		}
	}
	return true
}
