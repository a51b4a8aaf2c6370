# The same commands everywhere: CI and people call these targets and nothing else.
PYTHON := .venv/bin/python
# LIBERO's real asset tree, where it lies beside the project. Override with LIBERO_ASSETS=/path.
LIBERO_ASSETS ?= $(wildcard ../shared/libero-assets)
ifneq ($(LIBERO_ASSETS),)
export OXYGEN_LIBERO_ASSETS := $(abspath $(LIBERO_ASSETS))
endif

.PHONY: setup demo test check bench lock train-tiny bundle-tiny
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

# The bundled policy, from nothing: an hour or two on two cores. Of the stored initial states, 40-49 stay unseen, and so do the
# held-out wordings. Interrupted, the same command goes on.
TINY := runs/train/tiny
TINY_COLLECT = $(PYTHON) -m eval.collect --expert-noise 0.5 --assets standins --replan-steps 2 --output $(TINY)/demonstrations

train-tiny: setup
	$(TINY_COLLECT) --suite libero_object --init-ids 0-9
	$(TINY_COLLECT) --suite libero_spatial --init-ids 0-9
	$(TINY_COLLECT) --suite libero_object --init-ids 10-19
	GLIBC_TUNABLES=glibc.malloc.hugetlb=1 $(PYTHON) -m eval.train --data $(TINY)/demonstrations --model tiny \
	    --embodiment libero_compact --steps 3300 --seed 0 --save-every 550 --output-dir $(TINY) \
	    $(if $(wildcard $(TINY)/run.json),--resume)

# Into the package: the newest checkpoint of that training, with what these runs say it reached, and its model card.
RESULTS ?=

bundle-tiny: setup
	$(PYTHON) -m eval.bundle $(lastword $(sort $(wildcard $(TINY)/checkpoints/step_???????))) \
	    $(if $(RESULTS),--results $(RESULTS))

bench: setup
	$(PYTHON) -m benchmarks.libero_loop
	$(PYTHON) -m benchmarks.loading --size small
	$(PYTHON) -m benchmarks.kv_pool
	$(PYTHON) -m eval.bench --quick

lock:
	uv pip compile --universal --generate-hashes --no-annotate --upgrade pyproject.toml --group dev -o requirements.lock
