"""Description and hash of a suite's protocol. Runs with different hashes are never compared or ranked.

The inputs of a policy (prompt, cameras) are recorded separately and not part of the hash.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from configs.installed import distribution_of, identify
from configs.schema import Wordings
from contracts.env_seed import BY_EPISODE
from contracts.hashing import hash_of
from sim_envs.suite import Assets, StateSource, Suite

_OMITTED = {"env_seed": str(BY_EPISODE)}
"""Values of what a description leaves out, if not none."""

NO_ASSETS = Assets(name="none", digest="")
"""Recorded for simulators without external assets."""


def describe_suite(
    suite: Suite,
    *,
    wordings: Wordings = "benchmark",
    states: Collection[StateSource] = ("stored",),
    clock: Mapping[str, Any] | None = None,
    feedback: str | None = None,
) -> dict[str, Any]:
    """Everything that defines an episode of the suite, except the policy. Published defaults are omitted.

    Args:
        suite: Limits, settle steps, replan steps, camera size, conventions, assets.
        wordings: Wording of instructions; omitted if the benchmark's own.
        states: Origins of the initial states. The environment's seeding, omitted if it is the episode's seed,
            matters only if some are stored: sampled ones do not depend on it.
        clock: Description of the clock; omitted if paused.
        feedback: Origin of the texts in the prompt; omitted if there are none.
    """
    omitted = {
        "trials_per_task",
        "test_init_ids",
        "env_seed",
        *(["variation"] if suite.protocol.variation is None else []),
        *(["motion"] if suite.protocol.moving is None else []),
        *(["settle_gripper"] if suite.protocol.settle_gripper == "open" else []),
        *(["initial_states"] if suite.protocol.initial_states == "stored" else []),
    }
    env_seed = suite.protocol.env_seed
    return {
        "suite": suite.protocol.model_dump(exclude=omitted),
        "interface": hash_of(dataclasses.asdict(suite.interface)),
        "assets": dataclasses.asdict(suite.assets or NO_ASSETS),
        **suite.describe(wordings),
        **_package(suite),
        **({"initial_states": "drawn"} if "sampled" in states else {}),
        **({"env_seed": str(env_seed)} if env_seed != BY_EPISODE and "stored" in states else {}),
        **({"clock": dict(clock)} if clock else {}),
        **({"feedback": feedback} if feedback else {}),
    }


def suite_hash(description: Mapping[str, Any]) -> str:
    """Hash of a suite's protocol (see `describe_suite`)."""
    return hash_of(by_content(description))


def by_content(description: Mapping[str, Any]) -> dict[str, Any]:
    """What counts of a suite's protocol: of assets and packages their content, not their names and places."""
    packages = {part: _content(description[part]) for part in ("versions", "package") if part in description}
    return {**description, **packages, "assets": description["assets"]["digest"]}


def _content(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    if "digest" in value:
        return {part: value[part] for part in ("version", "digest")}
    return {name: _content(each) for name, each in value.items()}


def _package(suite: Suite) -> dict[str, Any]:
    """The distribution of a suite's class; empty for this project's own suites and for releases."""
    module = type(suite).__module__
    name = None if module.startswith("sim_envs.") else distribution_of(module)
    if name is None or not (found := identify(name)).origin:
        return {}
    return {"package": {"name": name, "version": found.version, **found.origin, "digest": found.digest}}


def protocol_hash(protocol: Mapping[str, Mapping[str, Any]]) -> str:
    """Hash of the protocols of a run's suites."""
    return hash_of({suite: suite_hash(description) for suite, description in protocol.items()})


def without(parts: Collection[str], protocol: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The protocols of a run's suites without parts that they may have."""
    return {
        suite: {name: value for name, value in described.items() if name not in parts}
        for suite, described in protocol.items()
    }


_MOST_DIFFERENCES = 4  # in a message


def differences_of(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """What differs between the protocols of two runs' suites but their `feedback`, in words."""
    if a.keys() != b.keys():
        return [f"suites {', '.join(a)} and {', '.join(b)}"]
    leaves = [
        dict(leaves_of({suite: by_content(each) for suite, each in without(["feedback"], of).items()}))
        for of in (a, b)
    ]
    told: dict[str, None] = {}
    for path in dict.fromkeys([*leaves[0], *leaves[1]]):
        omitted = _OMITTED.get(path.rpartition(".")[2], "none")
        before, after = (of.get(path, omitted) for of in leaves)
        if before != after:
            told[f"{path.partition('.')[2].removeprefix('suite.')} {before} and {after}"] = None
    more = [f"… ({len(told)} in all)"] if len(told) > _MOST_DIFFERENCES else []
    return [*list(told)[:_MOST_DIFFERENCES], *more]


def leaves_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The plain values in nested mappings and lists, with their paths, as in `mine.suite.max_steps`."""
    if isinstance(value, Mapping | list | tuple):
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from leaves_of(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def format_inputs(inputs: Mapping[str, Any]) -> str:
    """The inputs of a policy, in words."""
    told = [_format_input(name, value) for name, value in inputs.items() if value is not None]
    return "; ".join(filter(None, told)) or "unknown"


def _format_input(name: str, value: Any) -> str:
    words = name.replace("_", " ")
    if value is True:
        return words
    if isinstance(value, Mapping):  # a server's declaration; its interface is compared, not shown
        return ", ".join(_format_input(key, each) for key, each in value.items() if key != "interface")
    if name.endswith("_sha256") and isinstance(value, str):
        return f"{words.removesuffix(' sha256')} {value[:8]}"
    return f"{words} {', '.join(map(str, value)) if isinstance(value, list) else value}"
