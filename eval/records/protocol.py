"""Description and hash of a suite's protocol. Runs with different hashes are never compared or ranked.

The inputs of a policy (prompt, cameras) are recorded separately and not part of the hash.
"""

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from configs.installed import distribution_of, identify
from configs.load import load
from configs.protocol import ProtocolConfig
from configs.schema import SuiteConfig, Wordings
from contracts.env_seed import BY_EPISODE
from contracts.errors import UsageError
from contracts.hashing import hash_of
from sim_envs.perturbations.dimension import describe_perturbation, find_dimension
from sim_envs.suite import Assets, StateSource, Suite

_OMITTED = {"env_seed": str(BY_EPISODE), "settle_gripper": "open", "initial_states": "stored"}
"""Values of what a description leaves out, if not none."""

_DEFAULT = "openpi"  # the protocol by name that LIBERO's suites have as their own
PROTOCOL_OPTIONS = {
    **{name: name for name in ("max_steps", "settle_gripper", "initial_states", "env_seed", "camera_size")},
    "num_steps_wait": "settle_steps",
    "replan_steps": "replan_steps",
    "variation": "variation",
}
"""Option to the field of a suite's protocol that it replaces."""

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
    protocol, env_seed = suite.protocol, suite.protocol.env_seed
    defaults = {"variation": None, "settle_gripper": "open", "initial_states": "stored"}
    omitted = {"trials_per_task", "test_init_ids", "env_seed", "perturb"}
    omitted |= {name for name, value in defaults.items() if getattr(protocol, name) == value}
    omitted |= {"motion"} if protocol.moving is None else set()
    return {
        "suite": protocol.model_dump(exclude=omitted),
        "interface": hash_of(dataclasses.asdict(suite.interface)),
        "assets": dataclasses.asdict(suite.assets or NO_ASSETS),
        **suite.describe(wordings),
        **_package(suite),
        **({"initial_states": "drawn"} if "sampled" in states else {}),
        **({"env_seed": str(env_seed)} if env_seed != BY_EPISODE and "stored" in states else {}),
        **({"perturb": _describe_perturbations(suite)} if suite.protocol.perturb else {}),
        **({"clock": dict(clock)} if clock else {}),
        **({"feedback": feedback} if feedback else {}),
    }


def _describe_perturbations(suite: Suite) -> dict[str, Any]:
    """What each perturbation means, and digests of what they read and of wordings that the suite gives."""
    dimensions = {part: find_dimension(part.dimension) for part in suite.protocol.perturb}
    described: dict[str, Any] = {str(part): describe_perturbation(part) for part in dimensions}
    if digests := {each.digest for each in dimensions.values() if each.digest}:
        described["digests"] = sorted(digests)
    if any(dimension.needs_other(part.severity) for part, dimension in dimensions.items()):
        described["wordings"] = suite.describe("held_out").get("wordings")
    return described


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


def name_protocol(
    config: Mapping[str, Any], protocol: Mapping[str, Mapping[str, Any]]
) -> tuple[str, tuple[str, ...]]:
    """The name of a run's protocol, such as `openpi*`, and what differs from that without a star, in words.

    Both follow from the name asked for, else openpi's, and what is hashed: equal protocols have equal hashes
    whatever they are called, and former runs have names. For suites that do not ship, they follow from the
    options, and there is a name only if one was asked for.

    Args:
        config: The run's recorded options.
        protocol: Suite to its description; empty if only hashes are recorded.
    """
    name, wordings = config.get("protocol") or _DEFAULT, config.get("wordings", "benchmark")
    changes: dict[str, Any] = {} if wordings == "benchmark" else {"wordings": wordings}
    worlds = {suite: described for suite, described in protocol.items() if "suite" in described}
    expected = _set_by_name(name, tuple(worlds)) if worlds else None
    if expected is None:
        options = ((field, config.get(option)) for option, field in PROTOCOL_OPTIONS.items())
        changes |= {field: value for field, value in options if value not in (None, _OMITTED.get(field))}
        name = config.get("protocol") or ""
    else:
        for suite, described in worlds.items():
            changes |= _changes(expected[suite], described, config)
    beside = any({"clock", "perturb"} & each.keys() or "motion" in each["suite"] for each in worlds.values())
    is_other = changes or beside
    words = tuple(f"{field.replace('_', ' ')} {value}" for field, value in changes.items())
    return f"{name}*" if name and is_other else name, words


@functools.cache
def _set_by_name(protocol: str, suites: tuple[str, ...]) -> Mapping[str, Mapping[str, Any]] | None:
    """Suite to the fields that a protocol by name sets; None if it does not cover all, or is unknown here."""
    try:
        named = load(ProtocolConfig, protocol)
        return {suite: named.fields_of(load(SuiteConfig, suite)) for suite in suites}
    except UsageError:
        return None


def _changes(
    expected: Mapping[str, Any], described: Mapping[str, Any], config: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields in which a suite was played otherwise than expected."""
    seeded = {"env_seed": described["env_seed"]} if "env_seed" in described else {}
    played = {**_OMITTED, **described["suite"], **seeded}
    wanted = {**expected, "env_seed": str(expected["env_seed"].resolved(*config.get("seeds", (7,))))}
    del wanted["trials_per_task"]  # fewer episodes are a smaller sample under the same protocol
    if described.get("initial_states") == "drawn":
        played |= {"initial_states": "sampled", "env_seed": wanted["env_seed"], **seeded}
    if "replan_steps" not in wanted and config.get("replan_steps") is not None:  # else the policy decides
        wanted["replan_steps"] = None
    return {name: played[name] for name in wanted if name in played and played[name] != wanted[name]}


_MOST_DIFFERENCES = 8  # in a message


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
    legible = [each for each in told if not each.startswith("interface ")]  # a digest, of camera_size, too
    told = dict.fromkeys(legible or told)
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
