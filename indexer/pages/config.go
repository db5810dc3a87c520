package pages

import "fmt"

// Config says what an engine's pages are like and how many are remembered.
type Config struct {
	// Page and Block are the tokens of a page of the engine and of a block of the gateway. A block has 1 to 64 pages.
	Page, Block int
	// Limit bounds the pages that are remembered, those that wait included. Some more than the engine has room for is
	// right: pages that it no longer holds are remembered while others behind them are. A page takes 25 to 30 bytes and its
	// tokens. Worst are pages that all branch off each other: each has a line, 64 bytes with room for a whole block's tokens
	// and for the keys, 8 bytes each, of all its pages.
	Limit int
	// Expect is how many pages the engine has room for, 0 when not known. The table starts with room for as many, which saves
	// half of the time of growing up to it.
	Expect int
	// Waiting bounds the pages whose parent is not known. They wait after events were lost; the oldest go first. What
	// continues waiting pages beyond the bound is refused. 0: none waits.
	Waiting int
	// Sets makes an announcement of a page that is already held on its tier change nothing, and its first removal final.
	// Otherwise announcements are counted, and a page is held until it was removed as often.
	Sets bool
}

const (
	maxPages = 64      // of a block: a bit each in a word
	maxLimit = 1 << 24 // a quarter of the lines that a place can tell
	maxBlock = 4096    // tokens: beyond all use
)

// Validate reports the first field that breaks its rule.
func (c Config) Validate() error {
	switch {
	case c.Page < 1:
		return fmt.Errorf("pages: a page of %d tokens: must be at least 1", c.Page)
	case c.Block < c.Page || c.Block%c.Page != 0 || c.Block > maxBlock:
		return fmt.Errorf("pages: a block of %d tokens: must be a multiple of the page, %d, and at most %d", c.Block, c.Page, maxBlock)
	case c.Block/c.Page > maxPages:
		return fmt.Errorf("pages: a block of %d tokens: must be at most %d pages of %d", c.Block, maxPages, c.Page)
	case c.Limit < 1 || c.Limit > maxLimit:
		return fmt.Errorf("pages: a limit of %d pages: must be 1 to %d", c.Limit, maxLimit)
	case c.Expect < 0:
		return fmt.Errorf("pages: %d pages expected: must be 0 (not known) or more", c.Expect)
	case c.Waiting < 0:
		return fmt.Errorf("pages: %d pages may wait: must be 0 (none) or more", c.Waiting)
	}
	return nil
}
