"""Where worker processes have their policies from: the process that started them, or they open their own.

Imports no JAX: workers need none.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence

from configs.interface import Interface
from eval.policies.base import OpenPolicy
from eval.policies.served import ObservationBlock, ServedPolicy
from eval.policies.serving import PolicyServer
from sim_envs.worker_process import WorkerConnection


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicySource:
    """Where the workers have the policy of one arm from. It is sent to them.

    Attributes:
        arm: Index of the arm.
        interface: The conventions of a policy that is served.
        blocks: The shared memory of every worker, by name.
        opener: How workers open a policy that is not served.
    """

    arm: int
    interface: Interface | None
    blocks: tuple[str, ...]
    opener: Callable[[], OpenPolicy] | None

    def open(self, connection: WorkerConnection) -> OpenPolicy:
        """The policy in a worker."""
        if self.opener is not None:
            return self.opener()
        assert self.interface is not None, "a policy that is served has been opened"
        block = ObservationBlock.attached(self.blocks[connection.worker])
        served = ServedPolicy(connection, block, self.arm, self.interface)
        return OpenPolicy(interface=self.interface, horizon=None, inputs={}, in_world=lambda *_: served)


@contextlib.contextmanager
def served(
    policies: Sequence[OpenPolicy], interfaces: Sequence[Interface], *, worlds: int
) -> Iterator[tuple[PolicyServer, tuple[PolicySource, ...]]]:
    """What answers the workers of some arms, and where they ask.

    Args:
        policies: Of the arms. One that workers open themselves is closed here.
        interfaces: Of the suites.
        worlds: The number of workers.
    """
    with contextlib.ExitStack() as resources:
        blocks = [ObservationBlock.fitting(interfaces) for _ in range(worlds)]
        for block in blocks:
            resources.callback(block.close)
        for policy in policies:
            if policy.opener is not None:
                policy.close()
        names = tuple(block.name for block in blocks)
        sources = tuple(
            PolicySource(arm=arm, interface=policy.interface, blocks=names, opener=policy.opener)
            for arm, policy in enumerate(policies)
        )
        yield PolicyServer(policies, blocks), sources
