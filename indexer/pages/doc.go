// Package pages joins the small cache pages of an engine to the larger blocks that the gateway counts in.
//
// Some engines (SGLang) announce pages of p tokens, often 1, while a block of ours has N, a multiple of p. A worker holds a
// block if it holds all its N/p pages. A Joiner is told of the pages of one worker; in the common case pages come in order, the
// last one of a block completes it, and the block is given on in the form that runs.Index takes:
//
//	j, err := pages.New(pages.Config{Page: 1, Block: 16, Limit: 2_000_000, Waiting: 20_000})
//	j.Store(pages, func(b pages.Blocks) {
//		index.Store(runs.Holder{Slot: s, Tier: b.Tier}, runs.Stored{Root: b.Root, Parent: b.Parent, Engine: b.Keys, Hashes: b.Locals})
//	}, func(t slot.Tier, keys []uint64) {
//		index.Remove(runs.Holder{Slot: s, Tier: t}, keys)
//	})
//
// Tiers. The pages of one block may lie on several: an engine that moves pages of 1 token to host memory does not stop where our
// blocks do. A block is complete on the tier of its slowest page, when each page is taken from the highest tier that holds it:
// that is where the worker must fetch from to have all of it. It is complete on a tier that holds all its pages, too, as the
// index goes on there when what is above goes. Here are blocks of four pages on the device and the host:
//
//	device  a b c d    a b c d    a b . .    a b c d    a b . .
//	host    . . . .    a b c d    . . c d    . . c d    . . c .
//	block   device     both       host       device     none
//
// So storing a page may take a block from a lower tier, and removing one may give a block to a lower tier. The index follows
// a prompt downwards only: what lies on a higher tier behind a block on a lower one is not in its overlap. Engines that let the
// ends of prompts go first have no such thing.
//
// Pages lie in lines. A line is the part of one block that no earlier line has; here two prompts in blocks of four pages
// part in the middle of a block, and a third line waits, as nothing is known of the page before it:
//
//	line 1  a b c d ──next──> line 2  e f . .          prompt a b c d e f
//	line 1    └──branch──────> line 3  - x y z         prompt a b x y z ...: its block is a b x y
//	line 3        └──next────> ...
//	waits for q:               line 4  r s t .         may begin anywhere in a block
//
// A line has a key, a token and, per tier, a bit for each of its pages; a branch has a copy of the tokens before it. So
// whether a block is complete is one compare of bits for each tier in use, and as many more for each line that it branched off.
//
// Why this is small, fast and exact:
//
//   - A table leads from a page's key to its line and offset, by 32 bits of a hash: the key itself stands in the line, once.
//     With p = 1 a page takes about 30 bytes, its token included. Nothing points to a page, so the garbage collector has
//     nothing to follow.
//   - Nothing notes which blocks were given on: on which tiers a block is complete before and after a bit changes tells what to
//     give and to take. With the device alone one of the two is known to be none.
//   - A page that nobody holds any more is remembered only as long as a page behind it is: its children must know
//     their place when they are announced again, or on another tier. What is remembered does not depend on the order of
//     events, and when all was removed nothing is left.
//   - Pages whose parent is not known are in the table, too: they are counted, removed and continued as all others. When the
//     parent comes their pages are moved to where they belong.
//
// Limits. When Config.Limit is reached, pages that wait are forgotten, then new ones are refused. No page that is held is
// given up for a new one: nothing says which is older, and an engine that holds more than it has room for has lost
// removals, which only clearing it mends. Whatever is lost, the pages of the blocks given on are all held, on the block's tier or above.
//
// Rejected: an entry for each page with its key and its parent in a flat table, 50 bytes and more a page, that must be walked page
// by page to find whether a block is complete; lines without keys, as then a page that lost its last child cannot be found.
//
// What the caller passes. A key names a page and everything before it, in one worker. Where a known key comes with another parent
// or other tokens, what was said first counts.
//
// Files: joiner.go has the calls; line.go the lines and how they are trimmed; blocks.go what is complete; waiting.go what
// waits for a parent; table.go finds pages by key; config.go and stats.go.
package pages
