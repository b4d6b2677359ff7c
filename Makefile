# `make demo` and `make test` work on a fresh machine: they set everything up first, in .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: setup demo test test-full check bench docs clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       see the main job work"
	@echo "make test       set up and run all tests"
	@echo "make check      lint, types and the fast tests"
	@echo "make test-full  the long checks, about an hour: many kills, many hostile files, a soak"
	@echo "make bench      the benchmarks"
	@echo "make docs       the documentation"

setup: .venv/ready

# torch comes first and pinned: an open range in another package would pull gigabytes of CUDA libraries.
# The other versions are those that the tests passed with, so that a new release of a dependency breaks no set-up.
# pip would compile everything on one core.
.venv/ready: pyproject.toml scripts/constraints.txt scripts/testbed-sources.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile torch==2.13.0
	$(BIN)/python -m pip install --quiet --no-compile --constraint scripts/constraints.txt --editable ".[dev]"
	$(BIN)/python -m pip install --quiet --no-compile --no-deps --requirement scripts/testbed-sources.txt
	$(BIN)/python -m compileall -qq -j 0 -x '/tests/' .venv/lib || true # some packages carry templates that are no Python
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
		(apt-get update -q && apt-get install -y -q chromium) >/dev/null 2>&1 || \
		echo "Chromium is not here and could not be installed; the tests of the page are skipped: apt-get install chromium"
	touch $@

demo: setup
	$(BIN)/askwell demo --out build/demo

test: setup
	$(PYTEST) --durations=20

test-full: setup
	$(BIN)/python scripts/test_full.py

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/ty check --error-on-warning
	$(PYTEST) -m "not slow"

bench: setup
	$(BIN)/python benchmarks/run.py

docs: setup
	$(BIN)/python -m pip install --quiet --no-compile --constraint scripts/constraints.txt --editable ".[docs]"
	$(BIN)/python scripts/build_reference.py
	$(BIN)/zensical build --strict
	@echo "The documentation is in build/site/index.html"

clean:
	rm -rf .venv build dist .ruff_cache .hypothesis
