"""`python -m benchmarks.oxygen_reference CHECKOUT`: OxyGen's published JAX code and ours, in turns.

CHECKOUT is a clone of github.com/air-embodied-brain/OxyGen. Sizes, prompt, device and work are the same: one
text of N tokens per query, `isolated`, and over frames with k tokens each. Both have random weights. The
published code runs in a process of its own, with `--python` if it needs other packages (`published.py`).

What differs: the published code computes three cameras where two exist, and masks the third, so ours is
measured with two and with three; it samples and detokenizes on the way (replaced here by nothing); it decodes
before it returns the actions, so that its actions take the whole frame.
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import write_record
from contracts.mode import Mode
from eval.bench.measurement import in_turns, ratio_fields
from eval.bench.serving import Bench, ModelUnderTest, PolicyRunner, find_model
from eval.bench.workloads import BenchConfiguration, Workload, max_queries_per_text
from oxygen.model.compile_cache import use_compile_cache

_CHILD = Path(__file__).with_name("published.py")


def _mean_ms(frames: int, timed: PolicyRunner | subprocess.Popen[str], k: int | None) -> float:
    """Mean of that many frames, back to back, after a first one that is left out."""
    if isinstance(timed, PolicyRunner):
        frame_ms: Sequence[float] = [query.frame_ms for query in timed.run(1 + frames)]
    else:
        setting = "isolated" if k is None else "continuous_batching"
        request = {"setting": setting, "tokens_per_frame": k or 0, "frames": 1 + frames}
        frame_ms = _answer(timed, request)["frame_ms"]
    return statistics.fmean(frame_ms[1:])


def _answer(process: subprocess.Popen[str], request: Any) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    if not (line := process.stdout.readline()):
        raise SystemExit("the published code ended; its errors are above")
    answer: dict[str, Any] = json.loads(line)
    return answer


@contextlib.contextmanager
def published(
    options: argparse.Namespace, model: ModelUnderTest
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """The process that runs the published code, and its device and versions."""
    config = model.config
    siglip = dataclasses.asdict(config.siglip)
    if siglip.pop("stem"):
        raise SystemExit(f"{model.name}: its vision tower is not openpi's; measure small or pi05_libero")
    sizes = {
        "trunk": dataclasses.asdict(config.trunk),
        "expert": dataclasses.asdict(config.expert),
        "siglip": siglip,
        "prompt_tokens": model.bucket,
        "prompt_used": model.prompt_tokens,
        "text_tokens": options.text_tokens,
        **{
            name: getattr(config, name)
            for name in ("vocab_size", "dtype", "action_dim", "horizon", "image_size", "denoise_steps")
        },
    }
    # It compiles a program for every number of unfinished texts.
    cached = {
        "JAX_COMPILATION_CACHE_DIR": str(use_compile_cache()),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    with subprocess.Popen(
        [options.python, str(_CHILD)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | cached,
    ) as process:
        try:
            start = {"checkout": str(options.checkout.resolve()), "sizes": sizes}
            yield process, _answer(process, start)["ready"]
        finally:
            process.kill()


def measure(options: argparse.Namespace, model: ModelUnderTest) -> Iterator[dict[str, Any]]:
    """Mean frames of every configuration by repetition, and the published code's frames by ours.

    Yields them after each repetition, so that a measurement cut short leaves those it has.
    """
    ks = options.tokens_per_frame
    configurations = [
        BenchConfiguration(mode=Mode.ISOLATED),
        *(BenchConfiguration(mode=Mode.UNIFIED, tokens_per_frame=k) for k in ks),
    ]
    workload = Workload(
        denoise_steps=model.config.denoise_steps,
        text_tokens=options.text_tokens,
        repetitions=options.repetitions,
        queries=options.queries,
    )
    # Frames until a text ends for every one that begins, and one more.
    fills = {one: 1 + max_queries_per_text(workload, one) for one in configurations}
    served = dataclasses.replace(workload, warm_up_queries=max(fills.values()))
    with contextlib.ExitStack() as stack:
        process, about = stack.enter_context(published(options, model))
        timed: dict[tuple[str, BenchConfiguration], PolicyRunner | subprocess.Popen[str]] = {
            ("published", one): process for one in configurations
        }
        third = dataclasses.replace(model.config, cameras=(*model.config.cameras, "third"))
        for ours in (model, dataclasses.replace(model, config=third)):
            for one in stack.enter_context(Bench(ours).prepare(served, configurations)):
                timed[f"{len(ours.config.cameras)} cameras", one.configuration] = one
        head = ["git", "-C", str(options.checkout), "rev-parse", "HEAD"]
        done = subprocess.run(head, capture_output=True, text=True, check=False)
        about |= {"commit": done.stdout.strip() or None}
        for (_, one), each in timed.items():  # until the number of concurrent texts no longer grows
            _mean_ms(fills[one] - 1, each, one.tokens_per_frame)
        turns = {
            (code, one): functools.partial(_mean_ms, workload.queries, each, one.tokens_per_frame)
            for (code, one), each in timed.items()
        }
        for repetitions, frames in enumerate(in_turns(turns, workload.repetitions), 1):
            rows = [
                {
                    "code": which,
                    "mode": one.mode.value,
                    "tokens_per_frame": one.tokens_per_frame,
                    "frame_ms": own,
                    "frame_ms_median": statistics.median(own),
                    **ratio_fields("published_over_this", frames["published", one], own),
                }
                for (which, one), own in frames.items()
            ]
            yield {"repetitions": repetitions, "published": about, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.oxygen_reference", description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--policy", default="small", help="sizes; default: small")
    parser.add_argument("--python", default=sys.executable, help="Python of the published code")
    parser.add_argument("--text-tokens", type=int, default=30)
    parser.add_argument("--tokens-per-frame", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--repetitions", type=int, default=8)
    parser.add_argument("--queries", type=int, default=10)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/oxygen_reference.json"))
    options = parser.parse_args()
    if not (options.checkout / "src/openpi/models/pi05.py").is_file():
        parser.error(f"{options.checkout} is not a checkout of OxyGen: it lacks src/openpi/models/pi05.py")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # two processes share the device
    use_compile_cache()
    model = find_model(options.policy, random_weights=True)
    about = {
        "benchmark": "oxygen_reference",
        "policy": model.name,
        "dtype": model.config.dtype,
        "text_tokens": options.text_tokens,
        "denoise_steps": model.config.denoise_steps,
        "prompt_tokens": model.bucket,
        "queries": options.queries,
    }
    rows: list[dict[str, Any]] = []
    for measured in measure(options, model):
        write_record({**about, **measured}, options.output)
        rows = measured["rows"]
    for one in rows:
        configuration = BenchConfiguration(mode=Mode(one["mode"]), tokens_per_frame=one["tokens_per_frame"])
        ratio = one["published_over_this"]
        print(f"{one['code']:12} {configuration.label}: {one['frame_ms_median']:.1f} ms, {ratio:.2f}")


if __name__ == "__main__":
    main()
