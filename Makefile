# Each target sets itself up: all it needs is make and a Python >= 3.11 with its venv module.
#   make demo                        box plots of 336,776 flights
#   make test ARGS="-k bracket -x"   ARGS goes to pytest (or to asv)
#   make test PYTHON=python3.13 VENV=.venv-313

PYTHON ?= python3
VENV ?= .venv
VENV_OLDEST ?= .venv-oldest
VENV_DOCS ?= .venv-docs
VENV_DIST ?= .venv-dist
# A fresh one each time, for what is built.
VENV_WHEEL ?= .venv-wheel
# Of CuPy, 12 or 13. dask-cuda pins dask, so it has an environment of its own.
CUDA ?= 13
VENV_GPU ?= .venv-cuda$(CUDA)
# Of tests, those that compute by dask; mathematics and kernels know nothing of it.
FOLDERS_OLDEST ?= engine doors docs features
# What sizes are divided by, so that `make bench` takes two cores at most 45 minutes: 1e7 elements,
# not 1e8. Results of other sizes do not compare with those that asv has kept.
BENCH_SHRINK ?= 10
ARGS ?=
# Of the campaign of faults; on GPUs it has seconds.
RUNS ?= 1000
SECONDS ?= 300
# Of the campaign of the matrix.
MINUTES ?= 60
SEED ?= 0
LOG ?= faults.log

SHELL := /bin/sh
# What is installed is compiled when it is first imported: without a place for that, every process of
# a test or of a cluster would compile it again, for seconds.
unexport PYTHONDONTWRITEBYTECODE
# Modules are compiled when they are imported, most of them never: 28 s to install the test extra, not 70.
PIP_FLAGS := -qq --disable-pip-version-check --no-compile
ASV = $(abspath $(VENV))/bin/asv
PYTEST := -m pytest -n 2 --dist worksteal

.PHONY: help demo matrix planted grid test test-all test-oldest test-expressions test-gpu test-emulated test-emulated-all test-dist faults faults-gpu \
	lint format mypy docs dist bench bench-pages clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

help:
	@echo "make demo         box plots of 336,776 flights (boxplot.png), checked against NumPy"
	@echo "make test         the tests, but for those that are slow, with the newest dask"
	@echo "make test-all     those that are slow"
	@echo "make test-oldest  the tests that use dask, with the oldest packages that pyproject.toml allows"
	@echo "make test-expressions  those of engine and doors, with arrays that are expressions"
	@echo "make test-gpu     the tests that need a CUDA device; none may be skipped (CUDA=12 or 13)"
	@echo "make test-emulated  a part of those on a CPU, which needs g++; test-emulated-all for all of them"
	@echo "make matrix       drawn cases, judged by definitions and laws: MINUTES=60 SEED=0"
	@echo "make planted      plant mistakes one at a time: a minute of the matrix must catch each"
	@echo "make grid         time every question with every measure, mask, home and dtype"
	@echo "make faults       dying workers, full disks, ...: RUNS=1000 SEED=0 LOG=faults.log"
	@echo "make faults-gpu   the same on dask-cuda, one worker a GPU: SECONDS=300 SEED=0 LOG=faults.log"
	@echo "make lint         ruff, mypy, the layers of the package, and public docstrings"
	@echo "make format       let ruff mend what it can"
	@echo "make docs         the documentation, in docs/_build; a warning is an error"
	@echo "make dist         wheel and sdist, in dist; checked, installed in a fresh environment and tried"
	@echo "make test-dist    the tests of make test, of the wheel, in a fresh environment"
	@echo "make bench        the benchmarks (asv), at most 45 minutes (BENCH_SHRINK=10)"
	@echo "make bench-pages  asv's pages of all results so far, in asv_bench/html"
	@echo "make clean        remove environments, caches and builds"

demo: $(VENV)/.demo
	@$(VENV)/bin/python examples/flights.py

# worksteal: each process starts with its own contiguous half, so that files and their fixtures
# (a cluster, a compiled kernel) mostly stay in one process, and the first to finish helps out.
test: $(VENV)/.test
	$(VENV)/bin/python $(PYTEST) -m "not slow" $(ARGS)

test-all: $(VENV)/.test
	$(VENV)/bin/python $(PYTEST) -m slow $(ARGS)

# NumPy 2.1 has no wheels for Python 3.14. Numba's folder is its own: two versions of Numba that
# share one compile each kernel anew, again and again.
test-oldest: $(VENV_OLDEST)/.test
	NUMBA_CACHE_DIR=$(abspath $(VENV_OLDEST))/numba GPUSELECT_OLDEST=1 \
		$(VENV_OLDEST)/bin/python $(PYTEST) $(addprefix tests/,$(FOLDERS_OLDEST)) \
		-m "not any_dask and not slow" $(ARGS)

# What is about other arrays' graphs is left out; `make test` has some tests of both packages.
test-expressions: $(VENV)/.test
	$(VENV)/bin/python $(PYTEST) tests/engine tests/doors -m "not slow" \
		--expressions dask-array $(ARGS)
	DASK_ARRAY__QUERY_PLANNING=True $(VENV)/bin/python $(PYTEST) tests/engine tests/doors \
		-m "not slow" --expressions dask $(ARGS)

# In an environment that has CuPy already: python -m pytest -m gpu --gpu
test-gpu: $(VENV_GPU)/.test-gpu
	$(VENV_GPU)/bin/python $(PYTEST) -m gpu --gpu $(ARGS)

# Kernels compiled by g++ for a CPU, and a stand-in for CuPy: see tests/emulated.
test-emulated: $(VENV)/.test
	$(VENV)/bin/python $(PYTEST) tests/emulated tests/matrix -m "gpu and not slow" --emulate $(ARGS)

test-emulated-all: $(VENV)/.test
	$(VENV)/bin/python $(PYTEST) -m "gpu and not slow" --emulate $(ARGS)

matrix: $(VENV)/.test
	$(VENV)/bin/python -m tests.matrix --minutes $(MINUTES) --seed $(SEED) $(ARGS)

planted: $(VENV)/.test
	$(VENV)/bin/python -m tests.matrix.planted $(ARGS)

grid: $(VENV)/.test
	$(VENV)/bin/python asv_bench/grid.py $(ARGS)

# Of schedulers, those of real processes only where ARGS="--only processes".
faults: $(VENV)/.test
	$(VENV)/bin/python -m tests.faults --runs $(RUNS) --seed $(SEED) --log $(LOG) $(ARGS)

# In an environment that has CuPy and dask-cuda already: python -m tests.faults --gpu --seconds 300
faults-gpu: $(VENV_GPU)/.test-gpu
	$(VENV_GPU)/bin/python -m tests.faults --gpu --seconds $(SECONDS) --seed $(SEED) --log $(LOG) $(ARGS)

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache
	$(VENV)/bin/python docs/docstrings.py

format: $(VENV)/.dev
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

mypy: $(VENV)/.dev
	$(VENV)/bin/mypy

docs: $(VENV_DOCS)/.docs
	$(VENV_DOCS)/bin/sphinx-build -W --keep-going -q -b html docs docs/_build

# The wheel is built from the sdist, so that neither lacks a file.
dist: $(VENV_DIST)/.dist
	rm -rf dist $(VENV_WHEEL)
	$(VENV_DIST)/bin/python -m build --quiet --no-isolation
	$(VENV_DIST)/bin/python -m twine check --strict dist/*
	$(VENV_DIST)/bin/python recipe/render.py
	@$(PYTHON) -m venv $(VENV_WHEEL)
	@$(VENV_WHEEL)/bin/python -m pip install $(PIP_FLAGS) dist/*.whl
	$(VENV_WHEEL)/bin/python -I tests/installed.py

# In the unpacked sdist, without the package in it: what is tested is the wheel.
test-dist: dist
	@$(VENV_WHEEL)/bin/python -m pip install $(PIP_FLAGS) "$$(echo dist/*.whl)[test,expressions]"
	mkdir dist/unpacked
	tar -xzf dist/*.tar.gz -C dist/unpacked --strip-components 1
	rm -r dist/unpacked/dask_gpuselect
	cd dist/unpacked && $(abspath $(VENV_WHEEL))/bin/python $(PYTEST) -m "not slow" $(ARGS)

# asv keeps the results of an existing environment only if it is told their commit.
bench: $(VENV)/.dev
	cd asv_bench && $(ASV) machine --yes
	cd asv_bench && BENCH_SHRINK=$(BENCH_SHRINK) $(ASV) run --show-stderr \
		--environment existing:$(abspath $(VENV))/bin/python \
		--set-commit-hash $$(git rev-parse HEAD) $(ARGS)

# `make docs` takes them along.
bench-pages: $(VENV)/.dev
	cd asv_bench && $(ASV) publish

clean:
	rm -rf $(VENV) $(VENV_OLDEST) $(VENV_DOCS) $(VENV_DIST) $(VENV_WHEEL) .venv-cuda* build dist docs/_build docs/generated
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf asv_bench/env asv_bench/html asv_bench/results
	find dask_gpuselect tests examples asv_bench -name __pycache__ -prune -exec rm -rf {} + \
		2>/dev/null || true

# Environments. A stamp is younger than pyproject.toml when its extras are installed.

$(VENV)/.made $(VENV_OLDEST)/.made $(VENV_DOCS)/.made $(VENV_GPU)/.made $(VENV_DIST)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "make: '$(PYTHON)' is missing or older than Python 3.11;" \
			"name another one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "make: '$(PYTHON)' has no venv module (Debian, Ubuntu: apt-get install python3-venv)" \
			>&2; exit 1; }
	@echo "making $(@D) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(@D)
	@touch $@

# What .dev has is all that the others have, which then need no installation of their own.
$(VENV)/.demo: EXTRAS := demo
$(VENV)/.test: EXTRAS := test,expressions
$(VENV)/.dev: EXTRAS := dev,test,demo,expressions
$(VENV)/.dev: OTHERS := $(VENV)/.demo $(VENV)/.test
$(VENV)/.demo $(VENV)/.test $(VENV)/.dev: pyproject.toml | $(VENV)/.made
	@echo "installing dask_gpuselect[$(EXTRAS)] into $(@D)"
	@$(VENV)/bin/python -m pip install $(PIP_FLAGS) --editable '.[$(EXTRAS)]'
	@touch $@ $(OTHERS)

$(VENV_OLDEST)/.test: pyproject.toml .ci/oldest.py | $(VENV_OLDEST)/.made
	@echo "installing dask_gpuselect[test] with the oldest packages into $(@D)"
	@$(VENV_OLDEST)/bin/python .ci/oldest.py test >$(@D)/constraints.txt
	@$(VENV_OLDEST)/bin/python -m pip install $(PIP_FLAGS) --editable '.[test]' \
		--constraint $(@D)/constraints.txt
	@touch $@

$(VENV_GPU)/.test-gpu: pyproject.toml | $(VENV_GPU)/.made
	@echo "installing dask_gpuselect[test,cuda$(CUDA)] into $(@D)"
	@$(VENV_GPU)/bin/python -m pip install $(PIP_FLAGS) --editable '.[test,cuda$(CUDA)]'
	@touch $@

$(VENV_DOCS)/.docs: pyproject.toml | $(VENV_DOCS)/.made
	@echo "installing dask_gpuselect[docs] into $(@D)"
	@$(VENV_DOCS)/bin/python -m pip install $(PIP_FLAGS) --editable '.[docs]'
	@touch $@

$(VENV_DIST)/.dist: | $(VENV_DIST)/.made
	@echo "installing build, hatchling, twine and rattler-build into $(@D)"
	@$(VENV_DIST)/bin/python -m pip install $(PIP_FLAGS) build 'hatchling>=1.27' twine py-rattler-build
	@touch $@
