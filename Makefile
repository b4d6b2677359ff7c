# `make demo` and `make test` work on a fresh machine: they first set up in .venv what they need, the demo the package
# alone, the tests everything else as well.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: setup demo test test-full check bench docs clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       set up the package and see the main job work"
	@echo "make test       set up everything and run all tests"
	@echo "make check      lint, types and the fast tests"
	@echo "make test-full  the long checks, about an hour: many kills, many hostile files, a soak"
	@echo "make bench      the benchmarks"
	@echo "make docs       the documentation"

setup: .venv/development

# torch comes first and pinned: an open range in another package would pull gigabytes of CUDA libraries.
# The other versions are those that the tests passed with, so that a new release of a dependency breaks no set-up.
# pip would compile on one core; compileall uses all of them, and takes only what is new. Some packages carry templates
# that are not Python, so its exit code says nothing. A stamp is written last: an interrupted set-up continues.
PIP := $(BIN)/python -m pip install --quiet --no-compile --constraint scripts/constraints.txt
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x '/tests/' .venv/lib || true

.venv/package: pyproject.toml scripts/constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) torch==2.13.0
	$(PIP) --editable .
	$(COMPILE)
	touch $@

.venv/development: .venv/package scripts/testbed-sources.txt
	$(PIP) --editable ".[dev]"
	$(PIP) --no-deps --requirement scripts/testbed-sources.txt
	$(COMPILE)
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
		(apt-get update -q && apt-get install -y -q chromium) >/dev/null 2>&1 || \
		echo "Chromium is not here and could not be installed; the tests of the page are skipped: apt-get install chromium"
	touch $@

demo: .venv/package
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

bench: .venv/package
	$(BIN)/python benchmarks/run.py

docs: .venv/package
	$(PIP) --editable ".[docs]"
	$(BIN)/python scripts/build_reference.py
	$(BIN)/zensical build --strict
	@echo "The documentation is in build/site/index.html"

clean:
	rm -rf .venv build dist .ruff_cache .hypothesis
