# Two commands for a fresh machine with Go, Node and make: make run, and make test.

MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

GO   ?= go
LINT := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

APP     := examples/order
PACKAGE := $(APP)/node_modules/.package-lock.json
BUNDLE  := $(APP)/.well-known/workflow/v1/manifest.json

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: build $(BUNDLE) ## Start Postgres, the server and the example app, and drive an order through it
	@scripts/need postgres
	@node $(APP)/demo.mjs

.PHONY: build
build: ## Build bin/stepwell
	$(GO) build -o bin/stepwell ./cmd/stepwell

# Apps under test want the processors for themselves, so the black-box packages come last and one by one.
#
# The demo is here as the proof that make run works. With a TEST_DATABASE_URL it happens on that server, in a
# schema that stays there.
.PHONY: test
test: build $(BUNDLE) ## Run everything that must pass: vet, the tests of Node and Go, the demo
	@scripts/need postgres cc chromium python3 fish zsh
	$(GO) vet ./...
	cd clients/world && npm test
	DEMO_ONCE=1 DATABASE_URL="$$TEST_DATABASE_URL" STEPWELL_SCHEMA=stepwell_demo node $(APP)/demo.mjs
	cd eventlog/archive/s3test/testdata/server && $(GO) tool -n server # once, rather than by each test that needs it
	$(GO) test -race -shuffle=on -timeout 20m $$($(GO) list ./... | grep -v /e2e)
	$(GO) test -race -shuffle=on -timeout 20m -p 1 ./e2e/...
	cd bench && $(GO) vet ./... && $(GO) test -race -shuffle=on -timeout 5m ./...

.PHONY: short
short: ## Run the quick part of the Go tests
	$(GO) test -short ./...

.PHONY: e2e
e2e: ## Run the black-box tests alone
	$(GO) test -race -timeout 20m -v ./e2e/...

# What servers and apps say while they are tortured is kept in .data/torture. TORTURE_SEED repeats a run's faults.
export TORTURE_SEED
TORTURE_FOR ?= 10m

.PHONY: torture
torture: ## Kill and restart everything around running apps for TORTURE_FOR (10m); then look what became of them
	@scripts/need postgres
	@mkdir -p .data/torture
	TORTURE_FOR=$(TORTURE_FOR) $(GO) test ./e2e/torture -run '^TestTorture$$' -count 1 -v -timeout 24h \
		-artifacts -outputdir .data/torture

# Half an hour, on a machine that does nothing else. bench/README.md says how to have parts of it.
.PHONY: bench
bench: build ## Measure the server against what this machine's Postgres can do; then read bench/RESULTS.md
	@scripts/need postgres
	cd bench && $(GO) run .

.PHONY: corpus
corpus: ## Record anew what the official clients say, and replay it
	rm -rf handlers/wire/testdata/traffic
	$(GO) test ./e2e -run '^TestRecord$$' -record ../handlers/wire/testdata/traffic -parallel 4 -timeout 20m
	$(GO) test ./handlers/wire -run '^TestReplay$$'

.PHONY: lint
lint: ## Run golangci-lint (the first time builds it, which takes minutes)
	$(LINT) run ./...

.PHONY: fmt
fmt: ## Format the Go code
	$(LINT) fmt ./...

.PHONY: golden
golden: ## Rewrite the golden files from what the code does; then read the diff
	$(GO) test $$(grep -rl --include='*_test.go' --exclude-dir=node_modules 'flag.Bool("update"' . | xargs -n1 dirname | sort -u) -update

.PHONY: clean
clean: ## Remove what was built, and the data of make run
	rm -rf bin .data $(APP)/node_modules $(APP)/.well-known $(APP)/.swc

$(PACKAGE): $(APP)/package.json $(APP)/package-lock.json
	cd $(APP) && npm ci --loglevel=error
	@touch $@

$(BUNDLE): $(PACKAGE) $(wildcard $(APP)/workflows/*.ts)
	cd $(APP) && npm run build
	@touch $@
