# Two commands do all set-up on a fresh machine that has Python 3.11 or later: `make run` and `make test`.
# Node 20 or later is needed for the interop tests, which run the official JavaScript packages as peers.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ENV := $(VENV)/.installed
NODE_DIRS := tests/interop/node tests/interop/tanstack
NODE_ENVS := $(NODE_DIRS:%=%/node_modules/.package-lock.json)
JOBS ?= auto

.PHONY: run test check format bench fuzz faults peers node clean

run: $(ENV)
	@$(BIN)/aguila serve aguila.cli.demo:agent $(ARGS)

test: $(ENV) node
	$(BIN)/pytest -n $(JOBS) $(ARGS)

check: $(ENV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python scripts/generate_proto.py --check
	$(BIN)/python scripts/diagrams.py --check

format: $(ENV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.bench node
	$(BIN)/python -m benchmarks $(ARGS)

fuzz: $(ENV)
	$(BIN)/python tests/fuzz/run.py --target all --seconds $(or $(SECONDS_EACH),600)

# Each peer has an environment of its own in .venv-peers, made when it is first needed.
peers: $(ENV) node
	$(BIN)/python tests/peers/matrix.py $(ARGS)

# One after the other: each of these tests starts processes of its own and wants the machine to itself.
faults: $(ENV)
	AGUILA_FAULTS=long AGUILA_KILLS=$(or $(KILLS),100) $(BIN)/pytest -rP tests/faults tests/server/test_chat_large.py $(ARGS)

$(ENV): pyproject.toml requirements/runtime.txt requirements/test.txt requirements/check.txt requirements/dev.txt requirements/constraints.txt requirements/oldest.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Aguila needs Python 3.11 or later; PYTHON=... chooses one")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(VENV)/oldest -r requirements/oldest.txt
	@touch $@

$(VENV)/.bench: $(ENV) requirements/bench.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/bench.txt
	@touch $@

# Without Node the interop tests say so: they are skipped, or fail when CI=true.
node:
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory $(NODE_ENVS); else echo "npm not found: the interop tests will not run"; fi

%/node_modules/.package-lock.json: %/package.json %/package-lock.json
	cd $* && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

clean:
	rm -rf $(VENV) .venv-peers $(NODE_DIRS:%=%/node_modules) dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
