package jinja

import (
	"math"
	"math/big"
	"unsafe"
)

// Kind tells what a Value is.
type Kind uint8

// The kinds of values. Those without a constructor come from templates only.
const (
	KindUndefined Kind = iota
	KindNone
	KindBool
	KindInt
	KindFloat
	KindString
	KindList
	KindTuple
	KindDict
	KindRange
	KindView
	KindIterator
	KindNamespace
	KindCallable
	KindLoop
	kindSlice // the a:b:c of a subscript
)

// Value is a value of the template language. The zero Value is undefined. Values are small and meant to be copied; what they
// refer to is never changed by a rendering, so they may be shared by goroutines.
//
// What a value holds depends on its kind:
//
//	kind        n                         p
//	Undefined   length of its name        the name, see undefinedOf
//	Bool, Int   the number                nil, or *big.Int if it needs more than 64 bits
//	Float       the bits                  nil
//	String      length in bytes           the bytes
//	others      -                         the object of that kind
type Value struct {
	kind Kind
	flag uint8
	n    int64
	p    unsafe.Pointer
}

// Flags of values, by kind.
const (
	flagMarkup    = 1 // a String that counts as HTML, what the filters safe and escape return
	flagAttribute = 1 // an Undefined that was looked up in an object
	flagHint      = 2 // an Undefined whose name is a whole message
	flagMacro     = 1 // a Callable that is a *macro
	flagMethod    = 2 // a Callable that is a *method
)

// String makes a string. It keeps s, which must be UTF-8, without copying it.
func String(s string) Value {
	return Value{kind: KindString, n: int64(len(s)), p: unsafe.Pointer(unsafe.StringData(s))} //nolint:gosec // see Value.str
}

// Int makes an integer.
func Int(n int64) Value { return Value{kind: KindInt, n: n} }

// Float makes a floating point number.
func Float(f float64) Value { return Value{kind: KindFloat, n: int64(math.Float64bits(f))} }

// Bool makes a truth value.
func Bool(b bool) Value {
	if b {
		return Value{kind: KindBool, n: 1}
	}
	return Value{kind: KindBool}
}

// None makes Python's None, which is JSON's null.
func None() Value { return Value{kind: KindNone} }

// List makes a list. It keeps items, which must not change afterwards.
func List(items []Value) Value { return objectOf(KindList, &array{items}) }

// DictOf makes a mapping. It keeps d, which must not change afterwards.
func DictOf(d *Dict) Value { return objectOf(KindDict, d) }

// Kind tells what v is.
func (v Value) Kind() Kind { return v.kind }

// Text is the text of a String, and empty for other kinds.
func (v Value) Text() string {
	if v.kind != KindString {
		return ""
	}
	return v.str()
}

// Items are the elements of a List or a tuple, and nil for other kinds. They must not be changed.
func (v Value) Items() []Value {
	if v.kind != KindList && v.kind != KindTuple {
		return nil
	}
	return v.items()
}

// Dict is the mapping of a Dict, and nil for other kinds. It must not be changed.
func (v Value) Dict() *Dict {
	if v.kind != KindDict {
		return nil
	}
	return v.dict()
}

// objectOf makes a value that refers to an object, which must be of the type that belongs to the kind.
func objectOf[T any](kind Kind, object *T) Value {
	return Value{kind: kind, p: unsafe.Pointer(object)} //nolint:gosec // read back by the accessors below
}

// array is what a list or a tuple refers to.
type array struct{ items []Value }

// The accessors below do not check the kind.

func (v Value) str() string           { return unsafe.String((*byte)(v.p), int(v.n)) } //nolint:gosec // see String
func (v Value) float() float64        { return math.Float64frombits(uint64(v.n)) }
func (v Value) items() []Value        { return (*array)(v.p).items }
func (v Value) dict() *Dict           { return (*Dict)(v.p) }
func (v Value) view() *view           { return (*view)(v.p) }
func (v Value) span() *span           { return (*span)(v.p) }
func (v Value) iterator() *iterator   { return (*iterator)(v.p) }
func (v Value) namespace() *namespace { return (*namespace)(v.p) }
func (v Value) loop() *loop           { return (*loop)(v.p) }
func (v Value) slice() *sliceRange    { return (*sliceRange)(v.p) }
func (v Value) isBig() bool           { return v.kind == KindInt && v.p != nil }
func (v Value) big() *big.Int         { return (*big.Int)(v.p) }
func (v Value) isNumber() bool        { return v.kind == KindInt || v.kind == KindFloat || v.kind == KindBool }
func (v Value) isInteger() bool       { return v.kind == KindInt || v.kind == KindBool }

// unset tells whether v is the zero Value: a name that was not assigned, an argument that was not given. The undefined values
// that templates make have a name.
func (v Value) unset() bool { return v.kind == KindUndefined && v.flag == 0 && v.p == nil }

func tuple(items ...Value) Value { return objectOf(KindTuple, &array{items}) }

func markup(s string) Value {
	v := String(s)
	v.flag = flagMarkup
	return v
}

// like makes a string of the same sort, text or markup, as v.
func (v Value) like(s string) Value {
	out := String(s)
	out.flag = v.flag
	return out
}

// bigInt makes an integer of any size.
func bigInt(n *big.Int) Value {
	if n.IsInt64() {
		return Int(n.Int64())
	}
	return objectOf(KindInt, n)
}

func withFlag(v Value, flag uint8) Value {
	v.flag = flag
	return v
}

// undefinedOf makes the undefined value of a name. The name costs nothing to carry along, and makes the error message of
// those who use the value.
func undefinedOf(name string, flag uint8) Value {
	v := String(name)
	v.kind, v.flag = KindUndefined, flag
	if name == "" {
		v.flag = flagHint
	}
	return v
}

// truth is Python's bool(v).
func (v Value) truth() bool {
	switch v.kind {
	case KindUndefined, KindNone:
		return false
	case KindBool:
		return v.n != 0
	case KindInt:
		return v.n != 0 || v.p != nil
	case KindFloat:
		return v.float() != 0
	case KindString:
		return v.n != 0
	case KindList, KindTuple:
		return len(v.items()) > 0
	case KindDict:
		return v.dict().Len() > 0
	case KindRange:
		return v.span().n > 0
	case KindView:
		return v.view().dict.Len() > 0
	default:
		return true
	}
}

// typeName is the name of v's type in Python.
func (v Value) typeName() string {
	switch v.kind {
	case KindUndefined:
		return "Undefined"
	case KindNone:
		return "NoneType"
	case KindBool:
		return "bool"
	case KindInt:
		return "int"
	case KindFloat:
		return "float"
	case KindString:
		if v.flag == flagMarkup {
			return "Markup"
		}
		return "str"
	case KindList:
		return "list"
	case KindTuple:
		return "tuple"
	case KindDict:
		return "dict"
	case KindRange:
		return "range"
	case KindView:
		return v.view().part.typeName()
	case KindIterator:
		return "generator"
	case KindNamespace:
		return "Namespace"
	case KindLoop:
		return "LoopContext"
	case kindSlice:
		return "slice"
	default:
		return "function"
	}
}
