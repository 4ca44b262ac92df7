# make help

PYTHON ?= python3.11
VENV ?= .venv
PYTEST_ARGS ?=
# Of pytest; for two cores, as tests that wait for daemons leave theirs to others.
TEST_PROCESSES ?= 3
# One of tests/suites.py.
PART ?= all
# Of make test-versions: a Python and newest or oldest, as 3.12-oldest; or Pythons. Default: all.
VERSION ?=
PYTHONS ?=

BIN := $(abspath $(VENV))/bin
INSTALL := $(BIN)/python .ci/install.py -c constraints.txt
# With pip: uv would keep everything else waiting for the end of the build.
BUILD := $(BIN)/python -m pip --disable-pip-version-check install -qq --no-deps --no-build-isolation -e .
STAMP := $(VENV)/.set-up
DEMO_STAMP := $(VENV)/.set-up-demo
NATIVE := $(shell find fastpath -name '*.pyx' -o -name '*.pxd' -o -name '*.h' -o -name '__init__.py')
EXAMPLE := examples/baseball

export PATH := $(BIN):$(PATH)
export PYTHONUNBUFFERED := 1
# Programs that tests and Dagster start compile every module again where nobody may keep the result.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help set-up system-packages demo ui lint check test test-versions soak sanitize gpu lock audit clean
.DELETE_ON_ERROR:

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20
	@echo "Variables: PYTHON=$(PYTHON) (a Python 3.11), VENV=$(VENV), PYTEST_ARGS= and TEST_PROCESSES= (for tests), PART= (of make soak), VERSION= or PYTHONS= (of make test-versions), ADVISORIES= (of make audit)"

set-up: $(STAMP) ## virtual environment, pinned dependencies, native build; done once
	@:

# What a user of the demo needs; tests and checks need more.
$(DEMO_STAMP): setup.py pyproject.toml constraints.txt $(NATIVE)
	@sh .ci/requirements.sh '$(PYTHON)'
	@test -x '$(BIN)/pip' || { echo "set-up: virtual environment in $(VENV)"; '$(PYTHON)' -m venv '$(VENV)'; }
	@echo "set-up: build tools"
	@$(INSTALL) setuptools wheel Cython numpy
	@echo "set-up: torch (the largest part), and the native build beside it"
	@$(BUILD) >'$(VENV)/build.log' 2>&1 & built=$$!; trap "kill $$built" INT TERM; \
	    $(INSTALL) torch; installed=$$?; \
	    wait $$built || { cat '$(VENV)/build.log' >&2; exit 1; }; exit $$installed
	@echo "set-up: the other dependencies"
	@$(INSTALL) --extras core,demo
	@touch '$@'

# Tests start many processes, several at a time: none of them is to compile what it imports.
$(STAMP): $(DEMO_STAMP)
	@echo "set-up: what tests and checks need"
	@UV_COMPILE_BYTECODE=1 $(INSTALL) --extras test,drift-alibi,drift-evidently,lint
	@touch '$@'
	@echo "set-up: done"

system-packages: ## what tests want of the operating system: Chromium, Postgres, iproute2, debootstrap (as root; otherwise says how)
	@sh .ci/system-packages.sh

demo: $(DEMO_STAMP) ## import a real stream, replay three pipelines over it, compare them
	@$(BIN)/python '$(EXAMPLE)/make_data.py'
	@MODYN_PROJECT='$(EXAMPLE)' $(BIN)/modyn-dagster demo

ui: $(DEMO_STAMP) ## start Dagster and MLflow on the demo's data; Ctrl-C stops them
	@MODYN_PROJECT='$(EXAMPLE)' $(BIN)/modyn-dagster ui

lint: set-up ## ruff, mypy, and whether the code location loads
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MODYN_PROJECT='$(EXAMPLE)' sh .ci/validate-definitions.sh $(BIN)/dagster

check: set-up ## the inner loop: ruff, mypy and the tests that start no process and train briefly
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest --fast -q -n 2 --dist loadgroup $(PYTEST_ARGS)

test: set-up system-packages lint ## lint and all tests that a change must pass
	$(BIN)/pytest -n $(TEST_PROCESSES) --dist loadgroup $(PYTEST_ARGS)

# Environments and wheels stay in .versions; a Python that is not there is named and left out.
test-versions: set-up ## the fast tests from a wheel, on each Python with the newest and the oldest dependencies
	@$(BIN)/python .ci/versions.py $(VERSION) $(PYTHONS)

# With "=": pytest would take the word after a space for a folder where there is one, as of benchmarks.
soak: set-up system-packages ## kills at every point, fuzzers, laws with many examples; for nights and releases
	$(BIN)/pytest --soak='$(PART)' -n $(TEST_PROCESSES) --dist loadgroup $(PYTEST_ARGS)

sanitize: set-up system-packages ## tests of fastpath under the address and undefined-behaviour sanitizers
	@sh .ci/sanitize.sh '$(BIN)/python'

# In ten minutes; what is set up before does not count.
gpu: set-up ## every CUDA path on this machine's GPU, tests and figures; writes docs/gpu.md; fails without a GPU
	@$(BIN)/python benchmarks/gpu.py

lock: set-up ## requirements.lock: the pins of constraints.txt with the checksums that the package index gives
	@$(BIN)/python .ci/lock.py

# Nothing is downloaded: the advisories are a dump in the OSV format.
audit: set-up ## compare requirements.lock with a dump of advisories: make audit ADVISORIES=path
	@$(BIN)/python .ci/audit.py requirements.lock '$(ADVISORIES)'

clean: ## remove build products and caches; data (.modyn) and the virtual environment stay
	rm -rf build dist .versions *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis '$(STAMP)'
	find fastpath -name '*.so' -delete -o -name '*.c' -delete -o -name '*.cpp' -delete
	find . -name __pycache__ -not -path './.venv/*' -not -path './$(VENV)/*' -prune -exec rm -rf {} +
