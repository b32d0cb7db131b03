# On a fresh machine with Python 3.11 to 3.13, make and git, each target sets up what it needs.
PYTHON ?= python3
VENV ?= .venv
# Torch without CUDA on Linux: the address of the CPU index that pytorch.org's install page names. Left empty,
# torch comes from the usual index, where Linux gets several GB of CUDA packages along with it.
TORCH_INDEX ?=
# The Pythons that `make test-wheel` tries the wheel with.
PYTHONS ?= python3.11 python3.13
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: quickstart demo test coverage test-slow test-portable house test-page test-ray test-deploy wheel test-wheel soak lint large trials bench bench-deploy paper evidence-price evidence-frugal evidence-compare docs docs-serve check clean

quickstart: $(VENV)/.installed
	$(BIN)/flexfl run quickstart --out runs/quickstart --resume
	@$(BIN)/flexfl report runs/quickstart

# A server and three clients as processes on this machine, over mutual TLS.
demo: $(VENV)/.installed-deploy
	$(BIN)/flexfl deploy demo --clients 3

# At most five minutes on two quiet cores; what takes longer has targets of its own below.
# A thread for each of the two processes: with two, they would wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup
test: $(VENV)/.installed-dev
	$(PYTEST) --ignore tests/browser --ignore tests/cluster --ignore tests/network -m "not slow" --doctest-modules tests src/flexfl

# Which lines of the paper's rooms the quick tests run.
coverage: $(VENV)/.installed-dev
	$(PYTEST) --cov --cov-report=term --cov-fail-under=95 tests/unit tests/property tests/contract tests/deploy tests/faults

# Whole runs that show what the paper shows, processes that are killed, figures: some minutes.
test-slow: $(VENV)/.installed-dev $(VENV)/.installed-docs
	$(PYTEST) -m slow tests/e2e

# What depends on numerics, as other CPUs would compute it: other vector units, other orders of sums.
NUMERIC := tests/contract tests/property tests/deploy/test_equals_simulation.py tests/deploy/test_learner.py \
  tests/unit/test_models.py tests/unit/test_evaluate.py tests/unit/test_wire.py tests/unit/test_recheck.py \
  tests/e2e/test_simulate.py tests/e2e/test_examples.py tests/e2e/test_dict_models.py
INSTRUCTION_SETS := ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 OPENBLAS_CORETYPE=Haswell \
  ONEDNN_MAX_CPU_ISA=SSE41 NUMBA_CPU_NAME=generic
test-portable: $(VENV)/.installed-dev
	@for set in $(INSTRUCTION_SETS); do echo "with $$set"; env $$set $(PYTEST) $(NUMERIC) || exit 1; done

# What keeps the code easy to find one's way in, counted.
house: $(VENV)/.installed-dev
	$(BIN)/python tools/house.py --check

# A hundred thousand schedules of faults for the protocol of a deployment: an hour.
soak: $(VENV)/.installed-dev
	FLEXFL_SCHEDULES=100000 $(BIN)/python -m pytest -n 2 tests/faults

# The interactive pages in a real browser: Chromium, from apt where it is not there yet.
test-page: $(VENV)/.installed-browser $(VENV)/.installed-docs
	$(BIN)/python -m pytest tests/browser

# Sweeps on a local Ray of two workers.
test-ray: $(VENV)/.installed-dev
	$(BIN)/python -m pytest tests/cluster

# Real processes that are killed, removed and refused: some minutes.
test-deploy: $(VENV)/.installed-dev
	$(BIN)/python -m pytest tests/network tests/e2e/test_deploy.py

# What another machine needs: the wheel, and what a client without plotting and compilers installs.
wheel: $(VENV)/.installed
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	cp src/flexfl/deploy/requirements-client.txt constraints.txt dist/
	@ls dist

# The wheel in empty environments, far from this folder: quickstart and report, then clients that have only
# what they need. Some minutes for each Python, and some GB on disk meanwhile.
test-wheel: wheel
	$(BIN)/python tools/try_wheel.py dist --torch-index '$(TORCH_INDEX)' --clients $(PYTHONS)

# Iterations a second, bytes and memory of a federation on this machine: a quarter of an hour.
bench-deploy: $(VENV)/.installed-deploy
	$(BIN)/python tools/deploy.py --clients 2 --iterations 10000
	$(BIN)/python tools/deploy.py --clients 8 --iterations 2000

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

# Section V, whole: hours of work, which goes on where it was stopped.
paper: $(VENV)/.installed
	$(BIN)/flexfl paper all --dataset fashion --results results/fashion
	$(BIN)/flexfl paper all --dataset cifar10 --results results/cifar10

# The price against the paper's queues: an hour on two cores, which goes on where it was stopped.
EVIDENCE := runs/evidence-price
evidence-price: $(VENV)/.installed
	for sweep in demo quickstart self-tuning; do \
	  $(BIN)/flexfl sweep tools/evidence_price/$$sweep.toml --jobs 2 --out $(EVIDENCE)/$$sweep || exit 1; done
	$(BIN)/python -m tools.evidence_price.tables $(EVIDENCE) --out results/price

# Half of the paper's budgets, every bit counted: an hour and a half on two cores, which goes on where it was stopped.
FRUGAL := runs/evidence-frugal
evidence-frugal: $(VENV)/.installed
	$(BIN)/flexfl data fetch fashion-mnist
	$(BIN)/flexfl data fetch cifar10
	for sweep in fashion cifar; do \
	  $(BIN)/flexfl sweep tools/evidence_frugal/$$sweep.toml --jobs 2 --out $(FRUGAL)/$$sweep || exit 1; done
	$(BIN)/python -m tools.evidence_frugal.tables $(FRUGAL) --out results/frugal

# The methods of others beside this project's, at equal budgets, each tuned: under half an hour on two quiet
# cores, which goes on where it was stopped.
METHODS := frugal price online randomised fedavg fedpaq qsparse stc ef-sign adaquantfl kimad ef21-sgdm sparseloco
evidence-compare: $(VENV)/.installed
	$(BIN)/flexfl data fetch fashion-mnist
	OMP_NUM_THREADS=1 $(BIN)/flexfl compare $(METHODS) --base frugal --seeds 1-5 --jobs 2 \
	  --set train.iterations=2000 --set engine.threads=1 --out runs/evidence-compare --results results/compare

# The documentation as a site, without a warning: open site/index.html, or serve it for its search.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs
docs: $(VENV)/.installed-docs
	$(MKDOCS) build --strict
	@echo "documentation: site/index.html"

docs-serve: $(VENV)/.installed-docs
	$(MKDOCS) serve

check: lint house test coverage test-slow test-page test-ray

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@echo "installing flexfl and torch (a minute or two)"
	$(if $(TORCH_INDEX),$(PIP) --no-deps --index-url $(TORCH_INDEX) torch)
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-deploy: $(VENV)/.installed
	@echo "installing NVFlare"
	$(PIP) --editable '.[deploy]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing the tools of the tests"
	$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@echo "installing what builds the documentation"
	$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/.installed-browser: $(VENV)/.installed-dev
	$(PIP) --editable '.[browser]'
	@command -v chromium chromium-browser google-chrome > /dev/null || \
	  { apt-get update -qq && apt-get install -y -qq chromium; } || \
	  { echo "Chromium is needed and cannot be installed here: as root, apt-get install chromium"; exit 1; }
	@touch $@

clean:
	rm -rf $(VENV) dist runs site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage
