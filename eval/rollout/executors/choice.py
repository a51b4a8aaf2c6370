"""The executor that the command line asks for."""

from collections.abc import Mapping
from typing import Any

from configs.cli import spelt
from configs.errors import UsageError, unknown
from eval.rollout.executors.executor import Executor
from eval.rollout.executors.processes import Processes
from eval.rollout.executors.serial import SERIAL
from sim_envs.memory import WORLD_MB, check_memory
from sim_envs.workers import TIMEOUT_S

EXECUTORS = ("serial", "processes", "ray")


def choose_executor(
    *,
    num_envs: int = 1,
    executor: str | None = None,
    episode_timeout: float | None = None,
    ray_address: str | None = None,
) -> Executor:
    """The executor of an evaluation.

    Args:
        num_envs: Worlds that are played at once.
        executor: Its name; `serial` for one world and `processes` for several if None.
        episode_timeout: Seconds after which an episode counts as hung; an hour if None.
        ray_address: The cluster of executor `ray`; the one that this machine belongs to if None.

    Raises:
        UsageError: There is no such executor, it does not play so many worlds, or memory does not hold them;
            Ray is not installed, or there is no such cluster.
    """
    name = executor or ("serial" if num_envs == 1 else "processes")
    if name not in EXECUTORS:
        raise unknown("executor", name, EXECUTORS)
    if num_envs < 1:
        raise UsageError(f"--num-envs is {num_envs}: give 1 or more")
    if ray_address is not None and name != "ray":
        raise UsageError(
            f"--ray-address {ray_address} is for --executor ray, and this is {name}; leave it out"
        )
    if name == "serial":
        _refuse_with_serial(
            {"num_envs": num_envs if num_envs > 1 else None, "episode_timeout": episode_timeout}
        )
        return SERIAL
    if episode_timeout is not None and not episode_timeout > 0:
        raise UsageError(f"--episode-timeout is {episode_timeout:g}: give seconds, more than 0")
    timeout_s = episode_timeout or TIMEOUT_S
    if name == "ray":
        return _ray_cluster(num_envs, timeout_s, ray_address or "auto")
    check_memory(num_envs, option="--num-envs", each_mb=WORLD_MB)
    return Processes(num_envs=num_envs, timeout_s=timeout_s)


def _ray_cluster(num_envs: int, timeout_s: float, address: str) -> Executor:
    if address == "local":
        check_memory(num_envs, option="--num-envs", each_mb=WORLD_MB)
    try:
        from eval.rollout.executors.ray import RayCluster, connect
    except ModuleNotFoundError as missing:
        if missing.name != "ray":
            raise
        raise UsageError(
            "executor ray needs a package that is not installed: run uv pip install 'oxygen-eval[ray]'"
        ) from None
    connect(address, worlds=num_envs)
    return RayCluster(num_envs=num_envs, timeout_s=timeout_s)


def _refuse_with_serial(given: Mapping[str, Any]) -> None:
    for option, value in given.items():
        if value is not None:
            raise UsageError(
                f"{spelt(option, value)} is for worlds in processes of their own, and executor serial plays "
                "one in this process; leave it out, or add --executor processes"
            )


def batch_size_for(num_envs: int) -> int:
    """The batch of two groups that take turns: the model is at one while the worlds of the other go on."""
    return max(1, -(-num_envs // 2))
