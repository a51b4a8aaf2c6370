# The same commands everywhere: CI and people call these targets and nothing else.
PYTHON := .venv/bin/python
# LIBERO's real asset tree, where it lies beside the project. Override with LIBERO_ASSETS=/path.
LIBERO_ASSETS ?= $(wildcard ../shared/libero-assets)
ifneq ($(LIBERO_ASSETS),)
export OXYGEN_LIBERO_ASSETS := $(abspath $(LIBERO_ASSETS))
endif

# Python keeps bytecode, whatever the environment says: two thousand modules are imported by every process.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-all check bench bench-gpu lock train-tiny bundle-tiny train-tiny-droid bundle-tiny-droid
.DEFAULT_GOAL := check

setup: .venv/.synced

.venv/.synced: requirements.lock pyproject.toml scripts/setup.sh
	@bash scripts/setup.sh
	@touch $@

demo: setup
	$(PYTHON) -m eval.libero --mode unified

# Modules stay on one worker, so that their fixtures are built once; `slow` tests are for `test-all`.
PYTEST = $(PYTHON) -m pytest -n logical --dist loadfile --no-loadscope-reorder

test: setup
	$(PYTEST) -m "not slow"

test-all: setup
	$(PYTEST) --hypothesis-profile thorough

check: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/pyrefly check --summary=none
	.venv/bin/lint-imports
	.venv/bin/vulture
	$(PYTHON) scripts/check_architecture.py

# The bundled policies, each in the stages of configs/pipelines; hours on two cores. Interrupted, the same command goes on.
train-tiny train-tiny-droid: train-%: setup
	$(PYTHON) -m eval.pipeline $(subst -,_,$*)

# Into the package: the last checkpoint of that training, with what these runs say it reached, and its model card.
RESULTS ?=

bundle-tiny bundle-tiny-droid: bundle-%: train-%
	$(PYTHON) -m eval.bundle --pipeline $(subst -,_,$*) $(if $(RESULTS),--results $(RESULTS))

bench: setup
	$(PYTHON) -m benchmarks.libero_loop
	$(PYTHON) -m benchmarks.loading --size small
	$(PYTHON) -m benchmarks.kv_pool
	$(PYTHON) -m eval.bench --quick

# What only a GPU can show; docs/gpu.md. Needs jax[cuda], flax and numpy alone, so it sets nothing up.
bench-gpu: PYTHON := $(if $(wildcard .venv/bin/python),.venv/bin/python,python3)
bench-gpu:
	PYTHON=$(PYTHON) bash benchmarks/gpu.sh

lock:
	uv pip compile --universal --generate-hashes --no-annotate --upgrade pyproject.toml --group dev -o requirements.lock
