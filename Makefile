# The same commands everywhere: CI and people call these targets and nothing else.
PYTHON := .venv/bin/python
# LIBERO's real asset tree, where it lies beside the project. Override with LIBERO_ASSETS=/path.
LIBERO_ASSETS ?= $(wildcard ../shared/libero-assets)
ifneq ($(LIBERO_ASSETS),)
export OXYGEN_LIBERO_ASSETS := $(abspath $(LIBERO_ASSETS))
endif

.PHONY: setup demo test check bench lock
.DEFAULT_GOAL := check

setup: .venv/.synced

.venv/.synced: requirements.lock pyproject.toml scripts/setup.sh
	@bash scripts/setup.sh
	@touch $@

demo: setup
	$(PYTHON) -m eval.libero --mode unified

test: setup
	$(PYTHON) -m pytest -n 2

check: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/vulture

bench: setup
	$(PYTHON) -m benchmarks.libero_loop
	$(PYTHON) -m benchmarks.loading --size small

lock:
	uv pip compile --universal --generate-hashes --no-annotate --upgrade pyproject.toml --group dev -o requirements.lock
