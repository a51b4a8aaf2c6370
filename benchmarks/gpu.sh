#!/usr/bin/env bash
# Everything that only a GPU can show, in at most 25 minutes: `make bench-gpu`, or `bash benchmarks/gpu.sh`.
# Needs jax[cuda], flax and numpy; no network, no simulator; docs/bench.md says what for.
# Interrupted or out of time, the same command goes on with what is missing.
#
#   OUT=DIR            results; default: benchmarks/results/gpu
#   SIZE=small         a trial on a CPU
#   PYTHON=python3     the Python to use
#   GOLDEN=DIR         parity fixtures (*.npz)
#   REFERENCE=DIR      a clone of github.com/air-embodied-brain/OxyGen
#   REFERENCE_PYTHON=  its Python; default: PYTHON
set -u
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
REFERENCE_PYTHON=${REFERENCE_PYTHON:-$PYTHON}
OUT=${OUT:-benchmarks/results/gpu}
mkdir -p "$OUT"
failed=0

if [ "${SIZE:-full}" = small ]; then
  policies="small small_droid" work="--text-tokens 4 --tokens-per-frame 1 2 --repetitions 2 --queries 1"
  robots="1 2" soak=40 energy=10 few="--repetitions 2 --queries 3 --text-tokens 6 --tokens-per-frame 1 3"
  memory=small suffix="--text-tokens 4 --tokens-per-frame 2 --repetitions 2 --queries 1"
  service=$suffix
else
  turns="--repetitions 6 --queries 6"
  policies="pi05_libero pi05_droid" work="--text-tokens 30 --tokens-per-frame 1 5 10 $turns"
  robots="1 4 16" soak=1500 energy=200 few="--tokens-per-frame 10 $turns"
  memory=pi05_libero suffix="--text-tokens 11 --tokens-per-frame 5 $turns"
  service="--text-tokens 30 --tokens-per-frame 5 $turns"
fi

# part NAME SECONDS COMMAND…: runs a part once, with a limit; its output goes to NAME.log.
part() {
  local name=$1 seconds=$2
  shift 2
  if [ -e "$OUT/$name.done" ]; then
    echo "$name: done before"
    return
  fi
  local began=$SECONDS
  timeout --signal=INT --kill-after=20 "$seconds" "$@" >"$OUT/$name.log" 2>&1
  local code=$?
  if [ $code -eq 0 ]; then
    touch "$OUT/$name.done"
    echo "$name: $((SECONDS - began)) s"
  else
    failed=1
    echo "$name: exit code $code after $((SECONDS - began)) s, see $OUT/$name.log"
  fi
}

bench() { # NAME SECONDS POLICY OPTIONS…
  local name=$1 seconds=$2 policy=$3
  shift 3
  part "$name" "$seconds" "$PYTHON" -m eval.bench --policy "$policy" --random-weights "$@"
}

# OxyGen's adapter for memory texts: without it, and with either mask. 11 tokens are its median text.
# shellcheck disable=SC2086
bench adapter 145 $memory $suffix --modes actions isolated shared unified --adapter off exact published \
  --output "$OUT/adapter_$memory.jsonl" --resume

# Stages against their floors; all modes, whose actions must be equal bit for bit (else exit code 1).
for policy in $policies; do
  part "roofline_$policy" 85 "$PYTHON" -m benchmarks.roofline --policy "$policy" \
    --output "$OUT/roofline_$policy.json"
done
for policy in $policies; do
  # shellcheck disable=SC2086
  bench "modes_$policy" 175 "$policy" $work --robots $robots --output "$OUT/modes_$policy.jsonl" --resume
done

# Mode `parallel` again, with the multi-process service; without it, above.
if command -v nvidia-cuda-mps-control >/dev/null && nvidia-cuda-mps-control -d; then
  for policy in $policies; do
    # shellcheck disable=SC2086
    bench "service_$policy" 105 "$policy" $service --modes isolated parallel unified \
      --output "$OUT/service_$policy.jsonl" --resume
  done
  echo quit | nvidia-cuda-mps-control
else
  echo "service: left out, the multi-process service cannot be started"
fi

if [ -d "${GOLDEN:-}" ]; then
  part parity 150 "$PYTHON" -m oxygen.tools.parity "$GOLDEN"/pi05_dummy_*.npz
else
  echo "parity: left out; name the folder of fixtures with GOLDEN=DIR"
fi

first=${policies%% *}
part soak 95 "$PYTHON" -m benchmarks.endurance --policy "$first" --queries $soak --output "$OUT/soak.json"
part energy 120 "$PYTHON" -m benchmarks.endurance --policy "$first" --queries $energy \
  --modes actions isolated shared parallel unified --output "$OUT/energy.json"

# Latency profiles for `--clock profile:FILE`, from the rows above where they were measured.
for policy in $policies; do
  # shellcheck disable=SC2086
  [ -e "$OUT/$policy.yaml" ] || bench "profile_$policy" 40 "$policy" $work --robots 1 --resume \
    --output "$OUT/modes_$policy.jsonl" --save-profile "$OUT/$policy.yaml"
done

if [ -d "${REFERENCE:-}" ]; then
  # shellcheck disable=SC2086
  part reference 170 "$PYTHON" -m benchmarks.oxygen_reference "$REFERENCE" --python "$REFERENCE_PYTHON" \
    --policy "$first" $few --output "$OUT/reference.json"
else
  echo "reference: left out; name a clone of the published code with REFERENCE=DIR"
fi
exit $failed
