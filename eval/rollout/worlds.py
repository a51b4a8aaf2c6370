"""Keeps the simulator of a process open for all episodes of its task."""

from typing import Self

from configs.errors import UsageError
from eval.rollout.plan import TaskPlan
from sim_envs.world import World


class WorldCache:
    """Keeps at most one world open, since a simulator and its renderer hold hundreds of megabytes."""

    def __init__(self) -> None:
        self._open: tuple[str, int] | None = None
        self._world: World | None = None

    def of(self, plan: TaskPlan) -> World:
        """The world of a task; replaces the open one if it is another.

        Raises:
            UsageError: It cannot be opened, or lacks a method of `World`.
        """
        if self._world is None or self._open != plan.world:
            self.discard()
            self._world = _complete(plan.suite.open(plan.task), plan.task.suite)
            self._open = plan.world
        return self._world

    def discard(self) -> None:
        """Close the open world; the next episode opens a new one."""
        world, self._world = self._world, None
        if world is not None:
            world.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


def _complete(world: World, suite: str) -> World:
    methods = [name for name in vars(World) if not name.startswith("_")]
    if lacking := [f"{name}()" for name in methods if not callable(getattr(world, name, None))]:
        raise UsageError(
            f"the world of {suite} lacks {' and '.join(lacking)} of sim_envs.world.World; add what is missing"
        )
    return world
