# `make run` and `make test` set up everything on a fresh machine with Python 3.11 or later.
# The interop tests run the official JavaScript packages as peers and need Node 20 or later.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check
RUN_ENV := $(VENV)/.run
ENV := $(VENV)/.installed
NODE_DIRS := tests/interop/node tests/interop/clients tests/interop/tanstack tests/interop/mcp
NODE_ENVS := $(NODE_DIRS:%=%/node_modules/.package-lock.json)
# Tests wait for other processes half of the time, so two of them share a core.
JOBS ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')
# Tests start hundreds of Python processes: without bytecode files each of them would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
QUICK := tests/protocol tests/codec tests/stream tests/chat tests/store/test_memory.py

.PHONY: install recipes run test test-postgres quick check check-types check-tests check-snippets check-style check-web docs format bench fuzz faults peers frontends pictures release pythons node web clean clients

# All that the targets below install, npm beside pip: for .ci/run. Each target installs what it needs by itself, too.
install:
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target $(ENV) recipes node web

# The page is built while the server runs, if npm is present. The server says when it is ready.
run: $(RUN_ENV)
	@if $(BIN)/python scripts/build_page.py --is-built; then :; elif command -v npm >/dev/null; then \
	  export AGUILA_PAGE_BUILD=running; \
	  ($(BIN)/python scripts/build_page.py >$(VENV)/page.log 2>&1 || echo "The page was not built; see $(VENV)/page.log") & \
	fi; exec $(BIN)/aguila serve aguila.cli.demo:agent $(if $(STORE),--store '$(STORE)') $(ARGS)

# Build the page (web/) into the package. Does nothing if its sources have not changed.
web: $(RUN_ENV)
	@$(BIN)/python scripts/build_page.py

test: $(ENV) node web
	@echo "Running all tests: about eight minutes on two idle cores. make quick takes less than one."
	@start=$$(date +%s); $(BIN)/pytest -n $(JOBS) $(ARGS); status=$$?; \
	echo "make test took $$(( $$(date +%s) - start )) s"; exit $$status

# The tests without servers, processes, browsers or peers: under a minute on two idle cores.
quick: $(ENV)
	$(BIN)/pytest -n $(JOBS) $(QUICK) $(ARGS)

# The parts are independent: two at a time, the output of each in one piece.
check: $(ENV) web
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target check-types check-tests check-snippets check-style check-web

check-types:
	$(BIN)/pyright

# Whether all tests can be collected. It compiles them, too: once, and not in every process of `make test`.
check-tests:
	@$(BIN)/pytest --collect-only -qq >$(VENV)/tests.log || (cat $(VENV)/tests.log; exit 1)

check-snippets:
	$(BIN)/python scripts/check_snippets.py

check-style:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python scripts/generate_proto.py --check
	$(BIN)/python scripts/state_tables.py --check
	$(BIN)/python scripts/dialect_table.py --check
	$(BIN)/python scripts/reference.py --check
	$(BIN)/python scripts/rules_document.py --check

check-web:
	@if command -v npm >/dev/null; then cd web && npm run --silent check; fi

# The documentation as a static site, in build/documentation/site.
docs: $(ENV)
	@$(BIN)/python scripts/build_documentation.py

format: $(ENV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.bench node
	$(BIN)/python -m benchmarks $(ARGS)

fuzz: $(ENV)
	$(BIN)/python tests/fuzz/run.py --target all --seconds $(or $(SECONDS_EACH),600)
	AGUILA_SCHEMATHESIS=long $(BIN)/pytest -q -n 2 tests/server/http/test_schemathesis.py

# Every generation of @ag-ui/client over every feature of the demo: writes docs/clients.md, which `make test` checks.
clients: $(ENV) node
	$(BIN)/python tests/interop/client_matrix.py

# Each peer has an environment of its own in .venv-peers, made when it is first needed.
peers: $(ENV) node
	$(BIN)/python tests/peers/matrix.py $(ARGS)
	AGUILA_PEERS=1 $(BIN)/pytest -q tests/peers/test_inspect.py tests/peers/test_frameworks.py tests/peers/test_clients.py tests/peers/test_newest_releases.py

# Installs the packages of examples/frontends (about 1.6 GB, most of it CopilotKit's) and drives the pages in Chromium.
# ARGS="--short" plays a few scenarios on each and leaves docs/frontends.md alone.
frontends: $(ENV) web
	PYTHONPATH=tests/support $(BIN)/python tests/frontends/frontends_matrix.py $(ARGS)
	AGUILA_FRONTENDS=$(if $(findstring --short,$(ARGS)),short,all) $(BIN)/pytest -q $(if $(findstring --short,$(ARGS)),-n 2) tests/frontends

recipes:
	@if command -v npm >/dev/null; then $(PYTHON) tests/frontends/recipes.py; fi

# Takes the pictures of README.md and docs/ again: the page in Chromium, aguila chat and aguila check as SVG.
pictures: $(ENV) web
	PYTHONPATH=tests/support:tests/frontends $(BIN)/python scripts/pictures.py

# The tests of make quick and a few of the server, on each declared version of Python that this machine has.
pythons:
	$(PYTHON) scripts/pythons.py -n $(JOBS) $(QUICK) tests/server/test_app.py tests/server/test_agents.py tests/server/http/test_event_stream.py $(ARGS)

# Builds sdist and wheel into dist/ and tries them: each extra, uvx, pipx, a new project. It publishes nothing.
release: $(VENV)/.release web
	$(BIN)/python scripts/release.py $(ARGS)

# Every test that runs with each store, on PostgreSQL only. AGUILA_POSTGRES=dsn uses a running server. If PgBouncer is
# installed, the contract of stores is tested behind it, too.
test-postgres: $(ENV)
	AGUILA_STORES=postgres $(BIN)/pytest -n $(JOBS) tests/server tests/client $(ARGS)
	AGUILA_POOLER=1 $(BIN)/pytest -n $(JOBS) tests/store/postgres $(ARGS)

# One after the other: each of these tests starts processes of its own and wants the machine to itself. Of the faults on
# PostgreSQL there are over 1,000; in the long form (about three hours):
# make faults FAULTS=10000 ARGS='-k lose_double_and_reorder'
faults: $(ENV)
	AGUILA_FAULTS=long AGUILA_KILLS=$(or $(KILLS),100) AGUILA_POSTGRES_FAULTS=$(or $(FAULTS),1020) $(BIN)/pytest -rP tests/faults tests/server/test_chat_large.py $(ARGS)

# Only what `make run` needs, with pip's progress shown: up within 20 seconds with an empty cache.
$(RUN_ENV): pyproject.toml requirements/run.txt requirements/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Aguila needs Python 3.11 or later; choose one with PYTHON=...")'
	@echo "Setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --no-compile --progress-bar on -c requirements/constraints.txt -r requirements/run.txt
	@$(PIP) --quiet --no-deps --no-build-isolation -e .
	@touch $@

# The development tools besides: test runners, peers, linters, type checker (about 330 MB).
$(ENV): $(RUN_ENV) requirements/runtime.txt requirements/test.txt requirements/check.txt requirements/docs.txt requirements/dev.txt requirements/constraints.txt requirements/oldest.txt
	@echo "Installing the development tools: about a minute ..."
	@$(PIP) --quiet -r requirements/dev.txt
	@$(PIP) --quiet --no-deps --upgrade --target $(VENV)/oldest -r requirements/oldest.txt
	@touch $@

$(VENV)/.release: $(ENV) requirements/release.txt
	$(PIP) --quiet -r requirements/release.txt
	@touch $@

$(VENV)/.bench: $(ENV) requirements/bench.txt
	$(PIP) --quiet -r requirements/bench.txt
	@touch $@

# Without Node the interop tests say so: they are skipped, or fail when CI=true.
node:
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory $(NODE_ENVS); else echo "npm not found: the interop tests will not run"; fi

%/node_modules/.package-lock.json: %/package.json %/package-lock.json
	cd $* && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

clean:
	rm -rf $(VENV) .venv-peers .venv-pythons web/node_modules src/aguila/server/frontends/page/assets $(NODE_DIRS:%=%/node_modules) examples/frontends/*/node_modules examples/frontends/*/dist dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
