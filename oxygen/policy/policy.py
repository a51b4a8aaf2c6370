"""The policy that an evaluation loop or a robot talks to: observations in, actions and finished texts out."""

from collections.abc import Mapping, Sequence
from typing import Any

from configs.errors import UsageError
from oxygen.model.config import Pi05Config
from oxygen.policy.build import create_vector_policy
from oxygen.policy.reply import Answer, Reply, Tail
from oxygen.policy.vector_policy import Parts, VectorPolicy
from oxygen.robots.tokenizer import Tokenizer
from oxygen.robots.transforms import Transform
from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.language import LanguageTask
from oxygen.serving.runner import Runner
from oxygen.weights.source_of import WeightsSource

__all__ = ["Answer", "EngineConfig", "OxyGenPolicy", "Reply", "Tail", "create_policy"]


class OxyGenPolicy:
    """π0.5 for one robot: a `VectorPolicy` of one, without its brackets.

    Actions are the same bits in every mode; texts may differ between modes where two tokens score almost
    alike, see `VectorPolicy`.

    `infer` answers a query in one go. A robot that wants its actions before the language of the query is done
    calls `act` and moves; the reply comes with the next `act`, or with `settle`.
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
    def parts(self) -> Parts:
        """What it is made of."""
        return self._policy.parts

    @property
    def runner(self) -> Runner:
        """Its compiled programs, which hold no state of an episode."""
        return self._policy.runner

    @property
    def transform(self) -> Transform:
        """The robot's way in and out; its embodiment says what the numbers mean."""
        return self._policy.transform

    @property
    def compiles_after_warm_up(self) -> int:
        """Compilations since the policy's programs were ready, in all its processes; should stay 0."""
        return self._policy.compiles_after_warm_up

    def served(self, engine: EngineConfig) -> "OxyGenPolicy":
        """The same policy served otherwise, on the same weights and the very same compiled programs.

        Raises:
            UsageError: `engine` wants more than the programs were compiled for.
        """
        return OxyGenPolicy(self._policy.served(engine))

    def reset(self, episode_seed: int) -> None:
        """Begin an episode; see `VectorPolicy.reset`."""
        self._policy.reset(0, episode_seed)

    def act(self, observation: Mapping[str, Any]) -> Answer:
        """Answer a query with its actions, as soon as they are there; see `infer`."""
        (answer,) = self._policy.act([observation])
        assert answer is not None
        return answer

    def settle(self) -> Reply:
        """Wait for the language of the query that `act` has answered, and tell what it brought.

        Raises:
            UsageError: There is no such query, or its reply has been given.
        """
        (reply,) = self._policy.settle()
        if reply is None:
            raise UsageError("no query is in progress; act() comes before settle()")
        return reply

    def infer(self, observation: Mapping[str, Any]) -> Reply:
        """Answer a query: `act` and `settle` in one.

        Args:
            observation: `images` (camera to uint8 [height, width, 3]), `state` (finite numbers), `prompt`.

        Raises:
            UsageError: The observation lacks something, or holds what the policy cannot take.
        """
        self.act(observation)
        return self.settle()

    def finish(self) -> Tail:
        """End the episode: give up the requests that are outstanding, and say which."""
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
