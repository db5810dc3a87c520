package openai

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// slowMark is the dumb twin of mark: it goes byte by byte.
func slowMark(stops, slashes []uint64, b []byte, escaped uint64) uint64 {
	for i, c := range b {
		j, bit := i/pieceSize, uint64(1)<<(i%pieceSize)
		if i%pieceSize == 0 {
			stops[j], slashes[j] = 0, 0
		}
		if c == '\\' {
			slashes[j] |= bit
		}
		stop := c == '"' || c < 0x20
		if escaped == 1 {
			stop = !strings.ContainsRune(`"\bfnrt`, rune(c)) || c >= 0x80
		}
		if stop {
			stops[j] |= bit
		}
		if escaped == 0 && c == '\\' {
			escaped = 1
		} else {
			escaped = 0
		}
	}
	return escaped
}

// checkMark compares mark with its twin on all whole pieces of b.
func checkMark(t interface{ Fatalf(string, ...any) }, b []byte, escaped uint64) {
	n := len(b) / pieceSize
	b = b[:n*pieceSize]
	got, want := make([]uint64, 2*n+1), make([]uint64, 2*n+1)
	got[2*n], want[2*n] = 42, 42 // nobody writes behind the words
	next, wanted := mark(got[:n], got[n:2*n], b, escaped), slowMark(want[:n], want[n:2*n], b, escaped)
	if !slices.Equal(got, want) || next != wanted {
		t.Fatalf("%q, escaped %d:\nstops and slashes %x, next %d\nwant              %x, next %d", b, escaped, got, next, want, wanted)
	}
}

// Every byte, plain and escaped, at every place of a piece.
func TestMarkEveryByte(t *testing.T) {
	for c := range 256 {
		for at := range pieceSize {
			b := bytes.Repeat([]byte{'x'}, pieceSize)
			b[at] = byte(c)
			checkMark(t, b, 0)
			checkMark(t, b, 1)
			if at > 0 {
				b[at-1] = '\\'
				checkMark(t, b, 0)
				checkMark(t, b, 1)
			}
		}
	}
}

// Rows of backslashes of every length from every place on, through the ends of pieces.
func TestMarkRowsOfBackslashes(t *testing.T) {
	for from := range pieceSize {
		for length := range 3 * pieceSize {
			b := []byte(strings.Repeat("x", from) + strings.Repeat(`\`, length) + strings.Repeat(`"ux"`, pieceSize))
			checkMark(t, b, 0)
			checkMark(t, b, 1)
		}
	}
}

// jsonish draws bytes of which many matter inside strings.
func jsonish(most int) *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		var b []byte
		for n := rapid.IntRange(0, most).Draw(t, "length"); len(b) < n; {
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				b = append(b, rapid.SampledFrom([]string{`\`, `\\`, `"`, `\"`, `\n`, `\/`, `\u00e9`, `\u12`, `\x`, "\n", "\x00", "\x1f", "é", "\xff"}).Draw(t, "special")...)
			case 1:
				b = append(b, rapid.Byte().Draw(t, "byte"))
			default:
				b = append(b, strings.Repeat("x", rapid.IntRange(0, 70).Draw(t, "plain"))...)
			}
		}
		return b
	})
}

func TestMarkAgreesWithItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := jsonish(2000).Draw(t, "bytes")
		b = b[min(len(b), rapid.IntRange(0, 16).Draw(t, "alignment")):]
		checkMark(t, b, rapid.Uint64Range(0, 1).Draw(t, "escaped"))
	})
}

// checkStringEnd compares the marks with the portable way from one string to the next, as a scanner goes through a text.
func checkStringEnd(t interface{ Fatalf(string, ...any) }, b []byte, starts func(end int) (next int)) {
	s := scanner{b: b}
	for i := 0; i <= len(b); {
		end, form, ok := s.stringEnd(i)
		wantEnd, wantForm, wantOK := stringEnd(b, i)
		if end != wantEnd || ok != wantOK || ok && form != wantForm {
			t.Fatalf("%q from %d: %d, form %d, %v; want %d, form %d, %v", b, i, end, form, ok, wantEnd, wantForm, wantOK)
		}
		if !ok {
			return
		}
		for i = starts(end); i <= len(b) && b[i-1] == '\\'; i++ { // a string begins behind a quote
		}
	}
}

func TestStringEndAgreesWithThePortableOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := jsonish(3000).Draw(t, "bytes")
		if rapid.Bool().Draw(t, "valid") {
			b = AppendString(nil, string(b))[1:]
			b = append(b, b...)
		}
		checkStringEnd(t, b, func(end int) int { return end + 1 + rapid.SampledFrom([]int{0, 0, 1, 60, 1000, 5000}).Draw(t, "gap") })
	})
}

// Strings of every length, at every alignment, with everything that may end them.
func TestStringEndOfEveryLength(t *testing.T) {
	room := make([]byte, 300)
	for n := range 201 {
		for _, tail := range []string{``, `"`, `\`, `\"`, `\""`, `\u00e9"`, `\u00`, `\/"`, `\\"`, "\n", "\\\n", `\x"`} {
			for at := range 4 {
				b := room[at*5 : at*5]
				b = append(b, strings.Repeat("y", n)...)
				b = append(b, tail...)
				checkStringEnd(t, b, func(end int) int { return end + 1 })
			}
		}
	}
}

func FuzzStringEnd(f *testing.F) {
	for _, n := range []int{0, 63, 64, 1023, 1024} {
		f.Add([]byte(fmt.Sprintf(`%s\u00e9\\"`, strings.Repeat("x", n))))
	}
	f.Add([]byte(strings.Repeat(`\`, 129) + `"a\/"`))
	f.Fuzz(func(t *testing.T, b []byte) {
		checkMark(t, b, 0)
		checkMark(t, b, 1)
		checkStringEnd(t, b, func(end int) int { return end + 1 })
	})
}
