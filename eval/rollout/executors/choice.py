"""Chooses the executor of an evaluation, and its batch size."""

from configs.cli import format_option
from configs.schema import ExecutionConfig
from contracts.errors import UsageError
from eval.rollout.executors.executor import SERIAL, Executor, Processes, idle_workers
from sim_envs.workers import TIMEOUT_S, check_memory


def choose_executor(config: ExecutionConfig) -> Executor:
    """The executor of an evaluation.

    Raises:
        UsageError: The executor supports one world only, an option is for another one, memory is too small,
            or the cluster is not found.
        ModuleNotFoundError: Ray is not installed.
    """
    num_envs, episode_timeout, ray_address = config.num_envs, config.episode_timeout, config.ray_address
    name = config.executor or ("serial" if num_envs == 1 else "processes")
    if ray_address is not None and name != "ray":
        raise UsageError(
            f"--ray-address {ray_address} is for --executor ray, and this is {name}; leave it out"
        )
    if name == "serial":
        useless = {"num_envs": num_envs if num_envs > 1 else None, "episode_timeout": episode_timeout}
        for option, value in useless.items():
            if value is not None:
                raise UsageError(
                    f"{format_option(option, value)} needs worker processes, and executor serial runs one "
                    "world in this process; leave it out, or add --executor processes"
                )
        return SERIAL
    if name == "ray" and config.query_timeout is not None:
        raise UsageError(
            f"--query-timeout {config.query_timeout:g} has no effect with executor ray; leave it out, or "
            "give --episode-timeout, which ends the episode of a hanging query"
        )
    timeout_s = episode_timeout or TIMEOUT_S
    if name == "processes" or ray_address == "local":
        check_memory(num_envs, idle=len(idle_workers()))
    if name == "processes":
        return Processes(num_envs=num_envs, timeout_s=timeout_s)
    from eval.rollout.executors.ray import RayCluster, connect  # the package ray is optional

    connect(ray_address or "auto", worlds=num_envs)
    return RayCluster(num_envs=num_envs, timeout_s=timeout_s)


def batch_size_for(num_envs: int) -> int:
    """Default batch size: half of the worlds, so that physics of one half overlaps the model of the other."""
    return max(1, -(-num_envs // 2))
