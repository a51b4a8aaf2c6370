"""Protocols of published LIBERO runners by name, such as `openpi`: what each changes in a suite's own."""

from collections.abc import Mapping
from typing import Any, Literal

from configs.profile import Line
from configs.schema import (
    CHUNK,
    Count,
    EnvSeedOption,
    InitialStates,
    Name,
    Pixels,
    Preset,
    SettleGripper,
    SettleSteps,
    SuiteConfig,
)
from contracts.errors import UsageError


class ProtocolConfig(Preset):
    """How a published runner plays LIBERO. What belongs to a policy's adapter is not part of it.

    Attributes:
        name: Its name.
        source: The code in which it was read.
        max_steps: Suite to its step limit; the protocol covers no other suites.
        settle_steps: Control steps before the first query.
        settle_gripper: Command of the gripper in these.
        trials_per_task: Episodes per task. A suite with fewer keeps its own number.
        initial_states: Where initial states come from.
        env_seed: Seeding of the environment; without a number, the runner leaves it free.
        replan_steps: Control steps between two queries: a number, one for each suite, or `chunk`, all actions
            of an answer.
        camera_size: Height and width of rendered images, pixels.
        errors: Whether the runner counts an episode's error as a failure, or stops at it.
        elsewhere: What the runner does that cannot be expressed here; empty if nothing is known.
    """

    name: Name
    source: Line
    max_steps: dict[Name, Count]
    settle_steps: SettleSteps
    settle_gripper: SettleGripper = "open"
    trials_per_task: Count
    initial_states: InitialStates = "stored"
    env_seed: EnvSeedOption
    replan_steps: Count | dict[Name, Count] | Literal["chunk"]
    camera_size: Pixels
    errors: Literal["failure", "abort"]
    elsewhere: str = ""

    @property
    def plays_chunks(self) -> bool:
        """Whether all actions of an answer are executed before the next query."""
        return self.replan_steps == CHUNK

    def fields_of(self, suite: SuiteConfig) -> dict[str, Any]:
        """The fields of the suite's protocol that this one sets; a UsageError if it does not cover the suite.

        `replan_steps` is not among them where the policy decides it.
        """
        base = suite.base or suite.name
        if base not in self.max_steps:
            raise UsageError(
                f"protocol {self.name} is for {', '.join(self.max_steps)}, and {suite.name} has its own; "
                "leave out --protocol, or choose one of these suites"
            )
        replan = self.replan_steps
        every = replan[base] if isinstance(replan, Mapping) else replan
        return {
            "max_steps": self.max_steps[base],
            "settle_steps": self.settle_steps,
            "settle_gripper": self.settle_gripper,
            "trials_per_task": min(self.trials_per_task, suite.trials_per_task),
            "initial_states": self.initial_states,
            "env_seed": self.env_seed,
            "camera_size": self.camera_size,
            **({} if every == CHUNK else {"replan_steps": every}),
        }
