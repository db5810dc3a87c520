package wire

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func upTo(n uint32) []uint32 {
	var tokens []uint32
	for i := uint32(1); i <= n; i++ {
		tokens = append(tokens, i)
	}
	return tokens
}

// vllmBlock is the block that all of vLLM's golden payloads store.
var vllmBlock = DraftEvent{Kind: Stored, Hashes: []uint64{3236607068019569386}, Tokens: upTo(16), BlockTokens: 16, Medium: "GPU",
	Extra: [][]DraftKey{nil}, HasGroup: true, Spec: "full_attention"}

// sglangPages are the first two pages of SGLang's: -3488128144981237669 and 5674439469042975057.
var sglangPages = DraftEvent{Kind: Stored, Hashes: []uint64{1<<64 - 3488128144981237669, 5674439469042975057}, Tokens: upTo(8),
	BlockTokens: 4, Medium: "GPU"}

// goldens are payloads of the engines, byte for byte.
var goldens = []struct {
	name  string
	hex   string
	enc   Encoder
	draft Draft
	want  string
}{
	{
		"vLLM: stored, map", "93cb41d954fc40200000918ba474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391cf2ceabcfae6d332eab17061" +
			"72656e745f626c6f636b5f68617368c0a9746f6b656e5f696473dc00100102030405060708090a0b0c0d0e0f10aa626c6f636b5f73697a6510a76c6f72615f6964c" +
			"0a66d656469756da3475055a96c6f72615f6e616d65c0aa65787472615f6b65797391c0a967726f75705f69647800b26b765f63616368655f737065635f6b696e64" +
			"ae66756c6c5f617474656e74696f6e00",
		Encoder{Dialect: VLLMMap}, Draft{Time: 1700000000.5, Events: []DraftEvent{vllmBlock}}, `
		batch time=1.7000000005e+09 rank=0
		stored tier=device medium="GPU" hashes=[3236607068019569386] tokens=[1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16] size=16 group=0 spec=1 specs="full_attention" rank=0`,
	},
	{
		"vLLM 0.23: stored, array", "93cb41d954fc40200000919cab426c6f636b53746f72656491cf2ceabcfae6d332eac0dc00100102030405060708090a0b0c0d0e0f1010c" +
			"0a3475055c091c000ae66756c6c5f617474656e74696f6ec000",
		Encoder{Dialect: VLLMArray}, Draft{Time: 1700000000.5, Events: []DraftEvent{vllmBlock}}, `
		batch time=1.7000000005e+09 rank=0
		stored tier=device medium="GPU" hashes=[3236607068019569386] tokens=[1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16] size=16 group=0 spec=1 specs="full_attention" rank=0`,
	},
	{
		"vLLM: removed, map, a hash above 2^63", "93cb41d954fc402000009184a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68617368657391cfdab89baa7b5857c0a66d65" +
			"6469756da3475055a967726f75705f6964780000",
		Encoder{Dialect: VLLMMap}, Draft{Time: 1700000000.5, Events: []DraftEvent{{Kind: Removed, Hashes: []uint64{15760518052499183552}, Medium: "GPU", HasGroup: true}}}, `
		batch time=1.7000000005e+09 rank=0
		removed tier=device medium="GPU" hashes=[15760518052499183552] group=0 rank=0`,
	},
	{
		"vLLM: cleared, map", "93cb41d954fc402000009181a474797065b0416c6c426c6f636b73436c656172656400",
		Encoder{Dialect: VLLMMap}, Draft{Time: 1700000000.5, Events: []DraftEvent{{Kind: Cleared}}}, `
		batch time=1.7000000005e+09 rank=0
		cleared rank=0`,
	},
	{
		"vLLM: cleared, array", "93cb41d954fc402000009191b0416c6c426c6f636b73436c656172656400",
		Encoder{Dialect: VLLMArray}, Draft{Time: 1700000000.5, Events: []DraftEvent{{Kind: Cleared}}}, `
		batch time=1.7000000005e+09 rank=0
		cleared rank=0`,
	},
	{
		"vLLM 0.32: a removal of a running server", "93cb41dac038b119a73c9184a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68617368657391cf7c4c2db719c237baa6" +
			"6d656469756da3475055a967726f75705f6964780000",
		Encoder{Dialect: VLLMMap}, Draft{Time: 1795220164.4008322, Events: []DraftEvent{{Kind: Removed, Hashes: []uint64{8956584023367497658}, Medium: "GPU", HasGroup: true}}}, `
		batch time=1.7952201644008322e+09 rank=0
		removed tier=device medium="GPU" hashes=[8956584023367497658] group=0 rank=0`,
	},
	{
		"SGLang: stored, array", "93cb41d954fc402000009197ab426c6f636b53746f72656492d3cf97adeedb59e05bcf4ebfa8a1f3c34151c098010203040506070804c0a347505500",
		Encoder{Dialect: SGLangArray}, Draft{Time: 1700000000.5, Events: []DraftEvent{sglangPages}}, `
		batch time=1.7000000005e+09 rank=0
		stored tier=device medium="GPU" hashes=[14958615928728313947 5674439469042975057] tokens=[1 2 3 4 5 6 7 8] size=4 rank=0`,
	},
	{
		"SGLang 0.5.23: stored, map", "93cb41dac0395b48d9189187a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392d3cf97adeedb59e05bcf4ebfa8a1f3c34151b" +
			"1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473980102030405060708aa626c6f636b5f73697a6504a76c6f72615f6964c0a66d656469756da347505500",
		Encoder{Dialect: SGLangMap}, Draft{Time: 1795220845.1382504, Events: []DraftEvent{sglangPages}}, `
		batch time=1.7952208451382504e+09 rank=0
		stored tier=device medium="GPU" hashes=[14958615928728313947 5674439469042975057] tokens=[1 2 3 4 5 6 7 8] size=4 rank=0`,
	},
	{
		"SGLang 0.5.23: salt, session and adapter", "93cb41dac0395b5c12fa918aa474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391cf339927f491605c4bb1706172656" +
			"e745f626c6f636b5f68617368c0a9746f6b656e5f6964739401020304aa626c6f636b5f73697a6504a76c6f72615f6964c0a66d656469756da3475055aa63616368655f73616c74" +
			"a874656e616e742d61aa73657373696f6e5f6964a7736573732d3432a96c6f72615f6e616d65a66c6f72612d6100",
		Encoder{Dialect: SGLangMap}, Draft{Time: 1795220845.4386582, Events: []DraftEvent{{Kind: Stored, Hashes: []uint64{3718046898735569995},
			Tokens: upTo(4), BlockTokens: 4, Medium: "GPU", Salt: "tenant-a", Session: "sess-42", LoRA: "lora-a"}}}, `
		batch time=1.7952208454386582e+09 rank=0
		stored tier=device medium="GPU" hashes=[3718046898735569995] tokens=[1 2 3 4] size=4 lora="lora-a" salt="tenant-a" session="sess-42" rank=0`,
	},
}

func unhex(tb testing.TB, s string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// lines is an expected text without the indentation of a table.
func lines(s string) string {
	return strings.TrimSpace(strings.ReplaceAll(s, "\n\t\t", "\n"))
}

func TestGolden(t *testing.T) {
	for _, g := range goldens {
		t.Run(g.name, func(t *testing.T) {
			payload := unhex(t, g.hex)
			var b Batch
			if err := b.Decode(payload); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(lines(g.want), describe(&b, payload)); diff != "" {
				t.Errorf("decoded (-want +got)\n%s", diff)
			}
			if got := hex.EncodeToString(g.enc.Append(nil, g.draft)); got != g.hex {
				t.Errorf("encoded %s\n   want %s", got, g.hex)
			}
		})
	}
}

func TestTruncated(t *testing.T) {
	var b Batch
	check := func(name string, payload []byte) {
		for n := range payload {
			var syntax *SyntaxError
			if err := b.Decode(payload[:n]); !errors.As(err, &syntax) || syntax.Offset > n {
				t.Fatalf("%s: cut to %d of %d bytes: error %v", name, n, len(payload), err)
			}
			if len(b.Events) > 0 {
				t.Fatalf("%s: cut to %d bytes: %d events are delivered", name, n, len(b.Events))
			}
		}
	}
	for _, g := range goldens {
		check(g.name, unhex(t, g.hex))
	}
	for _, name := range recordings(t) {
		for _, r := range read(t, name) {
			if m, ok := r.message(t); ok && len(m.Payload) < 2000 {
				check(name, m.Payload)
			}
		}
	}
}
