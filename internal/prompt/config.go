package prompt

import (
	"encoding/json"

	"attache/internal/field"
)

// Config says how prompts are cut into blocks.
type Config struct {
	// BlockTokens is the size of a block in tokens. It should be the engines' own block size, or a multiple of it: larger
	// blocks see less of a shared prefix, smaller ones believe in reuse that engines do not give, and both take memory in
	// the index in inverse proportion. A pool may have its own.
	BlockTokens int `yaml:"block_tokens"`
	// BytesPerToken is how many bytes of text are taken for one token where no tokenizer is at hand. 4 fits English with
	// the usual vocabularies; code has 3, Chinese and Japanese about 3. Too low a value overestimates prompts and with them
	// the load of long requests; too high a value underestimates them.
	BytesPerToken int `yaml:"bytes_per_token"`
	// MemoBytes bounds the memory, per pool with a model folder, in which the blocks of prompts that were seen before are
	// remembered, in bytes: what is found there is not tokenized again. A conversation of 100,000 tokens takes about 60 KB.
	// With too little, long conversations cost milliseconds of CPU per turn.
	MemoBytes int `yaml:"memo_bytes"`
}

// DefaultConfig fits engines with blocks of 16 or 32 tokens, as those of vLLM and TensorRT-LLM are. Blocks of 32 cost half
// as much to hash and to remember as blocks of 16, and the prefix that they miss takes an engine a millisecond.
func DefaultConfig() Config {
	return Config{
		BlockTokens:   32,
		BytesPerToken: 4,
		MemoBytes:     256 << 20,
	}
}

const blockTokensRule = "must be 1 to 4096 tokens"

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	check.Check(c.BlockTokens >= 1 && c.BlockTokens <= 4096, "block_tokens", c.BlockTokens, blockTokensRule)
	check.Check(c.BytesPerToken >= 1 && c.BytesPerToken <= 64, "bytes_per_token", c.BytesPerToken, "must be 1 to 64 bytes")
	check.Check(c.MemoBytes >= 0, "memo_bytes", c.MemoBytes, "must be 0 (remember nothing) or more bytes")
	return check.Err()
}

// ModelConfig says how a pool's engines make tokens of a request, so that it can be done here, exactly.
type ModelConfig struct {
	// ModelDir is the folder of the pool's model, as it comes from Hugging Face: tokenizer.json, tokenizer_config.json and, if
	// there is one, chat_template.jinja are read from it, weights are not needed. With it prompts are cut into exactly the
	// tokens that the engines make of them; without it, they are cut by length. It must be the same model, of the same
	// revision, that the engines serve. Nothing is fetched from anywhere.
	ModelDir string `yaml:"model_dir"`
	// BlockTokens is the pool's block size in tokens, in place of router.prompt.block_tokens. With a model folder it should
	// be the engines' own (vLLM: --block-size, SGLang: --page-size), of which exact chains are made. 0: 16 with a model folder, else as the router.
	BlockTokens int `yaml:"block_tokens"`
	// ChatTemplate is a file with the chat template, for engines that were started with --chat-template. Empty: the model's.
	ChatTemplate string `yaml:"chat_template"`
	// ContentFormat is in what form the template gets the content of messages, for engines that were started with
	// --chat-template-content-format: "string", "openai" (a list of parts), or empty to tell by what the template looks like.
	ContentFormat string `yaml:"content_format"`
	// ChatTemplateKwargs are variables for the template in JSON, such as '{"enable_thinking":false}', which requests may
	// override: for engines that were started with --default-chat-template-kwargs. Empty: none.
	ChatTemplateKwargs string `yaml:"chat_template_kwargs"`
	// MediaTokens is how many tokens an image, a sound or a video becomes, where the engine makes the same number of each.
	// 0: not known; 256 are assumed for load.
	MediaTokens int `yaml:"media_tokens"`
	// Tokenize is whether an engine of the pool is asked (its /tokenize) for the tokens of a prompt that cannot be made here
	// exactly; the request waits for the answer. It costs a round trip and the engine some of its CPU, so it pays only where such prompts are long.
	// Off by default.
	Tokenize bool `yaml:"tokenize"`
	// MismatchLimit is the share of requests, 0 to 1, whose token count may differ from what the engine reports in usage.
	// Above it the model folder is not that of the engines, exact chains would match nothing, and the pool's prompts are cut
	// by length until counts agree again; the log shows an example. 0: 0.1.
	MismatchLimit float64 `yaml:"mismatch_limit"`
}

// mismatchLimit is the bound where none is configured. Some requests may differ for reasons of their own, such as a member
// that only the engine knows.
const mismatchLimit = 0.1

// The names of content formats.
const (
	formatString = "string"
	formatOpenAI = "openai"
)

// Validate reports every field that breaks its rule.
func (c ModelConfig) Validate() error {
	var check field.Checker
	check.Check(c.BlockTokens >= 0 && c.BlockTokens <= 4096, "block_tokens", c.BlockTokens, "must be 0 (by default) to 4096 tokens")
	known := c.ContentFormat == "" || c.ContentFormat == formatString || c.ContentFormat == formatOpenAI
	check.Check(known, "content_format", c.ContentFormat, `must be "string", "openai" or empty`)
	check.Check(c.ChatTemplate == "" || c.ModelDir != "", "chat_template", c.ChatTemplate, "needs model_dir, the model's folder")
	if c.ChatTemplateKwargs != "" {
		var object map[string]json.RawMessage
		err := json.Unmarshal([]byte(c.ChatTemplateKwargs), &object)
		check.Check(err == nil && object != nil, "chat_template_kwargs", c.ChatTemplateKwargs,
			`must be a JSON object such as {"enable_thinking":false}`)
	}
	check.Check(c.MediaTokens >= 0 && c.MediaTokens <= 1<<20, "media_tokens", c.MediaTokens, "must be 0 (not known) to 1048576 tokens")
	check.Check(c.MismatchLimit >= 0 && c.MismatchLimit <= 1, "mismatch_limit", c.MismatchLimit, "must be 0 to 1")
	return check.Err()
}
