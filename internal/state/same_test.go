package state_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"attache/internal/state"
	"attache/internal/state/statetest"
)

// TestSame draws calls and makes them on both stores, whose time is the same: all answers are the same, but for what the stores choose
// themselves: positions, tokens, and how many more records than it must a stream keeps.
func TestSame(t *testing.T) {
	m := startMini(t)
	rapid.Check(t, func(t *rapid.T) {
		m.FlushAll()
		stores := []state.Store{state.NewMemoryAt(statetest.Config(), m.Now), openIn(t, m.Addr())}
		defer stores[1].Close()
		var positions [][2]string
		tokens := [2][]uint64{{0}, {0}}
		for range rapid.IntRange(1, 40).Draw(t, "calls") {
			name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name")
			who := rapid.SampledFrom([]string{"x", "y", "z", "u", "v", "w"}).Draw(t, "who")
			value := []byte(rapid.StringN(0, 3, -1).Draw(t, "value"))
			ttl := time.Duration(rapid.IntRange(1, 5).Draw(t, "ttl")) * time.Second
			call := rapid.SampledFrom([]string{"append", "end", "read", "save", "fenced", "load", "delete", "put", "remove", "members", "acquire",
				"release", "time"}).Draw(t, "call")
			count := rapid.IntRange(0, 12).Draw(t, "count")
			at := rapid.IntRange(-1, len(positions)-1).Draw(t, "at")
			token := rapid.IntRange(0, len(tokens[0])-1).Draw(t, "token")
			if call == "time" {
				m.advance(time.Duration(count) * time.Second / 2)
				continue
			}
			var answers [2]string
			var ends [2]string
			for i, s := range stores {
				answers[i], ends[i] = func() (string, string) {
					switch call {
					case "append":
						records := slices.Repeat([][]byte{value}, count)
						return fmt.Sprint(s.Append(t.Context(), name, records...)), ""
					case "end":
						end, err := s.End(t.Context(), name)
						return fmt.Sprint(err), end
					case "read":
						after := ""
						if at >= 0 {
							after = positions[at][i]
						}
						records, lost, err := s.Read(t.Context(), name, after, count+1, 0)
						end, text := "", fmt.Sprint(lost, err)
						for _, r := range records {
							text += fmt.Sprintf(" %q", r.Value)
							end = r.Position
						}
						return text, end
					case "save":
						return fmt.Sprint(s.Save(t.Context(), name, value, ttl)), ""
					case "fenced":
						return fmt.Sprint(s.SaveFenced(t.Context(), name, value, tokens[i][token], ttl)), ""
					case "load":
						got, err := s.Load(t.Context(), name)
						return fmt.Sprintf("%q %v", got, err), ""
					case "delete":
						return fmt.Sprint(s.Delete(t.Context(), name)), ""
					case "put":
						err := s.Put(t.Context(), name, who, value, ttl)
						return fmt.Sprint(err, errors.Is(err, state.ErrFull)), ""
					case "remove":
						return fmt.Sprint(s.Remove(t.Context(), name, who)), ""
					case "members":
						members, err := s.Members(t.Context(), name)
						return fmt.Sprintf("%q %v", members, err), ""
					case "acquire":
						token, held, err := s.Acquire(t.Context(), name, who, ttl)
						if held {
							tokens[i] = append(tokens[i], token)
						}
						return fmt.Sprint(held, err, slices.Index(tokens[i], token)), ""
					default:
						return fmt.Sprint(s.Release(t.Context(), name, who)), ""
					}
				}()
			}
			if answers[0] != answers[1] {
				t.Fatalf("%s %s: Memory says %s, Redis says %s", call, name, answers[0], answers[1])
			}
			if ends[0] != "" {
				positions = append(positions, [2]string{ends[0], ends[1]})
			}
		}
	})
}
