"""Builds the executor from command-line options."""

from collections.abc import Mapping
from typing import Any

from configs.cli import format_option
from configs.errors import UsageError, unknown
from eval.rollout.executors.executor import Executor
from eval.rollout.executors.processes import Processes
from eval.rollout.executors.serial import SERIAL
from sim_envs.workers import TIMEOUT_S, WORLD_MB, check_memory

_MAX_ENVS = 4096
_LONGEST_S = 1_000_000

EXECUTORS = ("serial", "processes", "ray")


def choose_executor(
    *,
    num_envs: int = 1,
    executor: str | None = None,
    episode_timeout: float | None = None,
    ray_address: str | None = None,
) -> Executor:
    """Build the executor of an evaluation.

    Args:
        num_envs: Number of parallel worlds.
        executor: Its name. Default: `serial` for one world, `processes` for several.
        episode_timeout: Seconds after which an episode is considered hung. Default: one hour.
        ray_address: Cluster of executor `ray`. Default: the one this machine belongs to.

    Raises:
        UsageError: The executor is unknown or supports one world only, memory is too small, or the cluster
            is not found.
        ModuleNotFoundError: Ray is not installed.
    """
    name = executor or ("serial" if num_envs == 1 else "processes")
    if name not in EXECUTORS:
        raise unknown("executor", name, EXECUTORS)
    if not 1 <= num_envs <= _MAX_ENVS:
        raise UsageError(f"--num-envs is {num_envs}: give 1 to {_MAX_ENVS}")
    if ray_address is not None and name != "ray":
        raise UsageError(
            f"--ray-address {ray_address} is for --executor ray, and this is {name}; leave it out"
        )
    if name == "serial":
        _refuse_with_serial(
            {"num_envs": num_envs if num_envs > 1 else None, "episode_timeout": episode_timeout}
        )
        return SERIAL
    if episode_timeout is not None and not 0 < episode_timeout <= _LONGEST_S:
        raise UsageError(f"--episode-timeout is {episode_timeout:g}: give seconds, above 0 to {_LONGEST_S}")
    timeout_s = episode_timeout or TIMEOUT_S
    if name == "ray":
        return _ray_cluster(num_envs, timeout_s, ray_address or "auto")
    check_memory(num_envs, option="--num-envs", each_mb=WORLD_MB)
    return Processes(num_envs=num_envs, timeout_s=timeout_s)


def _ray_cluster(num_envs: int, timeout_s: float, address: str) -> Executor:
    if address == "local":
        check_memory(num_envs, option="--num-envs", each_mb=WORLD_MB)
    from eval.rollout.executors.ray import RayCluster, connect  # the package ray is optional

    connect(address, worlds=num_envs)
    return RayCluster(num_envs=num_envs, timeout_s=timeout_s)


def _refuse_with_serial(given: Mapping[str, Any]) -> None:
    for option, value in given.items():
        if value is not None:
            raise UsageError(
                f"{format_option(option, value)} needs worker processes, and executor serial runs one world "
                "in this process; leave it out, or add --executor processes"
            )


def batch_size_for(num_envs: int) -> int:
    """Default batch size: half of the worlds, so that physics of one half overlaps the model of the other."""
    return max(1, -(-num_envs // 2))
