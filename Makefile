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

# The bundled policy, from nothing: stored initial states 0-39 of every task, on the stand-ins and, where they are, on LIBERO's
# own assets. 40-49 stay unseen. Interrupted, the same command goes on.
TINY := runs/train/tiny
TINY_ASSETS := standins $(OXYGEN_LIBERO_ASSETS)
TINY_STEPS ?= 20000

train-tiny: setup
	$(foreach assets,$(TINY_ASSETS),$(PYTHON) -m eval.collect --suite libero_object libero_spatial libero_goal \
	    --init-ids 0-39 --expert-noise 0.5 --assets $(assets) --output $(TINY)/demonstrations &&) true
	$(PYTHON) -m eval.train --data $(TINY)/demonstrations --model tiny --steps $(TINY_STEPS) --batch 64 --seed 0 \
	    --eval-suite libero_object --eval-init-ids 49 --eval-assets standins --output-dir $(TINY) \
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
