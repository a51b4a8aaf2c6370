"""The policy for one robot: observations in, actions and finished texts out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from configs.errors import UsageError
from oxygen.model.config import Pi05Config
from oxygen.policy.factory import create_vector_policy
from oxygen.policy.reply import Reply, Tail
from oxygen.policy.vector_policy import PolicyParts, VectorPolicy
from oxygen.robots.tokenizer import Tokenizer
from oxygen.robots.transforms import Transform
from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.language import LanguageTask
from oxygen.serving.runner import Runner
from oxygen.typing import Float64
from oxygen.weights.weights_source import WeightsSource

__all__ = ["EngineConfig", "OxyGenPolicy", "Reply", "Tail", "create_policy"]


class OxyGenPolicy:
    """π0.5 for one robot: a `VectorPolicy` of one robot, without the sequences.

    Actions are equal to the bit in every mode; texts may differ where two tokens are almost equally likely,
    see `VectorPolicy`.

    A query is one `act`, which returns the actions as soon as they are ready, then one `settle`, which
    returns the rest. The caller may do something else in between; stage times do not include it.
    """

    def __init__(self, policy: VectorPolicy) -> None:
        if policy.engine.robots != 1:
            raise UsageError(f"{policy.engine.robots} robots; for more than one use create_vector_policy()")
        self._policy = policy

    @property
    def engine(self) -> EngineConfig:
        """How the policy is served."""
        return self._policy.engine

    @property
    def parts(self) -> PolicyParts:
        """The components of the policy."""
        return self._policy.parts

    @property
    def runner(self) -> Runner:
        """Its compiled programs, without episode state."""
        return self._policy.runner

    @property
    def transform(self) -> Transform:
        """Conversion of the robot's observations and actions."""
        return self._policy.transform

    @property
    def compiles_after_warm_up(self) -> int:
        """Compilations since the policy's programs were ready, in all its processes; should stay 0."""
        return self._policy.compiles_after_warm_up

    def with_engine(self, engine: EngineConfig) -> "OxyGenPolicy":
        """The same policy with another engine configuration, sharing weights and compiled programs.

        Raises:
            UsageError: `engine` exceeds the compiled programs.
        """
        return OxyGenPolicy(self._policy.with_engine(engine))

    def reset(self, episode_seed: int) -> None:
        """Start an episode; see `VectorPolicy.reset`."""
        self._policy.reset(0, episode_seed)

    def act(self, observation: Mapping[str, Any]) -> Float64[np.ndarray, "horizon action"]:
        """Return the actions of a query, in the robot's units, as soon as they are ready.

        Args:
            observation: `images` (camera to uint8 [height, width, 3]), `state` (finite numbers), `prompt`.

        Raises:
            UsageError: The observation is incomplete or invalid, or the previous query has not been settled.
        """
        (actions,) = self._policy.act([observation])
        assert actions is not None
        return actions

    def settle(self) -> Reply:
        """Wait for the texts of the current query and return its reply.

        Raises:
            UsageError: No query is in progress.
        """
        (reply,) = self._policy.settle()
        if reply is None:
            raise UsageError("no query is in progress; act() comes before settle()")
        return reply

    def finish(self) -> Tail:
        """End the episode: settle its query and cancel its active requests."""
        return self._policy.finish(0)

    def close(self) -> None:
        """End the second process of mode `parallel`; the other modes have none."""
        self._policy.close()


def create_policy(
    config: Pi05Config,
    *,
    weights: WeightsSource,
    tokenizer: Tokenizer,
    tasks: Sequence[LanguageTask] = (),
    engine: EngineConfig | None = None,
    transform: Transform | None = None,
) -> OxyGenPolicy:
    """Build a policy for one robot and compile its programs; see `create_vector_policy`."""
    return OxyGenPolicy(
        create_vector_policy(
            config, weights=weights, tokenizer=tokenizer, tasks=tasks, engine=engine, transform=transform
        )
    )
