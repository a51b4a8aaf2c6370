"""`--save-profile`: makes a latency profile of measured rows."""

import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from configs.errors import UsageError
from eval.bench.aggregation import decode_sizes
from eval.bench.row import Row
from eval.bench.workloads import Workload
from oxygen.serving.scheduler import Mode

_NEEDED = (Mode.ISOLATED, Mode.UNIFIED)  # the modes with a decode step for one text, and for many
_ARRIVALS = "every:1"


def check_profile(
    path: Path, modes: Sequence[Mode], workloads: Sequence[Workload], adapters: Sequence[str]
) -> None:
    """Check before the benchmark runs that a profile can be made of it and written to `path`.

    Raises:
        UsageError: It cannot.
    """
    flag = f"--save-profile {path}"
    if re.fullmatch(r"[A-Za-z0-9_.-]+\.yaml", path.name) is None:
        raise UsageError(f"{flag}: name it NAME.yaml, of letters, digits and `_.-`; it names the profile")
    if path.exists():
        raise UsageError(f"{flag}: the file exists and is not replaced; name another")
    if missing := [mode.value for mode in _NEEDED if mode not in modes]:
        raise UsageError(f"{flag}: a profile needs mode {' and '.join(missing)}; add it to --modes")
    if len(workloads) > 1 or len(adapters) > 1:
        raise UsageError(
            f"{flag}: a profile is of one workload, not {len(workloads) * len(adapters)}; give one value of "
            "each option"
        )
    (workload,) = workloads
    if workload.robots > 1 or workload.arrivals != _ARRIVALS:
        raise UsageError(
            f"{flag}: a profile is of 1 robot and a text per query, not of {workload.robots} and "
            f"{workload.arrivals}; leave out --robots and --arrivals"
        )


def save_profile(path: Path, rows: Sequence[Row]) -> None:
    """Write the profile of a workload's rows, named after the file."""
    import yaml

    content = yaml.safe_dump(profile(path.stem, rows), sort_keys=False, allow_unicode=True, width=120)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def profile(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    """The fields of a `configs.profile.ProfileConfig`, from a workload's rows, which include `isolated`.

    A stage time is the median over rows. Host time is the action latency of `isolated` without prefill and
    denoising.
    """
    isolated = next(row for row in rows if row.mode == Mode.ISOLATED)
    stages = dict.fromkeys(stage for row in rows for stage in row.stage_ms)
    ms = {
        stage: statistics.median(row.stage_ms[stage] for row in rows if stage in row.stage_ms)
        for stage in stages
    }
    host_ms = max(0.0, isolated.action_ms_p50 - ms["prefill"] - ms["denoise"])
    decode = {size: ms[f"decode_{size}"] for size in decode_sizes(ms)}
    guided_ms = ms.get("guided_denoise")  # the recorded rows of `small` do not have it
    itself = f"by itself, median of {isolated.repetitions} repetitions"
    device, hardware, versions = isolated.device, isolated.hardware, isolated.versions
    if device == "cpu":
        device = f"{hardware['processor']}, {hardware['cores']} cores"
    packages = ", ".join(f"{package} {versions[package]}" for package in ("python", "jax", "numpy"))
    commit = f"commit {isolated.commit[:10]}" if isolated.commit else "no commit"
    slowdown, parallel = None, next((row for row in rows if row.mode == Mode.PARALLEL), None)
    if parallel is not None and parallel.request_ms_p50 is not None:
        language_ms = ms["prefill"] + ms["fork"] + isolated.text_tokens * decode[1]
        slowdown = {
            "action": _rounded(max(1.0, parallel.action_ms_p50 / isolated.action_ms_p50)),
            "decode": _rounded(max(1.0, parallel.request_ms_p50 / language_ms)),
            "kind": "measured",
            "source": "median action latency by that of isolated; a text's end-to-end latency by its own "
            "stages",
        }
    content = {
        "name": name,
        "device": device,
        "dtype": isolated.dtype,
        "model": isolated.policy,
        "source": f"`{isolated.command}` on {isolated.written_at}, {commit}; {packages}; load average "
        f"{hardware['load_average'][0]} at its start",
        "host": _measured(host_ms, "median action latency of isolated, less prefill and denoising"),
        "prefill": _measured(ms["prefill"], f"{itself}, {isolated.prefix_tokens} tokens"),
        "denoise": _measured(ms["denoise"], f"{itself}, {isolated.denoise_steps} steps"),
        "guided_denoise": guided_ms and _measured(guided_ms, f"{itself}, {isolated.denoise_steps} steps"),
        "fork": _measured(ms["fork"], itself),
        "decode": {batch: _measured(decode[batch], itself) for batch in sorted(decode)},
        "parallel": slowdown,
    }
    return {field: value for field, value in content.items() if value is not None}


def _measured(ms: float, how: str) -> dict[str, Any]:
    return {"ms": _rounded(ms), "kind": "measured", "source": how}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
