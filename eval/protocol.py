"""The protocol as a value with a hash: runs with different hashes are never compared or ranked together."""

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from configs.schema import SuiteConfig, Wordings
from sim_envs.libero.bootstrap import PINNED_VERSIONS
from sim_envs.libero.tasks import list_tasks
from sim_envs.libero.wordings import wordings as wordings_of


def describe_suite(
    suite: SuiteConfig,
    *,
    assets: Mapping[str, str],
    policy_inputs: Mapping[str, Any],
    wordings: Wordings = "benchmark",
    drawn: bool = False,
) -> dict[str, Any]:
    """Everything that decides what an episode of the suite is, apart from who acts in it and how often.

    Args:
        suite: Limits, settle steps, replan steps, camera size.
        assets: Name and digest of the asset set.
        policy_inputs: How the policy is shown the world: prompt template, which cameras, what is masked.
        wordings: In which words it is told its task. The benchmark's own, as published, go without saying.
        drawn: Whether its initial states are drawn. Stored ones, as published, go without saying.
    """
    limits = suite.model_dump(exclude={"trials_per_task"})
    versions = {package: version(package) for package in PINNED_VERSIONS}
    return {
        "suite": limits,
        "versions": versions,
        "assets": dict(assets),
        "policy_inputs": dict(policy_inputs),
        **({} if wordings == "benchmark" else {"wordings": _describe_wordings(suite.name, wordings)}),
        **({"initial_states": "drawn"} if drawn else {}),
    }


def _describe_wordings(suite: str, wordings: Wordings) -> dict[str, str]:
    """Their name, and a digest that changes when any of them does."""
    said = {task.language: wordings_of(task.language, wordings) for task in list_tasks(suite)}
    return {"name": wordings, "digest": hash_of(said)}


def hash_of(description: Mapping[str, Any]) -> str:
    """The first 16 hexadecimal digits of SHA-256 over the canonical JSON of `description`."""
    canonical = json.dumps(description, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
