"""Policies of workers: served by the parent process, or loaded in the worker. Imports no JAX."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence

from configs.feedback import FeedbackByTask
from configs.interface import Interface
from eval.policies.base import LoadedPolicy
from eval.policies.served import IN_MESSAGES, ObservationBlock, PolicyProxy
from eval.policies.serving import PolicyServer
from sim_envs.worker_process import WorkerConnection


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicySource:
    """Opens the policy of one variant in a worker. Pickled and sent to workers.

    Attributes:
        variant: Index of the variant.
        interface: Conventions of a served policy.
        blocks: Names of the shared memory of each worker; empty if observations travel in messages.
        opener: Loads a policy that is not served.
        feedback: See `LoadedPolicy`.
    """

    variant: int
    interface: Interface | None
    blocks: tuple[str, ...]
    opener: Callable[[], LoadedPolicy] | None
    feedback: FeedbackByTask

    def open(self, connection: WorkerConnection) -> LoadedPolicy:
        """The policy in a worker."""
        if self.opener is not None:
            return dataclasses.replace(self.opener(), feedback=self.feedback)
        assert self.interface is not None, "a policy that is served has been opened"
        observations = (
            ObservationBlock.attached(self.blocks[connection.worker]) if self.blocks else IN_MESSAGES
        )
        served = PolicyProxy(connection, observations, self.variant, self.interface)
        return LoadedPolicy(
            interface=self.interface,
            horizon=None,
            inputs={},
            in_world=lambda *_: served,
            feedback=self.feedback,
        )


@contextlib.contextmanager
def served(
    policies: Sequence[LoadedPolicy], interfaces: Sequence[Interface], *, worlds: int
) -> Iterator[tuple[PolicyServer, tuple[PolicySource, ...]]]:
    """A server for the policies of all variants, and the sources for the workers.

    Args:
        policies: One per variant. Policies that workers load themselves are closed here.
        interfaces: Conventions of the suites.
        worlds: Number of workers.
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
            PolicySource(
                variant=variant,
                interface=policy.interface,
                blocks=names,
                opener=policy.opener,
                feedback=policy.feedback,
            )
            for variant, policy in enumerate(policies)
        )
        yield PolicyServer(policies, blocks), sources
