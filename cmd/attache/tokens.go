package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"attache/internal/block"
	"attache/internal/openai"
	"attache/internal/prompt"
)

type tokensCmd struct {
	Model              string `required:"" type:"path" help:"The model's folder, with tokenizer.json." placeholder:"DIR"`
	Body               string `help:"A request body in JSON; - reads standard input." placeholder:"FILE" xor:"input" required:""`
	Text               string `help:"A text that is taken as it is; - reads standard input." placeholder:"FILE" xor:"input" required:""`
	Path               string `default:"/v1/chat/completions" help:"Where the body was sent to."`
	Lines              bool   `help:"Read one body, or one text as a JSON string, per line; print one JSON object per line."`
	JSON               bool   `name:"json" help:"Print JSON."`
	BlockTokens        int    `default:"16" help:"Tokens in a block, as the engines are set."`
	Engine             string `default:"vllm" enum:"vllm,sglang" help:"Whose ways of preparing chats to follow: vllm or sglang."`
	ChatTemplate       string `type:"path" help:"A chat template in place of the model's." placeholder:"FILE"`
	ChatTemplateKwargs string `help:"Variables for the template, in JSON." placeholder:"JSON"`
}

// maxInput bounds what is read, in bytes.
const maxInput = 256 << 20

func (c *tokensCmd) Run(ctx context.Context, out io.Writer) error {
	model := prompt.ModelConfig{ModelDir: c.Model, BlockTokens: c.BlockTokens, ChatTemplate: c.ChatTemplate, ChatTemplateKwargs: c.ChatTemplateKwargs}
	if err := model.Validate(); err != nil {
		return err
	}
	keyer, err := prompt.New(prompt.Params{Config: prompt.DefaultConfig(), Model: model, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	if err := keyer.Load(ctx); err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	name := c.Body + c.Text // one of them is empty
	in := io.Reader(os.Stdin)
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	buffered := bufio.NewWriterSize(out, 1<<16)
	t := tokenPrinter{tokensCmd: c, ctx: ctx, keyer: keyer, out: buffered}
	if c.Lines {
		err = t.lines(in)
	} else {
		err = t.whole(in)
	}
	return errors.Join(err, buffered.Flush())
}

// tokenPrinter shows the tokens of one input after another.
type tokenPrinter struct {
	*tokensCmd

	ctx   context.Context //nolint:containedctx // it lives as long as the command
	keyer *prompt.Keyer
	out   *bufio.Writer
}

// lines handles every line by itself. The error names the line.
func (t *tokenPrinter) lines(in io.Reader) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			if err := t.line(line); err != nil {
				return fmt.Errorf("line %d: %w", number, err)
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case len(line) > maxInput:
			return fmt.Errorf("line %d: must be at most %d bytes", number, maxInput)
		}
	}
}

func (t *tokenPrinter) line(line []byte) error {
	if t.Body != "" {
		x, err := t.explain(line)
		if err != nil {
			return err
		}
		return t.printJSON(&x)
	}
	var text string
	if err := json.Unmarshal(line, &text); err != nil {
		return fmt.Errorf("must be a JSON string: %w", err)
	}
	x := t.keyer.ExplainText([]byte(text), block.Seed("", ""))
	return t.printJSON(&x)
}

func (t *tokenPrinter) whole(in io.Reader) error {
	input, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err != nil {
		return err
	}
	if len(input) > maxInput {
		return fmt.Errorf("the input must be at most %d bytes", maxInput)
	}
	var x prompt.Explained
	if t.Body == "" {
		x = t.keyer.ExplainText(input, block.Seed("", ""))
	} else if x, err = t.explain(input); err != nil {
		return err
	}
	if t.JSON {
		return t.printJSON(&x)
	}
	return t.print(&x)
}

func (t *tokenPrinter) explain(body []byte) (prompt.Explained, error) {
	var req openai.Request
	if err := openai.Scan(&req, openai.KindOf("POST", t.Path), body); err != nil {
		return prompt.Explained{}, err
	}
	model := req.ModelText(body)
	q := prompt.Query{Body: body, Scan: &req, Model: model, Seed: block.Seed(model, string(req.CacheSalt.In(body)))}
	if t.Engine == "sglang" {
		q.Dialect = prompt.SGLang
	}
	return t.keyer.Explain(t.ctx, &q), nil
}

func (t *tokenPrinter) printJSON(x *prompt.Explained) error {
	shown := struct {
		Prompt      string   `json:"prompt"`
		IDs         []uint32 `json:"ids"`
		Count       int      `json:"count"`
		BlockTokens int      `json:"block_tokens"`
		BlockHashes []string `json:"block_hashes"`
		Rung        string   `json:"rung"`
		Reason      string   `json:"reason,omitempty"`
		Detail      string   `json:"detail,omitempty"`
	}{
		Prompt: string(x.Prompt), IDs: append([]uint32{}, x.IDs...), Count: x.Tokens, BlockTokens: x.BlockTokens,
		BlockHashes: hexOf(x.Hashes), Rung: x.Rung.String(), Reason: string(x.Why),
	}
	if x.Err != nil {
		shown.Detail = x.Err.Error()
	}
	encoder := json.NewEncoder(t.out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(shown)
}

func hexOf(hashes []block.Hash) []string {
	out := make([]string, len(hashes))
	for i, h := range hashes {
		out[i] = fmt.Sprintf("%016x", h)
	}
	return out
}

// print shows the tokens to a person: the text, every token with its text, and the blocks.
func (t *tokenPrinter) print(x *prompt.Explained) error {
	fmt.Fprintf(t.out, "rung    %s", x.Rung)
	if x.Why != "" {
		fmt.Fprintf(t.out, ": %s", strings.ReplaceAll(string(x.Why), "_", " "))
	}
	if x.Err != nil {
		fmt.Fprintf(t.out, ": %v", x.Err)
	}
	fmt.Fprintf(t.out, "\ntokens  %d", x.Tokens)
	if x.Rung == prompt.Approximate {
		fmt.Fprint(t.out, " (estimated)")
	}
	fmt.Fprintf(t.out, ", in %d blocks of %d and %d more\n", len(x.Hashes), x.BlockTokens, x.Tokens-len(x.Hashes)*x.BlockTokens)
	if len(x.IDs) > 0 {
		fmt.Fprintf(t.out, "\n%s\n", x.Prompt)
	}
	if len(x.IDs) == 0 {
		for n, h := range x.Hashes {
			fmt.Fprintf(t.out, "block %d  %016x\n", n, h)
		}
		return nil
	}
	for n, ids := 0, x.IDs; len(ids) > 0; n++ {
		if n < len(x.Hashes) {
			fmt.Fprintf(t.out, "\nblock %d  %016x\n", n, x.Hashes[n])
		} else {
			fmt.Fprint(t.out, "\nrest\n")
		}
		for _, id := range ids[:min(x.BlockTokens, len(ids))] {
			fmt.Fprintf(t.out, "  %8d  %q\n", id, t.keyer.Piece(id))
		}
		ids = ids[min(x.BlockTokens, len(ids)):]
	}
	return nil
}
