package wire

import (
	"encoding/binary"
	"math"
)

// The append functions write MessagePack as msgspec does: every integer and length in its shortest form, an integer that is not
// negative as an unsigned one.

func appendUint(b []byte, v uint64) []byte {
	switch {
	case v < 0x80:
		return append(b, byte(v))
	case v <= math.MaxUint8:
		return append(b, leadUint8, byte(v))
	case v <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, leadUint16), uint16(v))
	case v <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, leadUint32), uint32(v))
	default:
		return binary.BigEndian.AppendUint64(append(b, leadUint64), v)
	}
}

func appendInt(b []byte, v int64) []byte {
	switch {
	case v >= 0:
		return appendUint(b, uint64(v))
	case v >= -32:
		return append(b, byte(v))
	case v >= math.MinInt8:
		return append(b, leadInt8, byte(v))
	case v >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(b, leadInt16), uint16(v))
	case v >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(b, leadInt32), uint32(v))
	default:
		return binary.BigEndian.AppendUint64(append(b, leadInt64), uint64(v))
	}
}

func appendFloat(b []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, leadFloat64), math.Float64bits(v))
}

func appendText(b []byte, s string) []byte {
	switch n := len(s); {
	case n < 32:
		b = append(b, 0xa0|byte(n))
	case n <= math.MaxUint8:
		b = append(b, leadStr8, byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, leadStr16), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, leadStr32), uint32(n))
	}
	return append(b, s...)
}

func appendBytes(b, s []byte) []byte {
	switch n := len(s); {
	case n <= math.MaxUint8:
		b = append(b, leadBin8, byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, leadBin16), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, leadBin32), uint32(n))
	}
	return append(b, s...)
}

func appendArray(b []byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, 0x90|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, leadArray16), uint16(n))
	default:
		return binary.BigEndian.AppendUint32(append(b, leadArray32), uint32(n))
	}
}

func appendMap(b []byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, 0x80|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, leadMap16), uint16(n))
	default:
		return binary.BigEndian.AppendUint32(append(b, leadMap32), uint32(n))
	}
}
