package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const hi = `{"messages":[{"role":"user","content":"hi"}]}`

// TestCommands is what stands on a terminal: files by name, arguments, then what must and must not be seen.
func TestCommands(t *testing.T) {
	for _, c := range []struct {
		name   string
		files  map[string]string
		args   string // DIR is the folder of the files
		status int
		out    []string // parts of standard output, in order
		errs   string   // standard error, whole
	}{
		{name: "nothing asked shows what there is", args: "", out: []string{"Usage: attache <command>", "serve", "demo", "envoy-config"}},
		{name: "help of a command", args: "serve --help", out: []string{"Usage: attache serve", "--workers=HOST:PORT,..."}},
		{name: "a misspelt command", args: "serv", status: 2, errs: "attache: unexpected argument serv, did you mean \"serve\"?; see attache --help\n"},
		{name: "a misspelt flag", args: "serve --worker=x", status: 2,
			errs: "attache: unknown flag --worker, did you mean \"--workers\"?; see attache --help\n"},
		{name: "the version", args: "version", out: []string{"attache unknown\n"}},
		{name: "a good configuration", args: "check -c DIR/a.yaml",
			files: map[string]string{
				"a.yaml": "pools:\n- {name: small, models: [qwen, q], workers: ['10.0.0.1:8000']}\n- {name: large, models: [llama], workers_file: DIR/w.yaml}\n",
				"w.yaml": "workers: [{address: '10.0.0.2:8000'}, {address: '10.0.0.3:8000'}]\n"},
			out: []string{"a.yaml is good.\n", "pool small (default): qwen, q; 1 workers\n", "pool large: llama; 0 workers, and now 2 in ", "w.yaml\n",
				"ext_proc on 127.0.0.1:9002, xDS on 127.0.0.1:18000, dashboard on http://127.0.0.1:9902\n"}},
		{name: "a bad one", args: "check -c DIR/a.yaml", files: map[string]string{"a.yaml": "log:\n  level: loud\n"}, status: 1,
			errs: "attache: DIR/a.yaml:2: log.level: \"loud\": must be \"debug\", \"info\", \"warn\" or \"error\"\n"},
		{name: "a bad workers file", args: "check -c DIR/a.yaml", status: 1,
			files: map[string]string{"a.yaml": "pools: [{name: a, workers_file: DIR/w.yaml}]\n", "w.yaml": "workers: [{address: nine}]\n"},
			errs:  "attache: workers file DIR/w.yaml: \"nine\": must be host:port, such as 10.0.0.1:8000 or [fd00::1]:8000\n"},
		{name: "no file", args: "check -c DIR/none.yaml", status: 1,
			errs: "attache: configuration: open DIR/none.yaml: no such file or directory\n"},
		{name: "the whole configuration", args: "check --print -c DIR/a.yaml", files: map[string]string{"a.yaml": "replica: blue\n"},
			out: []string{"replica: blue\n", "gc_percent: 400\n"}},
		{name: "a bad address on the command line", args: "serve --workers nine", status: 1,
			errs: "attache: configuration: pools[0].workers[0]: \"nine\": must be host:port, such as 10.0.0.1:8000 or [fd00::1]:8000\n"},
		{name: "a level that is none", args: "serve --log-level loud", status: 1,
			errs: "attache: log.level: \"loud\": must be \"debug\", \"info\", \"warn\" or \"error\"\n"},
		{name: "a model folder that is missing", args: "serve --workers 127.0.0.1:1 --listen-extproc 127.0.0.1:0 --model-dir DIR/none", status: 1,
			errs: "attache: pools[0].prompt.model_dir: stat DIR/none: no such file or directory\n"},
		{name: "an engine that joins nobody", args: "join --engine http://127.0.0.1:1", status: 2,
			errs: "attache: missing flags: --gateway=URL,..., --token-file=FILE; see attache --help\n"},
		{name: "an engine that joins without a token", args: "join --engine http://127.0.0.1:1 --gateway gw:9902 --token-file DIR/none", status: 1,
			errs: "attache: --token-file: \"DIR/none\": must be a file that can be read\n"},
		{name: "Envoy's configuration to attach", args: "envoy-config --model qwen", out: []string{"127.0.0.1", "9002", "18000"}},
		{name: "a static one needs workers", args: "envoy-config --mode static", status: 1,
			errs: "attache: pool default has no workers; mode static lists them: give --workers host:port,… or pools[].workers\n"},
		{name: "a static one lists them", args: "envoy-config --mode static --workers 10.0.0.1:8000,10.0.0.2:8000",
			out: []string{"10.0.0.1", "10.0.0.2"}},
		{name: "an Envoy too old", args: "envoy-config --envoy-version 1.20", status: 1,
			errs: "attache: xds.gateway.envoy_version: \"1.20\": must be 1.38, 1.39 or 1.40\n"},
		{name: "a mode that is none", args: "envoy-config --mode dns", status: 2,
			errs: "attache: --mode must be one of \"ads\",\"attach\",\"static\" but got \"dns\"; see attache --help\n"},
		{name: "the tokens of a request", args: "tokens --model ../../internal/demo/model --body DIR/b.json", files: map[string]string{"b.json": hi},
			out: []string{"rung    exact\ntokens  ", ", in 2 blocks of 16 and ", "\n<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nhi<|im_end|>",
				"block 0  ", "      1994  \"<|im_start|>\"\n", "rest\n"}},
		{name: "as JSON", args: "tokens --json --model ../../internal/demo/model --body DIR/b.json", files: map[string]string{"b.json": hi},
			out: []string{`{"prompt":"<|im_start|>system\nYou`, `"ids":[1994,`, `"count":`, `"block_tokens":16,"block_hashes":["`, `"rung":"exact"}`}},
		{name: "a text on every line", args: "tokens --lines --model ../../internal/demo/model --text DIR/t", files: map[string]string{"t": "\"<|im_end|>\"\n\n\"the sun\"\n"},
			out: []string{`{"prompt":"<|im_end|>","ids":[1995],"count":1,`, "}\n", `{"prompt":"the sun","ids":[`}},
		{name: "a body on every line", args: "tokens --lines --path /v1/completions --model ../../internal/demo/model --body DIR/t",
			files: map[string]string{"t": "{\"prompt\":\"<|im_end|>\"}\n{\"prompt\":[1,2,3]}"}, out: []string{`"ids":[1995],"count":1`, `"count":3`}},
		{name: "a request that is not exact", args: "tokens --path /v1/responses --model ../../internal/demo/model --body DIR/b.json",
			files: map[string]string{"b.json": `{"input":"hi"}`}, out: []string{"rung    approximate: api\ntokens  ", " (estimated), in 0 blocks"}},
		{name: "tokens of a body that is none", args: "tokens --model ../../internal/demo/model --body DIR/b.json", files: map[string]string{"b.json": `{"messages":`},
			status: 1, errs: "attache: body: byte 12: expected a value, found the end of the body\n"},
		{name: "tokens of a line that is none", args: "tokens --lines --model ../../internal/demo/model --text DIR/t", files: map[string]string{"t": "\"a\"\nb\n"},
			status: 1, errs: "attache: line 2: must be a JSON string: invalid character 'b' looking for beginning of value\n"},
		{name: "tokens of no model", args: "tokens --model DIR --text -", status: 1, errs: "attache: --model: stat DIR/tokenizer.json: no such file or directory\n"},
		{name: "tokens of nothing", args: "tokens --model DIR", status: 2, errs: "attache: missing flags: --body=FILE or --text=FILE; see attache --help\n"},
		{name: "an engine without a profile", args: "engine --profile cray", status: 1, errs: "attache: simulated engine: profile: \"cray\": must be one of qwen3-32b-2xh100, qwen3-32b-2xh100-fast, llama-3-70b-4xh100, " +
			"llama-3-8b-1xh100\n"},
		{name: "an engine of another make", args: "engine --dialect tgi --events 127.0.0.1:5557", status: 1, errs: "attache: simulated engine: dialect: \"tgi\": must be one of " +
			"vllm-map, vllm-array, sglang, trtllm\nevents: \"127.0.0.1:5557\": must be tcp://host:port, where the host may be * for all and the port * for any free one, or ipc://path\n"},
		{name: "help for engines", args: "engine --help", out: []string{"--profile=NAME", "qwen3-32b-2xh100, qwen3-32b-2xh100-fast", "--dialect=\"vllm-map\"", "vllm-map, vllm-array, sglang,"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out, errs bytes.Buffer
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // nothing here should get as far as serving
			status := run(ctx, strings.Fields(strings.ReplaceAll(c.args, "DIR", dir)), &out, &errs)
			if status != c.status {
				t.Errorf("status %d, want %d", status, c.status)
			}
			if want := strings.ReplaceAll(c.errs, "DIR", dir); errs.String() != want {
				t.Errorf("standard error:\n%s\nwant:\n%s", errs.String(), want)
			}
			rest := out.String()
			for _, part := range c.out {
				at := strings.Index(rest, part)
				if at < 0 {
					t.Fatalf("standard output lacks %q:\n%s", part, out.String())
				}
				rest = rest[at+len(part):]
			}
		})
	}
}

// TestEnvoyConfigIsYAML: what is printed can be piped into a file; remarks are comments.
func TestEnvoyConfigIsYAML(t *testing.T) {
	for _, mode := range []string{"ads", "attach", "static"} {
		var out, errs bytes.Buffer
		if status := run(t.Context(), []string{"envoy-config", "--mode", mode, "--workers", "10.0.0.1:8000"}, &out, &errs); status != 0 {
			t.Fatalf("%s: status %d: %s", mode, status, errs.String())
		}
		var tree struct {
			Static map[string]any `yaml:"static_resources"`
		}
		if err := yaml.Unmarshal(out.Bytes(), &tree); err != nil || len(tree.Static) == 0 {
			t.Errorf("%s: %v\n%s", mode, err, out.String())
		}
	}
}
