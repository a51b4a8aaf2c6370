"""Where worker processes have their policies from: the process that started them, or they open their own.

Imports no JAX: workers need none.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

from configs.interface import Interface
from configs.schema import LanguageTaskConfig, PolicyConfig, RunConfig
from eval.policies.base import OpenPolicy
from eval.policies.scripted import open_scripted
from eval.policies.served import ObservationBlock, ServedPolicy
from eval.policies.serving import PolicyServer
from sim_envs.worker_process import Line


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicySource:
    """Where the workers have the policy of one arm from. It is sent to them.

    Attributes:
        arm: Index of the arm.
        policy: The policy's preset.
        tasks: The texts wanted of it.
        config: The arm.
        interface: The conventions of a policy that is served.
        blocks: The shared memory of every worker by name; empty if the workers open the policy themselves.
    """

    arm: int
    policy: PolicyConfig
    tasks: tuple[LanguageTaskConfig, ...]
    config: RunConfig
    interface: Interface | None
    blocks: tuple[str, ...]

    def open(self, line: Line) -> OpenPolicy:
        """The policy in a worker."""
        if not self.blocks:
            return self._opened_here()
        assert self.interface is not None, "a policy that is served has been opened"
        block = ObservationBlock.attached(self.blocks[line.worker])
        served = ServedPolicy(line, block, self.arm, self.interface)
        return OpenPolicy(interface=self.interface, horizon=None, inputs={}, in_world=lambda *_: served)

    def _opened_here(self) -> OpenPolicy:
        if self.policy.kind == "websocket":
            from eval.policies.websocket import open_websocket  # imports the protocol's libraries

            return open_websocket(str(self.policy.target), self.policy.kwargs, notify=_unheard)
        return open_scripted(self.policy, self.tasks, self.config)


def _unheard(line: str) -> None:
    """What a worker waits for is waited for by all, and told once, when the evaluation begins."""
    del line


@contextlib.contextmanager
def served(
    preset: PolicyConfig,
    tasks: tuple[LanguageTaskConfig, ...],
    arms: Sequence[tuple[RunConfig, OpenPolicy]],
    interfaces: Sequence[Interface],
    *,
    worlds: int,
) -> Iterator[tuple[PolicyServer, tuple[PolicySource, ...]]]:
    """What answers the workers of some arms, and where they ask.

    Args:
        preset: The policy of all arms.
        tasks: The texts wanted of it.
        arms: Each with its policy. One that workers open themselves is closed here.
        interfaces: Of the suites.
        worlds: The number of workers.
    """
    with contextlib.ExitStack() as resources:
        blocks = [ObservationBlock.fitting(interfaces) for _ in range(worlds)]
        for block in blocks:
            resources.callback(block.close)
        names = tuple(block.name for block in blocks)
        for _, policy in arms:
            if not policy.groups:
                policy.close()
        sources = tuple(
            PolicySource(
                arm=arm,
                policy=preset,
                tasks=tasks,
                config=config,
                interface=policy.interface,
                blocks=names if policy.groups else (),
            )
            for arm, (config, policy) in enumerate(arms)
        )
        yield PolicyServer([policy for _, policy in arms], blocks), sources
