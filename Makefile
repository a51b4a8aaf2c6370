# The commands of this project; CI runs `check` and `test`.
PYTHON := .venv/bin/python

# Always cache bytecode: every process imports two thousand modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-all check results bench bench-gpu lock train-tiny train-tiny-droid train-tiny-memory
.DEFAULT_GOAL := check

setup: .venv/.synced

.venv/.synced: requirements.lock pyproject.toml scripts/setup.sh
	@bash scripts/setup.sh
	@touch $@

demo: setup
	$(PYTHON) -m eval.libero --mode unified

# All tests of a module run on one worker, so that its fixtures are built once. One worker more than there are
# cores: tests also wait for other processes.
PYTEST = $(PYTHON) -m pytest -n $$(( $$(nproc) + 1 )) --dist loadfile --no-loadscope-reorder

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

# Runs the sweeps of docs/results.md, in hours on two cores, and puts their records and numbers into the documentation.
# The same command resumes; without its folder, a sweep is run anew.
SWEEPS := surface surface_spatial spatial_latency modes memory memory_again perturbations
RUN_SWEEP = ls runs/results/$*/*-sweep/sweep.json >/dev/null 2>&1 || \
	$(PYTHON) -m eval.sweep --output-dir runs/results/$* --num-envs 2 \
	$$(ls -d runs/results/$*/*-sweep >/dev/null 2>&1 && echo --resume)

results: $(SWEEPS:%=run-sweep-%)
	for sweep in $(SWEEPS); do cp runs/results/$$sweep/*-sweep/sweep.json benchmarks/results/sweep_$$sweep.json; done
	$(PYTHON) -m scripts.results

run-sweep-%: setup
	$(RUN_SWEEP) --config $*

.NOTPARALLEL: results

# Trains a bundled policy in the stages of scripts/pipelines, in hours on two cores. The same command resumes.
train-tiny train-tiny-droid train-tiny-memory: train-%: setup
	$(PYTHON) -m scripts.pipeline $(subst -,_,$*)

bench: setup
	$(PYTHON) -m benchmarks.libero_loop
	$(PYTHON) -m eval.bench --quick

# What only a GPU can show; docs/bench.md. Needs jax[cuda], flax and numpy alone, so it sets nothing up.
bench-gpu: PYTHON := $(if $(wildcard .venv/bin/python),.venv/bin/python,python3)
bench-gpu:
	PYTHON=$(PYTHON) bash benchmarks/gpu.sh

lock:
	uv pip compile --universal --generate-hashes --no-annotate --upgrade pyproject.toml --extra libero --extra train --group dev --group libero -o requirements.lock
