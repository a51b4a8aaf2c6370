"""Runs one configuration on the engine and measures each query."""

import hashlib
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from eval.bench.measurement import QueryTimes, Run, TextLatency
from eval.bench.workloads import BenchConfiguration
from oxygen.model.config import Pi05Config
from oxygen.policy.reply import Reply
from oxygen.policy.vector_policy import VectorPolicy
from oxygen.typing import Float64

Actions = Float64[np.ndarray, "horizon action"]

DISTINCT_OBSERVATIONS = 4


class PolicyRunner:
    """Queries a policy with random observations.

    Attributes:
        configuration: The configuration it runs.
        compiles_after_warm_up: Compilations during its own runs, in all its processes.
    """

    def __init__(
        self,
        configuration: BenchConfiguration,
        policy: VectorPolicy,
        observations: Iterator[Sequence[Mapping[str, Any]]],
    ) -> None:
        self.configuration = configuration
        self.compiles_after_warm_up = 0
        self._policy = policy
        self._observations = observations
        self._run_intervals: list[tuple[float, float]] = []
        for robot in range(policy.engine.robots):
            policy.reset(robot, robot)

    def run(self, queries: int) -> Run:
        """Answer `queries` queries, each as soon as the previous one is complete."""
        compiled_before = self._policy.compiles_after_warm_up
        answers: list[tuple[float, Sequence[Actions], Sequence[Reply]]] = []
        first = began = time.perf_counter()
        for observations in itertools.islice(self._observations, queries):
            actions = [chunk for chunk in self._policy.act(observations) if chunk is not None]
            replies = [reply for reply in self._policy.complete() if reply is not None]
            now = time.perf_counter()
            answers.append((1e3 * (now - began), actions, replies))
            began = now
        self._run_intervals.append((first, began))
        self.compiles_after_warm_up += self._policy.compiles_after_warm_up - compiled_before
        return [self._query(*answer) for answer in answers]

    def _query(self, frame_ms: float, actions: Sequence[Actions], replies: Sequence[Reply]) -> QueryTimes:
        """One query of all robots, which share its times."""
        return QueryTimes(
            actions_sha256=hashlib.sha256(b"".join(chunk.tobytes() for chunk in actions)).hexdigest(),
            action_ms=replies[0].timings_ms["action"],
            frame_ms=frame_ms,
            tokens=sum(reply.tokens for reply in replies),
            decode_steps=max(reply.tokens_per_frame for reply in replies),
            submitted=sum(len(reply.requested) for reply in replies),
            dropped=sum(len(reply.dropped) for reply in replies),
            finished=[
                TextLatency(
                    first_token_ms=self._running_ms(times.requested_s, times.first_token_s),
                    request_ms=self._running_ms(times.requested_s, times.finished_s),
                )
                for times in (text.times for reply in replies for text in reply.finished)
                if times is not None
            ],
        )

    def _running_ms(self, since: float, until: float) -> float:
        """Milliseconds between two times in which this configuration ran, and no other."""
        return 1e3 * sum(max(0.0, min(until, end) - max(since, start)) for start, end in self._run_intervals)


def random_observations(
    config: Pi05Config, robots: int, state_size: int, prompts: Sequence[str]
) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Endless observations of the robots, with each prompt in turn; images have the model's size."""
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
        for prompt in prompts
    ]
    return itertools.cycle(queries)
