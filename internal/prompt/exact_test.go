package prompt

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"attache/internal/block"
)

// words is a tokenizer whose tokens are words, spaces with the word behind them; <a> and <b> are added tokens. read
// counts the bytes that it was asked to tokenize.
type words struct {
	mu     sync.Mutex
	read   int
	gaveUp uint64 // texts with "hard" in them
}

func (w *words) GaveUp() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gaveUp
}

func (w *words) Append(dst []uint32, text []byte) []uint32 {
	w.mu.Lock()
	w.read += len(text)
	if bytes.Contains(text, []byte("hard")) {
		w.gaveUp++
	}
	w.mu.Unlock()
	for len(text) > 0 {
		start, end, id, ok := w.NextAdded(text)
		if !ok {
			start, end = len(text), len(text)
		}
		for _, word := range bytes.SplitAfter(text[:start], []byte(" ")) {
			if len(word) > 0 {
				dst = append(dst, uint32(block.Local(word, 0)))
			}
		}
		if ok {
			dst = append(dst, id)
		}
		text = text[end:]
	}
	return dst
}

func (*words) NextAdded(text []byte) (start, end int, id uint32, ok bool) {
	for i := range text {
		if bytes.HasPrefix(text[i:], []byte("<a>")) || bytes.HasPrefix(text[i:], []byte("<b>")) {
			return i, i + 3, uint32(text[i+1]), true
		}
	}
	return 0, 0, 0, false
}

// dumbChain tokenizes everything, every time.
func dumbChain(text string, before, after []uint32, blockTokens int, seed uint64) (hashes []block.Hash, tokens int) {
	ids := append(new(words).Append(slices.Clone(before), []byte(text)), after...)
	return block.AppendBlocks(nil, ids, blockTokens, seed), len(ids)
}

// TestTextsAgainstTheirTwin sends conversations that grow, branch and begin alike through a memo that may be too small for
// them: the chain is that of the whole text, whatever was remembered.
func TestTextsAgainstTheirTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := &texts{tokenizer: new(words), blockTokens: rapid.IntRange(1, 8).Draw(t, "block"),
			memo: newMemo(rapid.SampledFrom([]int{0, 1000, 5000, 1 << 20}).Draw(t, "memory"))}
		var s textScratch
		var c Chain
		var sent []string
		piece := rapid.Custom(func(t *rapid.T) string {
			added := rapid.SampledFrom([]string{"", "<a>", "<b>", "<a><b>"}).Draw(t, "added")
			return strings.Repeat(rapid.SampledFrom([]string{"word ", "x", "other words "}).Draw(t, "text"), rapid.IntRange(0, 200).Draw(t, "times")) + added
		})
		for range rapid.IntRange(1, 25).Draw(t, "requests") {
			text := ""
			if len(sent) > 0 && rapid.IntRange(0, 3).Draw(t, "goes on") > 0 {
				text = rapid.SampledFrom(sent).Draw(t, "from")
				text = text[:rapid.IntRange(0, len(text)).Draw(t, "up to")]
			}
			text += strings.Join(rapid.SliceOfN(piece, 0, 5).Draw(t, "new"), "")
			sent = append(sent, text)
			seed := rapid.Uint64Range(1, 2).Draw(t, "namespace")
			prefix := rapid.SampledFrom([][]uint32{nil, {7}}).Draw(t, "prefix")
			after := rapid.SampledFrom([][]uint32{nil, {8}}).Draw(t, "after")
			x.chain(&c, []byte(text), prefix, after, seed, &s)
			want, tokens := dumbChain(text, prefix, after, x.blockTokens, seed)
			if !slices.Equal(c.Hashes, want) || c.Tokens != tokens {
				t.Fatalf("%q: %d tokens, %x; want %d, %x", text, c.Tokens, c.Hashes, tokens, want)
			}
			if broken := checkMemo(x.memo); broken != "" {
				t.Fatal(broken)
			}
		}
	})
}

// checkMemo verifies the memo's own accounts.
func checkMemo(m *memo) string {
	bytes, users := 0, map[*sharedHashes]int{}
	for e := m.order.Front(); e != nil; e = e.Next() {
		c := e.Value.(*checkpoint)
		if m.entries[c.key] != e {
			return "a checkpoint is not found by its key"
		}
		if c.blocks > len(c.shared.hashes) {
			return "a checkpoint sees more than there is"
		}
		bytes += c.size()
		users[c.shared]++
	}
	for s, n := range users {
		bytes += sharedBytes + 8*cap(s.hashes)
		if s.users != n {
			return fmt.Sprintf("an array has %d users, counted %d", n, s.users)
		}
	}
	if bytes != m.bytes || m.bytes > m.limit || len(m.entries) != m.order.Len() {
		return fmt.Sprintf("%d bytes counted, %d there, %d allowed", m.bytes, bytes, m.limit)
	}
	return ""
}

// TestOnlyWhatIsNewIsTokenized: a turn costs its own text, and so does a new conversation behind a known system prompt.
func TestOnlyWhatIsNewIsTokenized(t *testing.T) {
	w := new(words)
	x := &texts{tokenizer: w, blockTokens: 16, memo: newMemo(1 << 20)}
	var s textScratch
	var c Chain
	cost := func(text string) int {
		w.read = 0
		x.chain(&c, []byte(text), nil, nil, 1, &s)
		return w.read
	}
	system := "<a>" + strings.Repeat("be brief ", 5000) + "<b>"
	first := system + "<a>what is it <b><a>"
	if got := cost(first); got != len(first) {
		t.Errorf("nothing is known: %d of %d bytes were tokenized", got, len(first))
	}
	second := first + "it is this <b><a>and that <b><a>"
	if got, want := cost(second), len(second)-len(first); got != want {
		t.Errorf("the second turn: %d bytes were tokenized, want %d", got, want)
	}
	if got := cost(second); got != 0 {
		t.Errorf("the same again: %d bytes were tokenized", got)
	}
	if got := cost(system + "<a>something else <b><a>"); got > 100 {
		t.Errorf("another conversation with the same system prompt: %d bytes were tokenized", got)
	}
	changed := strings.Replace(second, "brief", "short", 1)
	if got := cost(changed); got != len(changed) {
		t.Errorf("a system prompt that differs: %d of %d bytes were tokenized", got, len(changed))
	}
	if h := x.memo.stats; h.hits != 3 || h.misses != 2 || h.reused == 0 || h.reused >= h.tokens {
		t.Errorf("counted %+v", h)
	}
}

// TestTextsAtOnce is for the race detector: conversations that share arrays of hashes grow side by side.
func TestTextsAtOnce(t *testing.T) {
	x := &texts{tokenizer: new(words), blockTokens: 4, memo: newMemo(100_000)}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			var s textScratch
			var c Chain
			text := "<a>" + strings.Repeat("shared words ", 300) + "<b>"
			for turn := range 30 {
				text += strings.Repeat(fmt.Sprintf("turn %d of %d ", turn, g%3), 20) + "<a>"
				x.chain(&c, []byte(text), nil, nil, 1, &s)
				if want, _ := dumbChain(text, nil, nil, 4, 1); !slices.Equal(c.Hashes, want) {
					t.Errorf("turn %d of %d is wrong", turn, g)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestWrongTokensAreNotRemembered: a text that the tokenizer gives up has no chain, and leaves nothing behind that later ones
// would be made of.
func TestWrongTokensAreNotRemembered(t *testing.T) {
	x := &texts{tokenizer: new(words), blockTokens: 2, memo: newMemo(100_000)}
	var s textScratch
	var c Chain
	if x.chain(&c, []byte("<a>a hard one<b>"), nil, nil, 1, &s) {
		t.Error("a text that was given up counts as known")
	}
	if len(x.memo.entries) != 0 {
		t.Errorf("%d beginnings are remembered, want none", len(x.memo.entries))
	}
	if !x.chain(&c, []byte("<a>an easy one<b>"), nil, nil, 1, &s) {
		t.Error("a text that was not given up counts as unknown")
	}
}
