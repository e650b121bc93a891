# Every target is one readable line in `make help`. `make ci` is what CI runs; nothing else is.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WANTED = $$(cat requirements.lock pyproject.toml | sha256sum | cut -c1-16)
VLLM_INSTALL := deploy/vllm/install.sh
SUITES ?=
SCENARIO ?=
FILE ?=
MINUTES ?=

.PHONY: help setup vllm fmt lint types test replay record-histories golden e2e demo \
        bench-aa-sim bench-loop bench-gateway bench-soak bench-pareto bench-fuzz up down lock clean ci

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  \033[1m%-18s\033[0m %s\n", $$1, $$2}' Makefile

$(READY): requirements.lock pyproject.toml
	@if [ "$$(cat $@ 2>/dev/null)" = "$(WANTED)" ]; then touch $@; exit 0; fi; \
	"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 setup" >&2; exit 1; }; \
	test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV); \
	echo "installing the locked requirements into $(VENV) (about a minute)"; \
	$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements.lock; \
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	echo "$(WANTED)" > $@

setup: $(READY) ## Make .venv from requirements.lock and install burnproof into it

vllm: $(READY) ## Install the real engine into its own environment (2.5 GB, about 5 minutes the first time)
	@if [ -f $(VLLM_INSTALL) ]; then bash $(VLLM_INSTALL) >/dev/null; \
	else echo "$(VLLM_INSTALL) is missing: the real engine is not installed"; fi

fmt: $(READY) ## Format the code and apply the safe lint fixes
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

lint: $(READY) ## Check style, formatting and who imports whom
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

types: $(READY) ## Check types (mypy, strict)
	@$(BIN)/mypy

test: $(READY) $(if $(SUITES),$(if $(filter vllm docs stack,$(SUITES)),vllm),vllm) ## Run every suite; SUITES="unit kill" runs those two
	@$(BIN)/python -m tests.run_suites $(SUITES)

replay: $(READY) ## Replay the recorded workflow histories under two hash seeds
	@PYTHONHASHSEED=1 $(BIN)/python -m pytest -q tests/replay
	@PYTHONHASHSEED=2 $(BIN)/python -m pytest -q tests/replay

record-histories: $(READY) ## Record workflow histories again; SCENARIO=name records one (review the diff)
	@$(BIN)/python -m tests.replay.record $(SCENARIO)

golden: $(READY) ## Write the golden transcripts and payload schemas again (review the diff)
	@BURNPROOF_GOLDEN_WRITE=1 $(BIN)/python -m pytest -q tests/golden
	@git --no-pager diff --stat -- tests/golden

e2e: $(READY) vllm ## Run the tests on the real engine only
	@$(BIN)/python -m tests.run_suites vllm

demo: $(READY) vllm ## Run both examples on the real engine and end with the audit trail and a replay
	@$(BIN)/python deploy/demo.py

bench-aa-sim: $(READY) ## Simulate 2,000 A/A runs and count false alarms
	@$(BIN)/python benchmarks/aa_sim.py

bench-loop: $(READY) ## Time what the loop adds around the fault on the simulated engine
	@$(BIN)/python benchmarks/loop.py

bench-gateway: $(READY) ## Measure the gateway beside nginx and other proxies (the first run installs them)
	@$(BIN)/python benchmarks/gateway.py

bench-soak: $(READY) ## Run the gateway under traffic and faults for MINUTES=60: nothing lost, nothing leaked
	@$(BIN)/python -m benchmarks.soak --minutes $(or $(MINUTES),60)

bench-pareto: $(READY) ## Send 100,000 Pareto delays through a running gateway and fit their law
	@$(BIN)/python -m benchmarks.pareto

bench-fuzz: $(READY) ## Send 50,000 exchanges by chance through the gateway and nginx, which must agree
	@$(BIN)/python -m benchmarks.fuzz

up: $(READY) vllm ## Start the local stack (Ctrl-C stops all of it)
	@$(BIN)/burnproof up

down: $(READY) ## Stop the local stack
	@$(BIN)/burnproof down

lock: $(READY) ## Make requirements.lock again from pyproject.toml (add UPGRADE=--upgrade for newer versions)
	@$(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --extra dev \
	  --generate-hashes --no-emit-index-url --no-annotate --no-header $(UPGRADE) -o requirements.lock

clean: ## Remove caches, logs and build outputs (keeps .venv and the engine)
	@rm -rf build dist .suites .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache ./*.egg-info
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

ci: ## What CI runs
	@bash .ci/run
