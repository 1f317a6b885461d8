# `make` alone lists the targets.
.DEFAULT_GOAL := help
.PHONY: help run test check fmt lint types arch floors bench torture clean

PYTHON ?= python3
VENV ?= .venv
# Test processes at a time.
JOBS ?= 2
# COVER=1 makes `test` measure coverage and hold the floor of the whole package.
COVER ?=
PYTEST_ARGS ?=

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.stamp
EDGEQ := $(BIN)/edgeq --db sqlite:///.edgeq/edgeq.db

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' Makefile

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "$(PYTHON) cannot make a virtual environment. On Debian and Ubuntu: apt install python3-venv" >&2; \
	  exit 1; }
	@$(BIN)/python -m pip install --quiet --progress-bar off --disable-pip-version-check \
	  -c constraints.txt -e '.[dev]'
	@touch $@

run: $(INSTALLED) ## Run sample jobs on .edgeq/edgeq.db and show what became of them
	@mkdir -p -m 700 .edgeq
	$(EDGEQ) enqueue word_count '{"path": "README.md"}'
	$(EDGEQ) enqueue file_checksum '{"path": "LICENSE"}'
	$(EDGEQ) process --budget 10
	$(EDGEQ) jobs list
	$(EDGEQ) stats

test: $(INSTALLED) ## Run the tests (PYTEST_ARGS="-k name" picks some)
	@$(BIN)/pytest -n $(JOBS) --dist loadfile $(if $(COVER),--cov --cov-report=term) $(PYTEST_ARGS)

check: lint types arch ## Run everything that has to pass before a commit
	@$(MAKE) --no-print-directory test COVER=1
	@$(MAKE) --no-print-directory floors

fmt: $(INSTALLED) ## Format the code and repair what ruff can repair
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

lint: $(INSTALLED) ## Check format and style
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check

types: $(INSTALLED) ## Check the types
	@$(BIN)/mypy

arch: $(INSTALLED) ## Check who imports whom
	@$(BIN)/lint-imports

# Needs the data of `make test COVER=1`. Silent when it holds, so that pytest has the last word.
floors: $(INSTALLED)
	@report=$$($(BIN)/coverage report --include='edgeq/core/*' --fail-under=100 2>&1) || { \
	  echo "$$report"; echo "edgeq/core has to be covered completely." >&2; exit 1; }

bench: $(INSTALLED) ## Measure
	@$(BIN)/python -m benchmarks

torture: $(INSTALLED) ## Kill real processes and count the jobs
	@$(BIN)/python -m tests.torture

clean: ## Remove what make made, the sample database too
	@rm -rf $(VENV) .edgeq .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache \
	  .pytest_cache .ruff_cache build dist htmlcov
	@find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
