"""Makes a latency profile, for `--clock profile:FILE`, of a workload's rows."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contracts.mode import Mode
from eval.bench.row import Row


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
    ms = {
        stage: statistics.median(row.stage_ms[stage] for row in rows if stage in row.stage_ms)
        for stage in dict.fromkeys(stage for row in rows for stage in row.stage_ms)
    }
    sizes = sorted(int(stage.removeprefix("decode_")) for stage in ms if stage.startswith("decode_"))
    host_ms = max(0.0, isolated.action_ms_p50 - ms["prefill"] - ms["denoise"])
    guided_ms = ms.get("guided_denoise")  # the recorded rows of `small` do not have it
    itself = f"by itself, median of {isolated.repetitions} repetitions"
    device, hardware = isolated.device, isolated.hardware
    content = {
        "name": name,
        "device": f"{hardware['processor']}, {hardware['cores']} cores" if device == "cpu" else device,
        "dtype": isolated.dtype,
        "model": isolated.policy,
        "source": _source(isolated),
        "host": _measured(host_ms, "median action latency of isolated, less prefill and denoising"),
        "prefill": _measured(ms["prefill"], f"{itself}, {isolated.prefix_tokens} tokens"),
        "denoise": _measured(ms["denoise"], f"{itself}, {isolated.denoise_steps} steps"),
        "guided_denoise": guided_ms and _measured(guided_ms, f"{itself}, {isolated.denoise_steps} steps"),
        "fork": _measured(ms["fork"], itself),
        "decode": {size: _measured(ms[f"decode_{size}"], itself) for size in sizes},
        "parallel": _slowdown(isolated, rows, ms),
    }
    return {field: value for field, value in content.items() if value is not None}


def _source(row: Row) -> str:
    """The command, when and with what it ran, and the machine's load."""
    commit = f"commit {row.commit[:10]}" if row.commit else "no commit"
    packages = ", ".join(f"{package} {row.versions[package]}" for package in ("python", "jax", "numpy"))
    load = f"load average {row.hardware['load_average'][0]} at its start"
    return f"`{row.command}` on {row.written_at}, {commit}; {packages}; {load}"


def _slowdown(isolated: Row, rows: Sequence[Row], ms: Mapping[str, float]) -> dict[str, Any] | None:
    """What two processes on one device cost; None if `parallel` was not measured."""
    parallel = next((row for row in rows if row.mode == Mode.PARALLEL), None)
    if parallel is None or parallel.request_ms_p50 is None:
        return None
    text_ms = ms["prefill"] + ms["fork"] + isolated.text_tokens * ms["decode_1"]
    return {
        "action": _rounded(max(1.0, parallel.action_ms_p50 / isolated.action_ms_p50)),
        "decode": _rounded(max(1.0, parallel.request_ms_p50 / text_ms)),
        "kind": "measured",
        "source": "median action latency by that of isolated; a text's end-to-end latency by its own stages",
    }


def _measured(ms: float, how: str) -> dict[str, Any]:
    return {"ms": _rounded(ms), "kind": "measured", "source": how}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
