"""Holds the one simulator a process has open: opened when first needed, kept while its task lasts."""

from typing import Self

from eval.rollout.plan import TaskPlan
from sim_envs.world import World


class WorldHolder:
    """Opens worlds one at a time, since a simulator and its renderer hold hundreds of megabytes."""

    def __init__(self) -> None:
        self._open: tuple[str, int] | None = None
        self._world: World | None = None

    def of(self, plan: TaskPlan) -> World:
        """The world of that task: the one that is open, or a new one in its place."""
        if self._world is None or self._open != plan.world:
            self.discard()
            self._world = plan.suite.open(plan.task)
            self._open = plan.world
        return self._world

    def discard(self) -> None:
        """Close what is open. The next episode gets a new world."""
        world, self._world, self._task = self._world, None, None
        if world is not None:
            world.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()
