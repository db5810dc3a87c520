package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"testing"
)

// The engines' own hashes, recomputed: the strongest check that tokens, salts, parents and hashes are read as they were meant.

// tagged are the extra keys of a block as vLLM 0.32 hashes them.
type tagged [][]string

// pickle is Python's pickle, protocol 5, of (parent, tokens, keys), as far as vLLM makes use of it.
func pickle(parent []byte, tokens []uint32, keys tagged) []byte {
	body := append(append([]byte{0x43, byte(len(parent))}, parent...), 0x94)
	tuple := func(n int, put func(i int)) {
		if n > 3 {
			body = append(body, 0x28)
		}
		for i := range n {
			put(i)
		}
		if n > 3 {
			body = append(body, 0x74, 0x94)
		} else {
			body = append(body, 0x84+byte(n), 0x94)
		}
	}
	tuple(len(tokens), func(i int) {
		switch v := tokens[i]; {
		case v < 256:
			body = append(body, 0x4b, byte(v))
		case v < 65536:
			body = binary.LittleEndian.AppendUint16(append(body, 0x4d), uint16(v))
		default:
			body = binary.LittleEndian.AppendUint32(append(body, 0x4a), v)
		}
	})
	if keys == nil {
		body = append(body, 0x4e)
	} else {
		tuple(len(keys), func(i int) {
			tuple(len(keys[i]), func(k int) {
				body = append(append(append(body, 0x8c, byte(len(keys[i][k]))), keys[i][k]...), 0x94)
			})
		})
	}
	body = append(body, 0x87, 0x94, 0x2e)
	return append(binary.LittleEndian.AppendUint64([]byte{0x80, 5, 0x95}, uint64(len(body))), body...)
}

// cbor is canonical CBOR of the same.
func cbor(parent []byte, tokens []uint32, keys tagged) []byte {
	head := func(b []byte, major byte, n int) []byte {
		switch {
		case n < 24:
			return append(b, major<<5|byte(n))
		case n < 1<<8:
			return append(b, major<<5|24, byte(n))
		case n < 1<<16:
			return binary.BigEndian.AppendUint16(append(b, major<<5|25), uint16(n))
		default:
			return binary.BigEndian.AppendUint32(append(b, major<<5|26), uint32(n))
		}
	}
	b := append(head([]byte{0x83}, 2, len(parent)), parent...)
	b = head(b, 4, len(tokens))
	for _, v := range tokens {
		b = head(b, 0, int(v))
	}
	if keys == nil {
		return append(b, 0xf6)
	}
	b = head(b, 4, len(keys))
	for _, key := range keys {
		b = head(b, 4, len(key))
		for _, s := range key {
			b = append(head(b, 3, len(s)), s...)
		}
	}
	return b
}

func TestVLLMHashes(t *testing.T) {
	for _, c := range []struct {
		name  string
		input func([]byte, []uint32, tagged) []byte
		none  string // of the first parent
		want  int
	}{
		{"vllm-0.32.0-sha256-int-bs32", pickle, "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198", 81},
		{"vllm-0.32.0-cbor-bytes-lora", cbor, "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e", 60},
	} {
		none := unhex(t, c.none)
		digests := map[uint64][]byte{} // of all blocks so far
		stored := 0
		var b Batch
		for _, r := range read(t, c.name) {
			m, ok := r.message(t)
			if r.kind != 'P' || !ok {
				continue
			}
			if err := b.Decode(m.Payload); err != nil {
				t.Fatal(err)
			}
			for i := range b.Events {
				e := &b.Events[i]
				lora := string(e.LoRA.In(m.Payload))
				if e.Kind != Stored || lora == "lora-b" { // the path of lora-b, which is hashed as well, is not known
					continue
				}
				parent := none
				if e.HasParent {
					parent = digests[e.Parent]
				}
				for k, hash := range e.Hashes {
					var keys tagged
					if lora != "" {
						keys = append(keys, []string{"lora", lora, "models/" + lora})
					}
					if k == 0 && !e.Salt.Empty() {
						keys = append(keys, []string{"cache_salt", string(e.Salt.In(m.Payload))})
					}
					size := int(e.BlockTokens)
					digest := sha256.Sum256(c.input(parent, e.Tokens[k*size:(k+1)*size], keys))
					if got := binary.BigEndian.Uint64(digest[24:]); got != hash {
						t.Fatalf("%s: message %d, event %d, block %d: %d is announced, %d computed", c.name, m.Seq, i, k, hash, got)
					}
					parent = digest[:]
					digests[hash] = digest[:]
					stored++
				}
			}
		}
		if stored != c.want {
			t.Errorf("%s: %d hashes recomputed, want %d", c.name, stored, c.want)
		}
	}
}

func TestVLLMVectors(t *testing.T) {
	for _, c := range []struct {
		input      func([]byte, []uint32, tagged) []byte
		seed, want string
	}{
		{pickle, "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198", "7b255da405e1d722823892e4fef187b4d8ac78215d7f0dd2137bb037547f4caf"},
		{pickle, "1973e23848344dc43a988a9b478663803cfffe1243480253f9a3cf004b14aa7c", "bea72b7d33de03c1aa715efbb492d0e0d3801f00c1f985756896072ae8b31325"},
		{cbor, "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e", "2da172482d928bbc42ab25b0151e2b895f13f41002e27b2ceabcfae6d332ea"},
		{cbor, "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0", "cd7c51bc5a8fc8643f383a2b9e01522fba7473c669e9270c7b0bf7bf7fd01682"},
	} {
		got := sha256.Sum256(c.input(unhex(t, c.seed), upTo(16), nil))
		if want := c.want; hex.EncodeToString(got[:])[64-len(want):] != want {
			t.Errorf("%x, want %s", got, want)
		}
	}
}

// sglangPage is the digest of a page: of a pair of tokens per position with bigrams, else of one.
func sglangPage(prior []byte, tokens []uint32, bigram bool, next uint32) []byte {
	input := append([]byte(nil), prior...)
	for i, v := range tokens {
		input = binary.LittleEndian.AppendUint32(input, v)
		if bigram {
			after := next
			if i+1 < len(tokens) {
				after = tokens[i+1]
			}
			input = binary.LittleEndian.AppendUint32(input, after)
		}
	}
	digest := sha256.Sum256(input)
	return digest[:]
}

func TestSGLangHashes(t *testing.T) {
	for _, name := range []string{"sglang-0.5.15-publisher-only", "sglang-0.5.20-publisher-only", "sglang-0.5.23-publisher-only"} {
		digests := map[uint64][]byte{}
		pages := 0
		var b Batch
		for _, r := range read(t, name) {
			m, ok := r.message(t)
			if r.kind != 'P' || !ok {
				continue
			}
			if err := b.Decode(m.Payload); err != nil {
				t.Fatal(err)
			}
			for i := range b.Events {
				e := &b.Events[i]
				// The recording sends one hash of a salted chain in all versions, also where there is no field for the salt.
				salted := len(e.Hashes) > 0 && e.Hashes[0] == 3718046898735569995
				if e.Kind != Stored {
					continue
				}
				var prior []byte
				switch {
				case e.HasParent:
					prior = digests[e.Parent]
				case salted:
					seed := sha256.Sum256([]byte("sglang-cache-salt-v1\x00tenant-a"))
					prior = seed[:]
				}
				size := int(e.BlockTokens)
				for k, hash := range e.Hashes {
					page := e.Tokens[k*size : min((k+1)*size, len(e.Tokens))]
					prior = sglangPage(prior, page, e.Bigram, e.NextToken)
					if got := binary.BigEndian.Uint64(prior); got != hash {
						t.Errorf("%s: message %d, page %d: %d is announced, %d computed", name, m.Seq, k, int64(hash), int64(got))
					}
					digests[hash] = prior
					pages++
				}
			}
		}
		if pages != 6 {
			t.Errorf("%s: %d pages", name, pages)
		}
	}
}
