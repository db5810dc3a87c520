package sim

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"attache/internal/block"
	"attache/internal/slot"
)

// ids are n tokens of a text that is named by a letter; texts with the same letter begin alike.
func ids(text byte, n int) []uint32 {
	all := make([]uint32, n)
	for i := range all {
		all[i] = uint32(text)<<16 + uint32(i)
	}
	return all
}

// recorded is a request whose tokens are known.
func recorded(id uint64, tokens []uint32, output, size int, lora, salt string) Request {
	return Request{
		ID: id, Prompt: len(tokens) - output, Output: output, Tokens: tokens, LoRA: lora, Salt: salt,
		Chain: block.AppendBlocks(nil, tokens, size, block.Seed("m"+lora, salt)),
	}
}

// believer is the dumb twin: it believes what it is told, by the engine's hashes.
type believer map[slot.Tier]map[uint64]int

func (b believer) hear(t interface{ Fatalf(string, ...any) }, list []Change) {
	for _, ch := range list {
		if ch.Kind == Cleared {
			clear(b)
		}
		if ch.Again { // nothing came
			for _, x := range ch.Blocks {
				if b[ch.Tier][x.Hash] == 0 {
					t.Fatalf("block %x is told of again, and never was", x.Hash)
				}
			}
			continue
		}
		for _, x := range ch.Blocks {
			if x.Partial {
				continue
			}
			if b[ch.Tier] == nil {
				b[ch.Tier] = map[uint64]int{}
			}
			switch ch.Kind {
			case Stored:
				b[ch.Tier][x.Hash]++
			case Moved:
				b[ch.Tier][x.Hash]++
				b.lose(t, ch.From, x)
			default:
				b.lose(t, ch.Tier, x)
			}
		}
	}
}

func (b believer) lose(t interface{ Fatalf(string, ...any) }, tier slot.Tier, x *Block) {
	if b[tier][x.Hash] == 0 {
		t.Fatalf("block %x goes from the %s, where it never came", x.Hash, tier)
	}
	if b[tier][x.Hash]--; b[tier][x.Hash] == 0 {
		delete(b[tier], x.Hash)
	}
}

// holds is what a core holds, by a look into it.
func holds(c *Core) believer {
	b := believer{}
	c.cache.contents(func(tier slot.Tier, x *Block) {
		if b[tier] == nil {
			b[tier] = map[uint64]int{}
		}
		if b[tier][x.Hash] == 0 || c.cache.changes.copies {
			b[tier][x.Hash]++
		}
	})
	return b
}

func (b believer) same(o believer) bool {
	for tier := range slot.Remote {
		if !maps.Equal(b[tier], o[tier]) {
			return false
		}
	}
	return true
}

// wellFormed checks that stored blocks stand behind one another, and are called what their tokens are called.
func wellFormed(t *rapid.T, list []Change, size int, ours map[uint64][]block.Hash) {
	for _, ch := range list {
		if ch.Kind != Cleared && len(ch.Blocks) == 0 {
			t.Fatalf("%+v tells of nothing", ch)
		}
		if ch.Kind != Stored {
			continue
		}
		for i, x := range ch.Blocks {
			if i > 0 && (!x.HasParent || x.Parent != ch.Blocks[i-1].Hash) {
				t.Fatalf("block %d of %d does not continue the one before", i, len(ch.Blocks))
			}
			if x.Partial != (len(x.Tokens) < size) || len(x.Tokens) == 0 {
				t.Fatalf("%d tokens in a block, partial: %v", len(x.Tokens), x.Partial)
			}
			var before []block.Hash
			if x.HasParent {
				before = ours[x.Parent]
			}
			if before == nil && x.HasParent {
				t.Fatalf("the parent of %x was never told of", x.Hash)
			}
			chain := appendSequence(slices.Clone(before), x.Tokens, len(x.Tokens), x.LoRA, x.Salt)
			if got := chain[len(chain)-1]; got != x.Sequence || got == x.Hash {
				t.Fatalf("%x is called %x, its tokens are %x", x.Hash, x.Sequence, got)
			}
			ours[x.Hash] = chain
		}
	}
}

// Whatever requests come and go, who believes what is told knows what is there.
func TestChangesAgainstBeliever(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		core := small(func(c *Config) {
			c.Events, c.HashSeed = "tcp://127.0.0.1:0", rapid.Uint64().Draw(t, "seed")
			if c.Dialect = rapid.SampledFrom(dialects).Draw(t, "dialect"); c.Dialect == DialectTensorRT {
				c.Events = ""
			}
			c.KVBlocks = rapid.IntRange(3, 12).Draw(t, "blocks")
			c.HostBlocks = rapid.SampledFrom([]int{0, 1, 5, 20}).Draw(t, "host")
			c.DiskBlocks = rapid.SampledFrom([]int{0, 1, 10}).Draw(t, "disk")
		})
		twin, names := believer{}, map[uint64][]block.Hash{}
		next := uint64(0)
		ask := func(t *rapid.T) {
			output := rapid.IntRange(1, 8).Draw(t, "output")
			tokens := ids(rapid.SampledFrom([]byte("ab")).Draw(t, "text"), rapid.IntRange(1, 24).Draw(t, "prompt")+output)
			space := rapid.SampledFrom([][2]string{{}, {}, {}, {"l", ""}, {"", "s"}, {"l", "s"}}).Draw(t, "namespace")
			r := recorded(next, tokens, output, core.blockTokens, space[0], space[1])
			r.Report, r.Bypass = rapid.IntRange(0, 4).Draw(t, "report") == 0, rapid.IntRange(0, 9).Draw(t, "bypass") == 0
			if core.Submit(0, r) == nil { // else too large
				next++
			}
		}
		finish := func() {
			for took := time.Duration(1); took > 0; {
				took, _ = core.Step(0)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"submit":    ask,
			"answer":    func(t *rapid.T) { ask(t); finish() },
			"once more": func(t *rapid.T) { ask(t); finish() },
			"abort": func(t *rapid.T) {
				if next > 0 {
					core.Abort(rapid.Uint64Range(0, next-1).Draw(t, "id"))
				}
			},
			"reset": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
					t.Skip("not now")
				}
				core.Reset()
			},
			"step": func(*rapid.T) { core.Step(0) },
			"": func(t *rapid.T) {
				list := core.Changes()
				wellFormed(t, list, core.blockTokens, names)
				twin.hear(t, list)
				if truth := holds(core); !twin.same(truth) {
					t.Fatalf("told %v, but it holds %v", twin, truth)
				}
				for _, tier := range core.cache.lower {
					if tier.order.Len() > tier.room || tier.order.Len() != len(tier.at) {
						t.Fatalf("the %s holds %d of %d blocks, %d by name", tier.name, tier.order.Len(), tier.room, len(tier.at))
					}
				}
			},
		})
	})
}

// tale writes changes in a line: + stored, - removed, > moved, ! cleared; a block is its text and its place in it.
func tale(list []Change) []string {
	lines := []string{}
	for _, ch := range list {
		word := map[ChangeKind]string{Stored: "+", Removed: "-", Moved: ">", Cleared: "!"}[ch.Kind]
		if ch.Kind == Cleared {
			lines = append(lines, word)
			continue
		}
		word = ch.Tier.String() + word
		for _, b := range ch.Blocks {
			word += fmt.Sprintf(" %c%d", b.Tokens[0]>>16, b.Tokens[0]&0xffff/4)
			if b.Partial {
				word += "'"
			}
		}
		lines = append(lines, word)
	}
	return lines
}

func TestTales(t *testing.T) {
	type ask struct {
		text           byte
		prompt, output int
	}
	for _, c := range []struct {
		name   string
		change func(*Config)
		asks   []ask // one after the other
		want   []string
	}{
		{"prefill in chunks, then the answer", nil, []ask{{'a', 14, 7}}, []string{
			"device+ a0 a1", "device+ a2", "device+ a3", "device+ a4",
		}},
		{"a repeat is cached, but for the end", nil, []ask{{'a', 14, 1}, {'a', 14, 1}}, []string{"device+ a0 a1", "device+ a2"}},
		{"a prompt of whole blocks: the last is a copy", nil, []ask{{'a', 8, 1}, {'a', 8, 1}}, []string{"device+ a0 a1", "device+ a1"}},
		{"as SGLang sees it", func(c *Config) { c.Dialect = DialectSGLang }, []ask{{'a', 8, 1}, {'a', 8, 1}}, []string{"device+ a0 a1"}},
		{"eviction, the end first, one by one", func(c *Config) { c.KVBlocks = 3 }, []ask{{'a', 9, 1}, {'b', 9, 1}}, []string{
			"device+ a0 a1", "device- a1", "device- a0", "device+ b0 b1",
		}},
		{"SGLang gathers removals", func(c *Config) { c.KVBlocks, c.Dialect = 3, DialectSGLang }, []ask{{'a', 9, 1}, {'b', 9, 1}}, []string{
			"device+ a0 a1", "device- a1 a0", "device+ b0 b1",
		}},
		{"down to the host and back", func(c *Config) { c.KVBlocks, c.HostBlocks = 3, 4 }, []ask{{'a', 9, 1}, {'b', 9, 1}, {'a', 9, 1}}, []string{
			"device+ a0 a1", "host+ a1", "device- a1", "host+ a0", "device- a0", "device+ b0 b1",
			"host+ b1", "device- b1", "host+ b0", "device- b0", "device+ a0 a1",
		}},
		{"what the host has already goes down without a word; what was used there last stays longest",
			func(c *Config) { c.KVBlocks, c.HostBlocks = 3, 4 },
			[]ask{{'a', 9, 1}, {'b', 9, 1}, {'c', 9, 1}, {'a', 9, 1}, {'b', 5, 1}, {'d', 9, 1}}, []string{
				"device+ a0 a1", "host+ a1", "device- a1", "host+ a0", "device- a0", "device+ b0 b1",
				"host+ b1", "device- b1", "host+ b0", "device- b0", "device+ c0 c1",
				"host- b1", "host+ c1", "device- c1", "host- b0", "host+ c0", "device- c0", "device+ a0 a1",
				"device- a1", "device+ b0",
				"device- a0", "host- c1", "host+ b0", "device- b0", "device+ d0 d1",
			}},
		{"through the host to the disk", func(c *Config) { c.KVBlocks, c.HostBlocks, c.DiskBlocks = 3, 1, 1 }, []ask{{'a', 9, 1}, {'b', 9, 1}}, []string{
			"device+ a0 a1", "host+ a1", "device- a1", "disk+ a1", "host- a1", "host+ a0", "device- a0", "device+ b0 b1",
		}},
		{"TensorRT-LLM moves blocks and keeps parts",
			func(c *Config) { c.KVBlocks, c.HostBlocks, c.Dialect = 3, 4, DialectTensorRT }, []ask{{'a', 9, 1}, {'b', 9, 1}, {'a', 9, 1}},
			[]string{
				"device+ a0 a1", "device+ a2'", "device- a2'", "host> a1", "host> a0", "device+ b0 b1", "device+ b2'",
				"device- b2'", "host> b1", "host> b0", "device> a0", "device> a1", "device+ a2'",
			}},
	} {
		core := small(func(cfg *Config) {
			cfg.Events = "tcp://127.0.0.1:0"
			if c.change != nil {
				c.change(cfg)
			}
		})
		got := []string{}
		for i, a := range c.asks {
			submit(t, core, recorded(uint64(i), ids(a.text, a.prompt+a.output), a.output, 4, "", ""))
			for took := time.Duration(1); took > 0; {
				took, _ = core.Step(0)
				got = append(got, tale(core.Changes())...)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", c.name, got, c.want)
		}
	}
}

func TestResetIsToldWithTheNextStep(t *testing.T) {
	core := small(func(cfg *Config) { cfg.Events = "tcp://127.0.0.1:0" })
	submit(t, core, recorded(1, ids('a', 9), 1, 4, "", ""))
	steps(core, 2)
	core.Changes()
	core.Reset()
	submit(t, core, recorded(2, ids('a', 9), 1, 4, "", ""))
	steps(core, 1)
	if got, want := tale(core.Changes()), []string{"!", "device+ a0 a1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestHostIsSlowerThanTheDeviceAndFasterThanComputing(t *testing.T) {
	took := func(device, host, disk int) time.Duration {
		core := small(func(cfg *Config) {
			cfg.KVBlocks, cfg.HostBlocks, cfg.DiskBlocks, cfg.MaxTokens, cfg.BlockTokens = device, host, disk, 8192, 16
		})
		ask := func(id uint64, text string) (d time.Duration) {
			var c block.Chainer
			c.Reset(16, 1, nil)
			for range 4000 {
				c.WriteString(text)
			}
			submit(t, core, Request{ID: id, Prompt: 4000, Output: 1, Chain: c.Sum()})
			d, _ = core.Step(0)
			return d
		}
		ask(1, "a")
		ask(2, "b")
		return ask(3, "a")
	}
	device, host, disk, nowhere := took(500, 0, 0), took(250, 250, 0), took(250, 0, 250), took(250, 0, 0)
	if device >= host || host >= disk || disk >= nowhere {
		t.Errorf("a prompt that is on the device takes %s, in the host's memory %s, on the disk %s, nowhere %s", device, host, disk, nowhere)
	}
}

func TestTokensAreNeeded(t *testing.T) {
	core := small(func(cfg *Config) { cfg.Events = "tcp://127.0.0.1:0" })
	if err := core.Submit(0, Request{ID: 1, Prompt: 3, Output: 1}); err == nil {
		t.Error("a request without tokens was accepted")
	}
}

func TestHashesDependOnTheSeed(t *testing.T) {
	name := func(seed uint64) uint64 {
		return newNamed(&Request{Tokens: ids('a', 4)}, 4, seed).block(0).Hash
	}
	if one, again, other := name(1), name(1), name(2); one != again || one == other {
		t.Error("equal seeds must give equal hashes, others must not")
	}
}
