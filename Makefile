# `make demo` and `make test` need Python 3.11 or newer with venv, and nothing else: everything goes into $(VENV).
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV ?= .venv
JOBS ?= 2
PYTEST_ARGS ?=
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
endif

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# One requirement, one place: torch as pyproject.toml bounds it. pip is asked for it first and by itself, so that a CPU
# build that is installed or offered beside the index is taken, instead of whatever the other packages pull in.
TORCH = $(shell sed -n 's/^ *"\(torch[<>=][^"]*\)".*/\1/p' pyproject.toml)

.PHONY: help demo test lint docs site bench clean distclean

help:  ## show this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 12

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "graphzoo needs Python 3.11 or newer; none found. Name one: make demo PYTHON=/path/to/python3.12" >&2; exit 1; fi
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "graphzoo needs Python 3.11 or newer; $(PYTHON) is $$("$(PYTHON)" --version 2>&1)." >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) has no venv module. On Debian and Ubuntu: sudo apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Stamps: an installation is repeated only after pyproject.toml has changed.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(PIP) "$(TORCH)"
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/.installed
	$(PIP) --editable ".[dev]"
	@touch $@

demo: $(VENV)/.installed  ## train KnowFormer on UMLS (two minutes on two cores) and print the test table
	$(BIN)/graphzoo fit --model knowformer --data umls --recipe umls-demo

lint: $(VENV)/.installed-dev  ## ruff, mypy, and which room may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint  ## ruff, mypy and all tests; JOBS=4 for more processes, PYTEST_ARGS="-k spmm" for a few
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

docs: $(VENV)/.installed-dev  ## check the links of README and docs, run their examples
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal tests/test_docs.py $(PYTEST_ARGS)

site: $(VENV)/.installed-dev  ## build the documentation site into site/; open site/index.html; its search needs python3 -m http.server -d site
# Not --quiet: it silences the warnings before --strict has counted them.
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: $(VENV)/.installed-dev  ## run all benchmarks, write benchmarks/results
	$(BIN)/python -m benchmarks

clean:  ## remove what builds and tools leave behind; keeps runs/ and the environment
	rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean  ## clean, and remove the environment too
	rm -rf "$(VENV)"
