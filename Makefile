# Every command of Afterimage; `make` alone lists them. Needs Python 3.11 or newer and nothing else.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
A := $(BIN)/afterimage
COMPILED := $(sort $(wildcard cdc/compiled_source/*.px[yi]))
READY := $(VENV)/.ready-$(shell cat config/requirements/dev.txt pyproject.toml $(COMPILED) | cksum | cut -d' ' -f1)

.DEFAULT_GOAL := help
.PHONY: help setup demo test up down status capture apply rebuild query prove test-large soak soak-views soak-prove soak-apply test-matrix test-versions fuzz corpus check format lint types imports lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## install what is missing into .venv

$(READY): config/requirements/dev.txt pyproject.toml $(COMPILED)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Afterimage needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Python packages (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r config/requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@$(BIN)/python -m cdc.build_compiled
	@rm -f $(VENV)/.ready-* && touch $@

demo: $(READY) ## a sample shop captured under load, killed, rebuilt and proved; then everything is stopped
	@$(A) demo

up: $(READY) ## start the embedded stack and the pipeline, and leave them running
	@$(A) up

down: $(READY) ## stop them
	@$(A) down

status: $(READY) ## where everything stands
	@$(A) status

capture: $(READY) ## run the reader in the foreground
	@$(A) capture

apply: $(READY) ## run the PySpark jobs in the foreground
	@$(A) apply

rebuild: $(READY) ## VIEW=name: rebuild a view from offset zero, then swap
	@$(A) rebuild "$(VIEW)"

query: $(READY) ## SQL='...': query the derived tables, all at one LSN
	@$(A) query "$$SQL"
export SQL

prove: $(READY) ## compare every view in every sink with Postgres; ARGS=--repair mends what differs
	@$(A) prove $(ARGS)

test: $(READY) ## every test, against real servers, on two workers with servers of their own; ORDER=n: in another order
	@$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --randomly-seed=$(ORDER)
# One order for everybody, so that a failure is of the change and can be repeated.
ORDER ?= 1

test-large: $(READY) ## a transaction of 2 GB (minutes, 8 GB of disk); AFTERIMAGE_LARGE_MB=500 for a smaller one
	@$(BIN)/pytest -m large tests/large

soak: $(READY) ## capture killed 200 times under load, then 10 minutes at 5,000 changes/s; KILLS, SOAK_SECONDS, SOAK_RATE
	@$(BIN)/python -m tests.soak.kills
	@$(BIN)/python -m tests.soak.flow

soak-views: $(READY) ## corpora of views under random batches beside Postgres; MINUTES, SEED
	@$(BIN)/python -m tests.soak.views --minutes $(MINUTES) --seed $(SEED)
	@$(BIN)/python -m tests.soak.refreshed_views --minutes $(MINUTES) --seed $(SEED)
	@$(BIN)/python -m tests.soak.piped_views --minutes $(MINUTES) --seed $(SEED)
MINUTES ?= 30
SEED ?= 1

soak-prove: $(READY) ## 100 proofs under 1,000 writes/s, 200 planted corruptions; PROOFS, PLANTED, SOAK_RATE, SEED
	@$(BIN)/python -m tests.soak.proofs

soak-apply: $(READY) ## apply killed 100 times in all of its phases, all views proved after each; KILLS, SOAK_RATE, SEED
	@$(BIN)/python -m tests.soak.apply_kills

test-matrix: $(READY) ## what depends on Postgres, against each version; VERSIONS='14 18' for some
	@$(BIN)/python -m tests.support.matrix --versions $(VERSIONS)
VERSIONS ?= 14 15 16 17 18

test-versions: $(READY) ## a part of that, against the oldest and the newest
	@$(BIN)/python -m tests.support.matrix tests/integration -k 'not prove and not errors' --versions 14 18

RUNS ?= 1000000
fuzz: $(READY) ## RUNS inputs for the decoders, guided by coverage (Linux, macOS)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r config/requirements/fuzz.txt
	@$(BIN)/python -m tests.fuzz -runs=$(RUNS)

corpus: $(READY) ## record what each Postgres version sends, into tests/corpus
	@$(BIN)/python -m tests.support.record_corpus

bench-capture: $(READY) ## capture side by side with Debezium, about half an hour on a quiet machine
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r config/requirements/bench.txt
	@$(BIN)/python -m bench.capture
	@$(BIN)/python -m bench.plot

bench-apply: $(READY) ## apply side by side with Structured Streaming and MERGE; WORKS='changes_1k ..' for some
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r config/requirements/bench.txt
	@$(BIN)/python -m bench.apply $(WORKS)
	@$(BIN)/python -m bench.apply.plot

compare-debezium: $(READY) ## the same changes captured by Debezium and by Afterimage, compared event by event
	@$(BIN)/python -m bench.compare

check: format lint types imports test test-versions ## what CI runs

format: $(READY)
	@$(BIN)/ruff format --check .

lint: $(READY)
	@$(BIN)/ruff check .

types: $(READY)
	@$(BIN)/mypy
	@$(BIN)/mypy tests

imports: $(READY)
	@$(BIN)/lint-imports

PIN := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header pyproject.toml
lock: ## pin the Python packages anew, with hashes (needs uv)
	@$(PIN) --output-file config/requirements/run.txt
	@$(PIN) --group dev --output-file config/requirements/dev.txt

clean: ## remove the virtual environment and caches (not data/)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
