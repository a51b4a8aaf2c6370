"""The world's protocol as a value with a hash: runs that differ in it are never compared or ranked together.

What a policy is shown of that world (its prompt, its cameras) is its own affair and stands beside it.
"""

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
    wordings: Wordings = "benchmark",
    drawn: bool = False,
) -> dict[str, Any]:
    """Everything that decides what an episode of the suite is, apart from who acts in it and how often.

    Args:
        suite: Limits, settle steps, replan steps, camera size.
        assets: Name and digest of the asset set.
        wordings: In which words it is told its task. The benchmark's own, as published, go without saying.
        drawn: Whether its initial states are drawn. Stored ones, as published, go without saying.
    """
    limits = suite.model_dump(exclude={"trials_per_task"})
    versions = {package: version(package) for package in PINNED_VERSIONS}
    return {
        "suite": limits,
        "versions": versions,
        "assets": dict(assets),
        **({} if wordings == "benchmark" else {"wordings": _describe_wordings(suite.name, wordings)}),
        **({"initial_states": "drawn"} if drawn else {}),
    }


def suite_hash(description: Mapping[str, Any]) -> str:
    """Hash of a suite's protocol, as `describe_suite` has it or had it.

    Assets count by their content, under whatever name. What older descriptions say of the policy's inputs
    does not count: so runs of before and after compare.
    """
    world = {part: value for part, value in description.items() if part != "policy_inputs"}
    return hash_of({**world, "assets": description["assets"]["digest"]})


def protocol_hash(protocol: Mapping[str, Mapping[str, Any]]) -> str:
    """Hash of the protocols of a run's suites."""
    return hash_of({suite: suite_hash(description) for suite, description in protocol.items()})


def policy_inputs(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What a run's policy was shown, by its manifest; older ones say so in every suite's protocol."""
    suites = manifest.get("protocol", {}).values()
    older: Mapping[str, Any] = next(
        (suite["policy_inputs"] for suite in suites if "policy_inputs" in suite), {}
    )
    return dict(manifest.get("policy_inputs", older))


def say_inputs(inputs: Mapping[str, Any]) -> str:
    """What a policy was shown, in words."""
    return (
        "; ".join(_say_input(name.replace("_", " "), value) for name, value in inputs.items()) or "not said"
    )


def _say_input(name: str, value: Any) -> str:
    if value is True:
        return name
    return f"{name} {', '.join(map(str, value)) if isinstance(value, list) else value}"


def _describe_wordings(suite: str, wordings: Wordings) -> dict[str, str]:
    """Their name, and a digest that changes when any of them does."""
    said = {task.language: wordings_of(task.language, wordings) for task in list_tasks(suite)}
    return {"name": wordings, "digest": hash_of(said)}


def hash_of(description: Mapping[str, Any]) -> str:
    """The first 16 hexadecimal digits of SHA-256 over the canonical JSON of `description`."""
    canonical = json.dumps(description, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
