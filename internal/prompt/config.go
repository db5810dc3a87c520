package prompt

import "attache/internal/field"

// Config says how prompts are cut into blocks.
type Config struct {
	// BlockTokens is the size of a block in tokens. It should be the engines' own block size, or a multiple of it: larger
	// blocks see less of a shared prefix, smaller ones believe in reuse that engines do not give, and both take memory in
	// the index in inverse proportion.
	BlockTokens int `yaml:"block_tokens"`
	// BytesPerToken is how many bytes of text are taken for one token where no tokenizer is at hand. 4 fits English with
	// the usual vocabularies; code has 3, Chinese and Japanese about 3. Too low a value overestimates prompts and with them
	// the load of long requests; too high a value underestimates them.
	BytesPerToken int `yaml:"bytes_per_token"`
}

// DefaultConfig fits engines with blocks of 16 or 32 tokens, as those of vLLM and TensorRT-LLM are. Blocks of 32 cost half
// as much to hash and to remember as blocks of 16, and the prefix that they miss takes an engine a millisecond.
func DefaultConfig() Config {
	return Config{
		BlockTokens:   32,
		BytesPerToken: 4,
	}
}

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	check.Check(c.BlockTokens >= 1 && c.BlockTokens <= 4096, "block_tokens", c.BlockTokens, "must be 1 to 4096 tokens")
	check.Check(c.BytesPerToken >= 1 && c.BytesPerToken <= 64, "bytes_per_token", c.BytesPerToken, "must be 1 to 64 bytes")
	return check.Err()
}
