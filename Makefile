# On a fresh machine with Go, Node and make, start with `make run` and `make test`.

MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

GO   ?= go
LINT := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

APP     := examples/order
PACKAGE := $(APP)/node_modules/.package-lock.json
BUNDLE  := $(APP)/.well-known/workflow/v1/manifest.json
UI      := ui/node_modules/.package-lock.json

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: build $(BUNDLE) ## Start Postgres, the server and the example app, and place an order
	@scripts/need postgres
	@node $(APP)/demo.mjs

.PHONY: build
build: ## Build bin/stepwell
	$(GO) build -o bin/stepwell ./cmd/stepwell

# GOTEST runs go test, and keeps the times of the tests. It leaves out go test's own vet: go vet has been run before. A
# program with the race detector sleeps a second before it exits, lest it miss a race of goroutines that still run; after
# tests, none should.
TIMES  := .data/test-times
GOTEST := GOFLAGS="$$GOFLAGS -vet=off" GORACE=atexit_sleep_ms=100 $(GO) run ./scripts/gotest $(TIMES)

# The tests of these packages only calculate, for which the race detector takes up to ten times as long. The few that
# use goroutines run with it nevertheless. Those of cmd/stepwell start its commands again and again, which takes four
# times as long with it; the packages of the server are tested with it. test-long runs cmd/stepwell and schema with it.
WITHOUT_RACE := . ./cmd/stepwell ./flow ./flow/condition ./flow/goal ./flow/replay ./schema ./starts/schedule/cron

# These tests of ONE_BY_ONE_IN try many cases, in each of which one statement, request or command follows another, or
# send megabytes. The race detector takes twice to nine times as long for them, and it finds nothing in them: the tests of
# racing clients and of servers, which are beside them, keep it. test-long runs all tests with it.
ONE_BY_ONE_IN := ./engine ./eventlog ./eventlog/archive ./handlers ./handlers/rest ./handlers/wire ./queue
ONE_BY_ONE    := \
	TestARunIsInvokedWhenItsAwaitHolds \
	TestAnswerSurvivesACrashAtAnyStatement \
	TestBucketPassIsRepeatableAfterACrash \
	TestCrashAtAnyStatementOfAppend \
	TestDecodedChunks \
	TestFailedListBreaksTheConnection \
	TestFlowsRefuseWhatTheyCannotRead \
	TestI1I2RowsAreTheFoldOfADenseLog \
	TestI2AppendedRowsAreVerifiedAndRebuilt \
	TestI4EveryInterleavingIsSerializable \
	TestI4EveryInterleavingOfInlineDecisionsIsSerial \
	TestI4EveryInterleavingOfOptimisticAppendsIsSerial \
	TestI4EveryInterleavingOfTheQueueIsSerial \
	TestImportRejectsFilesOtherThanAWholeEndedRun \
	TestInlineStartSurvivesACrashAtAnyStatement \
	TestLargeRunIsArchivedInBoundedMemory \
	TestLogsAreTheSameWithoutInlineDecisions \
	TestOddValuesInNextLineFields \
	TestOtherProjectsLearnAndChangeNothing \
	TestPagesAreBoundedByPayloadSize \
	TestPagesOfApprovals \
	TestReplay \
	TestRolesCanUseOnlyTheirRoutes \
	TestSignalDispatchSurvivesACrashAtAnyStatement \
	TestTheServerDecidesAsARemoteFunction \
	TestTooMuchUnreadIsRefused \
	TestWholeLogIsSentInOneAnswer

# The scenes of the dashboard that make test plays: sign-in and roles, runs, flows, the overview. e2e plays all.
PAGES_IN := ./e2e/ui
PAGES    := TestAccess TestDashboard TestFlowPages TestOverview TestWorkflowsAndFailures

# names is the pattern of go test for a list of tests.
names = ^($(subst $() ,|,$(strip $(1))))$$

# What make test leaves to e2e. Runs of the Workflow SDK, which tools looks at, are tested by ./e2e.
E2E_ONLY := ./e2e/hostile ./e2e/tools $(PAGES_IN)

# The parts of make test run two at a time, in this order: beside those that need all processors, the others wait for
# browsers, for servers to be missed, and for leases to end.
TEST_PARTS := test-server test-npm test-without-race test-failures test-pages test-sdk-tests test-one-by-one test-e2e test-modules

.PHONY: test $(TEST_PARTS)
test: ## Run all checks: vet, the Node and Go tests, the demo
	@scripts/need postgres pgbouncer cc chromium python3 faketime proxies
	@rm -f $(TIMES)
	@$(MAKE) --jobs=2 --no-print-directory test-build $(BUNDLE) $(UI)
	@$(MAKE) --jobs=2 --no-print-directory $(TEST_PARTS)
	@echo 'The slowest tests:'; sort -rn $(TIMES) | head -30

# test-build builds once what several tests start.
.PHONY: test-build
test-build: build
	$(GO) vet ./...
	mkdir -p bin/tests && cp bin/stepwell bin/tests/
	cd eventlog/archive/s3test/testdata/server && $(GO) tool -n server
	cd handlers/oidc/oidctest/testdata/provider && $(GO) tool -n provider
	cd admin/encryption/awskms/kmstest/testdata/server && $(GO) tool -n server
	$(GO) -C handlers/rest/api/generator tool -n oapi-codegen

test-server:
	$(GOTEST) -race -shuffle=on -timeout 40m -p 3 -skip '$(call names,$(ONE_BY_ONE))' $$($(GO) list ./... | grep -vxF "$$($(GO) list $(WITHOUT_RACE) ./e2e/...)")

test-one-by-one:
	$(GOTEST) -shuffle=on -timeout 20m -run '$(call names,$(ONE_BY_ONE))' $(ONE_BY_ONE_IN)

test-without-race:
	$(GOTEST) -shuffle=on -timeout 10m $(WITHOUT_RACE)
	$(GOTEST) -race -timeout 10m -run 'Concurrent|OneEvaluation|EndsWithItsContext' ./flow/condition

# The demo proves that `make run` works. With TEST_DATABASE_URL it runs on that database server and leaves the schema
# stepwell_demo behind.
test-npm:
	cd clients/world && npm test
	cd ui && npm run check
	cd ui/build && $(GO) vet ./...
	$(GOTEST) -C ui/build -count=1 ./...
	DEMO_ONCE=1 DATABASE_URL="$$TEST_DATABASE_URL" STEPWELL_SCHEMA=stepwell_demo node $(APP)/demo.mjs

# Of the black-box packages, those of test-failures and test-pages mostly wait. What takes longest is left out, or done in
# part: see e2e and test-long. hostile is left out, too, since it needs all processors for what it measures. test-long
# runs the black-box packages with the race detector, with which the servers take half as long again; here, the packages
# of the server are tested with it.
test-e2e:
	$(GOTEST) -shuffle=on -timeout 40m ./e2e

test-failures:
	$(GOTEST) -shuffle=on -timeout 20m -p 3 $$($(GO) list ./e2e/... | grep -vxF "$$($(GO) list ./e2e $(E2E_ONLY))")

test-pages:
	$(GOTEST) -shuffle=on -timeout 10m -run '$(call names,$(PAGES))' $(PAGES_IN)

test-sdk-tests:
	cd sdk/tests && $(GO) vet ./...
	$(GOTEST) -C sdk/tests -race -shuffle=on -parallel 4 -timeout 10m ./...

test-modules:
	cd sdk && $(GO) vet ./...
	$(GOTEST) -C sdk -race -shuffle=on -timeout 5m ./...
	cd sdk/stepwellotel && $(GO) vet ./...
	cd sdk/python && python3 -m unittest
	cd sdk/vet && $(GO) vet ./...
	$(GOTEST) -C sdk/vet -timeout 5m ./...
	cd bench && $(GO) vet ./...
	$(GOTEST) -C bench -shuffle=on -timeout 5m ./...
	cd examples/sdk-go && $(GO) vet ./...
	cd site && $(GO) vet ./...
	$(GOTEST) -C site -short -count=1 -timeout 5m ./...

# hostile needs all processors for what it measures, and runs alone.
.PHONY: test-long
test-long: $(BUNDLE) ## Run what `make test` leaves out: hostile clients, all interleavings and sagas, e2e with the race detector
	@scripts/need postgres pgbouncer cc chromium faketime proxies
	$(GO) test -race -shuffle=on -timeout 60m -p 1 $$($(GO) list ./e2e/... | grep -v /e2e/hostile)
	$(GO) test -race -shuffle=on -timeout 20m ./e2e/hostile
	STEPWELL_TEST_LONG=1 $(GO) test -race -shuffle=on -timeout 40m -p 1 ./cmd/stepwell $(ONE_BY_ONE_IN) ./schema ./starts/... ./e2e/tools
	$(GO) test -C bench -race -shuffle=on -timeout 10m ./...
	STEPWELL_TEST_LONG=1 $(GO) test -race -timeout 20m -run '^TestSagasLeaveNothingBehind$$' ./e2e

# Takes 20 minutes and needs an otherwise idle machine. NEIGHBOURS=name,name are the abuses to try, and NEIGHBOURS_FOR=5s
# is how long; the results are then only printed.
.PHONY: neighbours
neighbours: ## Abuse a server in 26 ways, and see what its other project feels; writes docs/neighbours.md
	@scripts/need postgres
	STEPWELL_TEST_LONG=1 $(GO) test -count=1 -timeout 2h -v -run '^TestNeighbours$$' ./e2e/hostile \
		$(if $(NEIGHBOURS)$(NEIGHBOURS_FOR),,-results ../../docs/neighbours.md)

.PHONY: ui
ui: $(UI) ## Bundle the dashboard into ui/dist, which is committed
	cd ui && npm run check
	cd ui/build && $(GO) run .

.PHONY: limits-soak
limits-soak: ## End 100,000 steps with limits in every way, and look for permits that are left (some minutes)
	STEPWELL_TEST_LIMITED_STEPS=100000 $(GO) test -count=1 -timeout 2h -run '^TestNoPermitIsLeft$$' ./engine

# It takes some minutes, and less if packages have not changed since their tests passed: they are not tested again.
.PHONY: check
check: $(UI) ## Run the quick checks for work in progress: format, vet, short Go tests, the dashboard (minutes)
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt -w" $$unformatted; exit 1; }
	$(GO) vet ./...
	$(GO) test -short ./...
	cd ui && npm run check

# Downloads each Postgres from npm into .data/postgres, and takes an hour. scripts/postgres-versions takes single versions.
.PHONY: postgres-versions
postgres-versions: ## Run the tests of the packages with SQL on Postgres 14 to 18
	scripts/postgres-versions

.PHONY: upgrade
upgrade: ## Test the upgrade under load from OLD: by default from the newest release and the commit before (minutes)
	@scripts/need postgres
	scripts/upgrade $(OLD)

.PHONY: e2e
e2e: $(BUNDLE) $(UI) ## Run all black-box tests, also what `make test` leaves out: SDK tools, most of the dashboard
	@scripts/need postgres pgbouncer cc chromium python3 faketime proxies
	@rm -f $(TIMES)
	$(GOTEST) -shuffle=on -timeout 40m ./e2e
	$(GOTEST) -shuffle=on -timeout 20m -p 2 $$($(GO) list ./e2e/... | grep -vE '/e2e(/hostile)?$$')
	$(GOTEST) -shuffle=on -timeout 20m ./e2e/hostile
	@echo 'The slowest tests:'; sort -rn $(TIMES) | head -30

# Takes some minutes.
.PHONY: flow-crashes
flow-crashes: ## Kill a server while a flow maps 10,000 items, and while 100 flows map 200, counting repeated calls
	@scripts/need postgres
	FLOW_RUNS=100 $(GO) test ./e2e -run '^TestCrashesRepeatFewSteps$$' -count 1 -v -timeout 30m
	FLOW_ITEMS=10000 $(GO) test ./e2e -run '^TestMapSurvivesServerCrashes$$' -count 1 -v -timeout 30m

FLOW_PROGRAMS ?= 500

.PHONY: flow-law
flow-law: ## Compare FLOW_PROGRAMS random flows (default 500) in the server and as a remote function (minutes)
	FLOW_PROGRAMS=$(FLOW_PROGRAMS) $(GO) test -count=1 -timeout 2h -v -run '^TestTheServerDecidesAsARemoteFunction$$' ./engine

LIMITS_FOR ?= 10m

.PHONY: limits-crashes
limits-crashes: ## Kill servers and Postgres for LIMITS_FOR (default 10m) while 64 clients start runs with limits
	@scripts/need postgres
	LIMITS_FOR=$(LIMITS_FOR) $(GO) test ./e2e/failover -run '^TestLimitsHoldWhateverDies$$' -count 1 -v -timeout 24h

# Installs the frameworks from npm into .data/frameworks and removes them; a part of them: make frameworks APPS=nuxt
APPS ?= .

.PHONY: frameworks
frameworks: ## Test apps in Next.js, Nitro, Nuxt, Nest and other frameworks: development with hot reload, and production
	@scripts/need postgres
	FRAMEWORKS=1 $(GO) test -timeout 90m -count 1 -v ./e2e/frameworks -run 'TestFrameworks/$(APPS)'

.PHONY: pooler
pooler: build ## Run the tests of apps, functions, tools and the dashboard behind PgBouncer in transaction mode
	@scripts/need postgres pgbouncer cc chromium python3
	E2E_POOLER=direct $(GO) test -timeout 40m -p 1 ./e2e ./e2e/tools ./e2e/ui

.PHONY: official
official: ## Run the tests of apps with the SDK's own client instead of that of @stepwell/world
	E2E_CLIENT=official $(GO) test -race -timeout 20m -v -p 1 ./e2e ./e2e/tools

# VERSION is any that the registry serves; PARTS are some of features, tools, conformance and torture. Takes an hour.
.PHONY: sdk-line
sdk-line: ## Test the version VERSION of the Workflow SDK by both clients
	@scripts/need postgres cc chromium faketime
	scripts/sdk-line "$(VERSION)" $(PARTS)

.PHONY: sdk-lines
sdk-lines: ## Test the newest versions of the Workflow SDK that the registry serves; for every week
	@scripts/need postgres cc chromium faketime
	scripts/sdk-lines

# The logs of servers and apps are kept in .data/torture. TORTURE_SEED repeats the faults of an earlier run.
export TORTURE_SEED
TORTURE_FOR ?= 10m

.PHONY: torture
torture: ## Run the fault-injection test for TORTURE_FOR (default 10m)
	@scripts/need postgres
	@mkdir -p .data/torture
	TORTURE_FOR=$(TORTURE_FOR) $(GO) test ./e2e/torture -run '^TestTorture$$' -count 1 -v -timeout 24h \
		-artifacts -outputdir .data/torture

# Takes half an hour and needs an otherwise idle machine. bench/README.md describes how to run parts of it.
.PHONY: bench
bench: build ## Compare the server with the raw speed of this machine's Postgres; writes bench/RESULTS.md
	@scripts/need postgres
	cd bench && $(GO) run .

.PHONY: corpus
corpus: ## Record the traffic of the official clients again, and replay it
	rm -rf handlers/wire/testdata/traffic
	$(GO) test ./e2e -run '^TestRecord$$' -record ../handlers/wire/testdata/traffic -parallel 4 -timeout 20m
	$(GO) test ./handlers/wire -run '^TestReplay$$'

# Each target runs for FUZZ_FOR. What it finds is kept in testdata/fuzz of its package: commit it with the mend.
FUZZ_FOR ?= 1m

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZ_FOR (default 1m)
	@scripts/fuzz $(FUZZ_FOR)

.PHONY: cron
cron: ## Compare the ticks of 200 expressions in 30 zones from 2020 to 2030 with brute force (minutes)
	STEPWELL_TEST_CRON_DECADE=1 $(GO) test ./starts/schedule/cron -count 1 -timeout 30m

.PHONY: lint
lint: ## Run golangci-lint (the first run builds it, which takes minutes)
	$(LINT) run ./...
	cd sdk && $(LINT) run ./...
	cd sdk/stepwellotel && $(LINT) run ./...
	cd sdk/tests && $(LINT) run ./...
	cd sdk/vet && $(LINT) run ./...
	cd site && $(LINT) run ./...

.PHONY: fmt
fmt: ## Format the Go code
	$(LINT) fmt ./...

.PHONY: golden
golden: ## Rewrite the golden files; review the diff afterwards
	$(GO) test $$(grep -rl --include='*_test.go' --exclude-dir=node_modules --exclude-dir=sdk 'flag.Bool("update"' . | xargs -n1 dirname | sort -u) -update
	cd sdk && $(GO) test ./internal/engine -update

.PHONY: llms
llms: ## Write bin/llms-full.txt, all documentation in one file, for models; docs/llms.txt is its index
	@mkdir -p bin
	cat README.md docs/*.md > bin/llms-full.txt

SITE     ?= bin/site
SITE_URL ?= https://stepwell-dev.github.io/stepwell/

.PHONY: site
site: ## Make the documentation site in SITE (bin/site); VERSION=v0.1.0 adds a version to those in it
	$(GO) -C site run . -out "$(abspath $(SITE))" -version "$(VERSION)" -url "$(SITE_URL)"

.PHONY: site-test
site-test: build $(UI) ## Test the documentation site in Chromium, and make the recording again (a minute)
	@scripts/need postgres chromium python3
	$(GOTEST) -C site -count=1 -timeout 20m ./...

.PHONY: recording
recording: build ## Kill an order's app and server, and record what is seen: docs/images/recording.svg
	@scripts/need postgres python3
	$(GO) -C site run ./recording

.PHONY: pictures
pictures: ## Take the pictures of docs/dashboard.md from a server with invented runs
	@scripts/need postgres chromium
	E2E_PICTURES=$(CURDIR)/docs/images $(GO) test -count=1 ./e2e/ui -run '^TestPictures$$'

ARCH ?= $(shell $(GO) env GOARCH)

.PHONY: image
image: ## Write bin/image.tar, an image of the working tree: docker load -i bin/image.tar
	@mkdir -p bin
	$(GO) -C release run . -arch $(ARCH) -image ../bin/image.tar

# Of the commit that is checked out; docs/releases.md says what is made, and how a person publishes it.
.PHONY: release
release: ## Make everything that a release publishes in dist: make release VERSION=v0.1.0 (minutes)
	@scripts/need wheel
	$(GO) -C release run . -version "$(VERSION)" -out ../dist

# Root runs the image in its own file system, as the image's user.
.PHONY: release-test
release-test: ## Make a release twice, compare the bytes, and try what it has beside a real Postgres (as root; minutes)
	@scripts/need postgres wheel
	$(GOTEST) -C release -count=1 -timeout 60m ./...

# Builds Helm's libraries, which takes minutes the first time.
.PHONY: chart-test
chart-test: ## Render the Helm chart, and check it and the other manifests against the types of Kubernetes
	$(GO) -C release/chart test -count=1 ./...

.PHONY: clean
clean: ## Remove build output and the data of make run
	rm -rf bin dist .data ui/node_modules $(APP)/node_modules $(APP)/.well-known $(APP)/.swc

$(PACKAGE): $(APP)/package.json $(APP)/package-lock.json
	cd $(APP) && npm ci --loglevel=error
	@touch $@

$(UI): ui/package.json ui/package-lock.json
	cd ui && npm ci --loglevel=error
	@touch $@

$(BUNDLE): $(PACKAGE) $(wildcard $(APP)/workflows/*.ts)
	cd $(APP) && npm run build
	@touch $@
