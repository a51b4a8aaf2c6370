"""A contender on the engine: asks a policy query after query, and notes what each took and brought."""

import hashlib
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from eval.bench.measurement import Query, Run, Text
from eval.bench.workloads import Contender
from oxygen.model.config import Pi05Config
from oxygen.policy.reply import Reply, TextTimes
from oxygen.policy.vector_policy import VectorPolicy
from oxygen.typing import Float64

Actions = Float64[np.ndarray, "horizon action"]

_DIFFERENT = 4  # observations that follow each other in turn


class PolicyLane:
    """Queries without end, of robots that see random images."""

    def __init__(
        self, contender: Contender, policy: VectorPolicy, observations: Iterator[Sequence[Mapping[str, Any]]]
    ) -> None:
        self._contender = contender
        self._policy = policy
        self._observations = observations
        self._turns: list[tuple[float, float]] = []
        self._compiles = 0
        for robot in range(policy.engine.robots):
            policy.reset(robot, robot)

    @property
    def contender(self) -> Contender:
        """What runs here."""
        return self._contender

    @property
    def compiles_after_warm_up(self) -> int:
        """Compilations while it ran, in all its processes; others' while they ran are not among them."""
        return self._compiles

    def run(self, queries: int) -> Run:
        """Answer as many queries, each as soon as the one before is settled."""
        compiled_before = self._policy.compiles_after_warm_up
        answers: list[tuple[float, Sequence[Actions], Sequence[Reply]]] = []
        first = began = time.perf_counter()
        for observations in itertools.islice(self._observations, queries):
            actions = [chunk for chunk in self._policy.act(observations) if chunk is not None]
            replies = [reply for reply in self._policy.settle() if reply is not None]
            now = time.perf_counter()
            answers.append((1e3 * (now - began), actions, replies))
            began = now
        self._turns.append((first, began))
        self._compiles += self._policy.compiles_after_warm_up - compiled_before
        return [self._query(*answer) for answer in answers]

    def _query(self, frame_ms: float, actions: Sequence[Actions], replies: Sequence[Reply]) -> Query:
        """One query of all robots, who share its times."""
        finished = [text for reply in replies for text in reply.finished]
        return Query(
            actions_sha256=hashlib.sha256(b"".join(chunk.tobytes() for chunk in actions)).hexdigest(),
            action_ms=replies[0].timings_ms["action"],
            frame_ms=frame_ms,
            tokens=sum(reply.tokens for reply in replies),
            decode_steps=max(reply.tokens_per_frame for reply in replies),
            born=sum(len(reply.requested) for reply in replies),
            dropped=sum(len(reply.dropped) for reply in replies),
            finished=[self._text(text.times) for text in finished if text.times is not None],
        )

    def _text(self, times: TextTimes) -> Text:
        return Text(
            first_token_ms=1e3 * self._ran_s(times.requested_s, times.first_token_s),
            request_ms=1e3 * self._ran_s(times.requested_s, times.finished_s),
        )

    def _ran_s(self, since: float, until: float) -> float:
        """How much of a stretch of time this contender ran in: a text may live through others' turns."""
        return sum(max(0.0, min(until, end) - max(since, start)) for start, end in self._turns)


def random_observations(
    config: Pi05Config, robots: int, state_size: int, prompt: str
) -> Iterator[Sequence[Mapping[str, Any]]]:
    """What the robots see, in turn and without end; images of the model's size, so that none is resized."""
    random = np.random.default_rng(0)
    shape = (config.image_size, config.image_size, 3)
    queries = [
        [
            {
                "images": {
                    camera: random.integers(0, 256, shape, dtype=np.uint8) for camera in config.cameras
                },
                "state": random.uniform(-1, 1, state_size),
                "prompt": prompt,
            }
            for _ in range(robots)
        ]
        for _ in range(_DIFFERENT)
    ]
    return itertools.cycle(queries)
