"""Compares the interfaces of a policy and an environment."""

import dataclasses

from configs.errors import UsageError, unknown
from configs.interface import Interface


def compare(policy: Interface, env: Interface) -> None:
    """Check that the conventions of a policy and an environment agree.

    The environment may have cameras that the policy does not use.

    Raises:
        UsageError: Names the first convention that differs, and both values.
    """
    there = {camera.name: camera for camera in env.observation.cameras}
    pairs: list[tuple[str, object, object]] = []
    for camera in policy.observation.cameras:
        if camera.name not in there:
            lacks = f"policy {policy.name!r} needs a camera that environment {env.name!r} lacks"
            raise UsageError(f"{lacks}: {unknown('camera', camera.name, there)}")
        given = there[camera.name]
        wanted = dataclasses.replace(camera, size=camera.size or given.size)
        pairs.append((f"camera {camera.name!r}", wanted, given))
    ours, theirs = policy.observation, env.observation
    gives, takes = policy.action, env.action
    pairs += [
        ("state", ours.state, theirs.state),
        ("rotation in the state", ours.rotation, theirs.rotation),
        ("action", gives.channels, takes.channels),
        ("rotation in an action", gives.rotation, takes.rotation),
        ("grippers of an action", gives.grippers, takes.grippers),
        ("limits of an action", gives.limits, takes.limits),
        ("control rate, Hz", gives.control_hz, takes.control_hz),
    ]
    for label, wanted, given in pairs:
        if wanted != given:
            raise UsageError(
                f"{label}: policy {policy.name!r} has {_told(wanted)}, environment {env.name!r} has "
                f"{_told(given)}. Choose a policy that was trained for this environment"
            )


def _told(value: object) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, tuple) else str(value)
