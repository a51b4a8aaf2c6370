"""Checks of a machine before an evaluation, each with its remedy."""

import dataclasses
import functools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from configs.assets import badge, badged
from configs.exits import jax_does_not_start
from configs.paths import absolute, usable_folder
from configs.schema import RunConfig
from contracts.errors import UsageError
from eval.policies.resolved import resolve_policy
from eval.records import provenance
from eval.rollout.plan import EpisodePlan, check_playable, make_plan
from oxygen.model.compile_cache import CACHE_VARIABLE, default_cache
from sim_envs.gl import context_class, gpu_count, require_backend
from sim_envs.preflight import CheckResult, Status, check_machine
from sim_envs.suite import open_suite
from sim_envs.workers import WORLD_MB, available_mb, check_memory
from videos.mp4 import REMEDY, encoder_problem

_LOW_DISK_GB = 5.0
_NO_DISK_GB = 0.2
_SOFTWARE_RENDERERS = ("llvmpipe", "softpipe", "swrast")


def quick_checks(output_dir: Path, *, num_envs: int, videos: bool) -> Iterator[CheckResult]:
    """Checks that take no time, for runs in `output_dir` with `num_envs` worlds, and `videos` if any.

    They are disk, memory, caches and the encoder.
    """
    yield _attempt("output folder", lambda: _writable(output_dir, "--output-dir"))
    yield _disk(output_dir)
    yield _attempt("memory", lambda: _memory(num_envs))
    cache = functools.partial(_writable, default_cache(), CACHE_VARIABLE)
    yield _attempt("compile cache", cache, otherwise=Status.WARN)
    if videos:
        yield _encoder()


def all_checks(config: RunConfig, output_dir: Path, *, num_envs: int) -> Iterator[CheckResult]:
    """All checks: of the machine, each suite of `config`, and its policy if one is chosen."""
    versions = provenance.versions()
    packages = [f"{package} {version}" for package, version in versions.items() if version]
    yield CheckResult.of("versions", ", ".join(packages))
    yield _attempt("LIBERO", lambda: _libero(versions["hf-libero"]), otherwise=Status.WARN)
    yield _attempt("renderer", _renderer)
    yield from quick_checks(output_dir, num_envs=num_envs, videos=True)
    yield _attempt("JAX", _jax)
    try:
        plan = make_plan(config)
        check_playable(plan)
    except UsageError as error:
        yield CheckResult.of("suites", str(error), ok=False)
        return
    assets = {suite.assets.name for suite in plan.suites.values() if suite.assets is not None}
    named = f", assets {badged(', '.join(sorted(assets)), *assets)}" if assets else ""
    yield CheckResult.of(
        "suites",
        ", ".join(plan.suites) + named,
        ok=not badge(*assets),
        remedy="results on stand-ins do not compare with published ones; --assets auto plays the originals",
        otherwise=Status.WARN,
    )
    if "policy" in config.model_fields_set:
        yield _attempt("policy", lambda: _policy(config, plan))
    for name, suite in plan.suites.items():
        try:
            for result in check_machine(suite):
                yield dataclasses.replace(result, name=f"{name}: {result.name}")
        except UsageError as error:
            yield CheckResult.of(name, str(error), ok=False)


def require_quick_checks(
    output_dir: Path, *, num_envs: int, videos: bool, notify: Callable[[str], None]
) -> None:
    """Run the quick checks before an evaluation; report warnings, and raise a failure as a UsageError."""
    for result in quick_checks(output_dir, num_envs=num_envs, videos=videos):
        if result.status is Status.FAIL:
            raise UsageError(_line(result))
        if result.status is Status.WARN:
            notify(f"warning: {_line(result)}")


def _line(result: CheckResult) -> str:
    return f"{result.name}: {result.detail}" + (f"; {result.remedy}" if result.remedy else "")


def _attempt(
    name: str, check: Callable[[], CheckResult | str], *, otherwise: Status = Status.FAIL
) -> CheckResult:
    """The result of a check; a string is the detail of one that passed, a UsageError fails it."""
    try:
        found = check()
    except UsageError as error:
        return CheckResult.of(name, str(error), ok=False, otherwise=otherwise)
    return found if isinstance(found, CheckResult) else CheckResult.of(name, found)


def demo_preset() -> str:
    """The demo that this installation can play."""
    return "demo" if provenance.versions()["hf-libero"] else "demo_droid"


def _libero(version: str | None) -> str:
    """The installed LIBERO and its assets; a UsageError if one of them is missing."""
    if version is None:
        raise UsageError("not installed; its suites need it: run oxygen-eval setup libero")
    assets = open_suite("libero_object").assets
    return f"hf-libero {version}, assets {assets.name if assets else 'none'}"


def _policy(config: RunConfig, plan: EpisodePlan) -> str:
    resolved = resolve_policy(config)
    check_playable(plan, kind=resolved.policy.kind, interface=resolved.interface)
    return f"{resolved.policy.name} has the conventions of these suites"


def _renderer() -> CheckResult:
    backend = require_backend()
    from OpenGL import GL

    context = context_class()(64, 64)
    context.make_current()
    device = GL.glGetString(GL.GL_RENDERER).decode(errors="replace")
    context.free()
    idle_gpu = gpu_count() > 0 and any(name in device for name in _SOFTWARE_RENDERERS)
    remedy = "the GPU does not render: install its driver's EGL library (libnvidia-gl)"
    return CheckResult.of(
        "renderer", f"{backend} on {device}", ok=not idle_gpu, remedy=remedy, otherwise=Status.WARN
    )


def _writable(folder: Path, option: str) -> str:
    usable_folder(folder, option)
    return f"{absolute(folder)} can be written"


def _disk(folder: Path) -> CheckResult:
    path = absolute(folder)
    nearest = next(each for each in (path, *path.parents) if each.exists())
    free_gb = shutil.disk_usage(nearest).free / 1e9
    return CheckResult.of(
        "disk",
        f"{free_gb:.1f} GB free in {nearest}",
        ok=free_gb >= _LOW_DISK_GB,
        remedy="free some space, give another --output-dir, or --video none",
        otherwise=Status.WARN if free_gb >= _NO_DISK_GB else Status.FAIL,
    )


def _encoder() -> CheckResult:
    problem = encoder_problem()
    return CheckResult.of(
        "videos",
        "H.264 can be written" if problem is None else f"none can be recorded ({problem})",
        ok=problem is None,
        remedy=f"{REMEDY}, or give --video none",
        otherwise=Status.WARN,
    )


def _memory(num_envs: int) -> str:
    check_memory(num_envs)
    return f"{available_mb() / 1e3:.1f} GB available, room for {int(available_mb() // WORLD_MB)} worlds"


def _jax() -> CheckResult:
    try:
        import jax

        devices = [f"{each.platform}: {each.device_kind}" for each in jax.devices()]
    except (AssertionError, RuntimeError) as error:
        raise jax_does_not_start(error) from None
    idle_gpu = gpu_count() > 0 and jax.default_backend() == "cpu"
    remedy = 'the GPU is not used: uv pip install "jax[cuda13]"'
    return CheckResult.of("JAX", ", ".join(devices), ok=not idle_gpu, remedy=remedy, otherwise=Status.WARN)
