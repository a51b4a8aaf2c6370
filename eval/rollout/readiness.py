"""Whether a machine, some suites and a policy are ready for an evaluation, each check with its remedy."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from configs.assets import badge, badged
from configs.exits import jax_does_not_start
from configs.schema import RunConfig
from contracts.errors import UsageError, in_user_code, one_line
from eval.policies.resolved import resolve_policy
from eval.records import provenance
from eval.rollout.machine import attempt, quick_checks
from eval.rollout.plan import EpisodePlan, make_plan
from eval.rollout.prepare import check_playable
from sim_envs.gl import context_class, gpu_count, require_backend
from sim_envs.preflight import CheckResult, Status, check_machine
from sim_envs.suite import open_suite

_SOFTWARE_RENDERERS = ("llvmpipe", "softpipe", "swrast")

_ANY = (10**6,)  # after every version
_CHANGE_SCORES = (
    ("mujoco", (3, 3, 3), (3, 4), "LIBERO's floor is darker: OpenVLA 88.4 → 69.8 % on libero_object"),
    ("mujoco", (3, 4), _ANY, "the bowl of libero_spatial task 5 slips off its ramekin: 98 → 12 % there"),
    ("lerobot", (0,), (0, 6, 1), "lerobot-eval before 0.6.1 skips or repeats stored initial states"),
)
"""Packages, the first of their versions that change scores, the first that do not, and what changes."""


def all_checks(config: RunConfig, output_dir: Path, *, num_envs: int) -> Iterator[CheckResult]:
    """All checks: of the machine, each suite of `config`, and its policy if one is chosen."""
    versions = provenance.versions()
    packages = [f"{package} {version}" for package, version in versions.items() if version]
    yield CheckResult.of("versions", ", ".join(packages))
    yield from _versions_that_change_scores()
    yield attempt("LIBERO", lambda: _libero(versions["hf-libero"]), otherwise=Status.WARN)
    yield attempt("renderer", _renderer)
    yield from quick_checks(output_dir, num_envs=num_envs, videos=True)
    yield attempt("JAX", _jax)
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
        yield attempt("policy", lambda: _policy(config, plan))
    for name, suite in plan.suites.items():
        try:
            for result in check_machine(suite):
                yield dataclasses.replace(result, name=f"{name}: {result.name}")
        except UsageError as error:
            yield CheckResult.of(name, str(error), ok=False)
        except Exception as error:  # noqa: BLE001 - a user's world may raise anything
            yield CheckResult.of(name, one_line(error) + in_user_code(error), ok=False)


def _versions_that_change_scores() -> Iterator[CheckResult]:
    """A warning for each installed version of which it is known (docs/protocols.md)."""
    for package, first, last, effect in _CHANGE_SCORES:
        with contextlib.suppress(PackageNotFoundError):
            found = version(package)
            if first <= tuple(map(int, re.findall(r"\d+", found)[:3])) < last:
                detail, remedy = (
                    f"{package} {found}: {effect}",
                    "see docs/protocols.md, and name it beside scores",
                )
                yield CheckResult(name="versions", status=Status.WARN, detail=detail, remedy=remedy)


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


def _jax() -> CheckResult:
    try:
        import jax

        devices = [f"{each.platform}: {each.device_kind}" for each in jax.devices()]
    except (AssertionError, RuntimeError) as error:
        raise jax_does_not_start(error) from None
    idle_gpu = gpu_count() > 0 and jax.default_backend() == "cpu"
    remedy = 'the GPU is not used: uv pip install "jax[cuda13]"'
    return CheckResult.of("JAX", ", ".join(devices), ok=not idle_gpu, remedy=remedy, otherwise=Status.WARN)
