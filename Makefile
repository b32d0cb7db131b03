# On a fresh machine with Python 3.11, make and git, each target sets up what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: quickstart test lint large trials bench check clean

quickstart: $(VENV)/.installed
	$(BIN)/flexfl run quickstart --out runs/quickstart --resume
	@$(BIN)/flexfl report runs/quickstart

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 --dist loadgroup --cov --cov-report=term --cov-fail-under=95

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Ten thousand clients within 1 GB of memory: a minute or two, 5 GB of disk.
large: $(VENV)/.installed-dev
	FLEXFL_LARGE=1 $(BIN)/python -m pytest -s tests/e2e/test_memory.py

# What was tried to make an iteration faster, for docs/performance.md.
trials: $(VENV)/.installed
	$(BIN)/python tools/trials.py

bench: $(VENV)/.installed
	$(BIN)/flexfl bench

check: lint test

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@echo "installing flexfl and torch (a minute or two)"
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing the tools of the tests"
	$(PIP) --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) runs .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage
