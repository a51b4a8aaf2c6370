"""Scripted policies: the expert and two baselines (`noop`, `random`), with texts from the ground truth."""

import functools
import math
import time
from collections.abc import Sequence

import numpy as np

from configs.language_task import LanguageTaskConfig
from configs.schema import PolicyConfig, RunConfig
from contracts.episode import EpisodeKey
from contracts.latency import steps_in
from contracts.observation import Observation
from contracts.prompt import PromptField
from contracts.text import EpisodeEnd, Reply, Text
from contracts.text_source import TrueText
from eval.metrics.language import HEADLINES, ORACLE, true_text
from eval.policies.base import LoadedPolicy
from oxygen.presets.language_tasks import language_task
from sim_envs.scripted.policy import Noop, Random, ScriptedPolicy
from sim_envs.suite import Suite
from sim_envs.truth.wording import WORDINGS
from sim_envs.world import World, read_truth


def open_scripted(
    policy: PolicyConfig, tasks: Sequence[LanguageTaskConfig], config: RunConfig, *, noise: float = 0.0
) -> LoadedPolicy:
    """Open the suite's expert, whose executed actions have noise from 0 to 1, or a baseline.

    With `generates_text: truth` in its preset it writes true texts; none in mode `actions`. An expert with
    `feedback: truth:SECONDS` acts on memory of that age, which is then in its prompt.
    """
    generates_text = policy.generates_text == "truth" and config.mode != "actions"
    source = config.feedback if policy.kind == "expert" else None
    age_s = source.age_s if isinstance(source, TrueText) else None

    def in_world(suite: Suite, world: World) -> Scripted:
        written = tasks if generates_text else ()
        return Scripted(policy.kind, suite, world, noise=noise, memory_age_s=age_s or 0.0, tasks=written)

    return LoadedPolicy(
        interface=None,
        inputs={"privileged_state": True} if policy.kind == "expert" else {"nothing": True},
        in_world=in_world,
        writes_texts=generates_text,
        fields_by_task={} if age_s is None else EXPERTS_MEMORY,
        opener=functools.partial(open_scripted, policy, tasks, config, noise=noise),
    )


EXPERTS_MEMORY = {"memory": (PromptField(field="memory", format="Memory: {text}"),)}
"""The prompt of an expert that acts on memory of some age."""


class Scripted:
    """A policy of kind `expert`, `noop` or `random`, with true texts of `narration` and both memories.

    A text is written within the query that requests it. Other language tasks have no ground truth and get no
    text. The wording is a function of the episode key.
    """

    charged_ms = None

    def __init__(
        self,
        kind: str,
        suite: Suite,
        world: World,
        *,
        noise: float = 0.0,
        memory_age_s: float = 0.0,
        tasks: Sequence[LanguageTaskConfig] = (),
    ) -> None:
        self.interface = suite.interface
        self._kind, self._suite, self._world, self._noise = kind, suite, world, noise
        hz, interval = suite.protocol.control_hz, suite.protocol.replan_steps
        # In its prompt is the truth of a query, the last one that was at least so long ago.
        self._memory_age_s = math.ceil(steps_in(1e3 * memory_age_s, hz) / interval) * interval / hz
        self._tasks = [language_task(task) for task in tasks if task.name in HEADLINES]
        self._policy: ScriptedPolicy = Noop(suite.interface)
        self._seed = self._query = self._written = 0
        self._reply = Reply(timings_ms={})

    @property
    def intended(self) -> np.ndarray:
        """The actions [horizon, action] of the last query without noise."""
        return self._policy.intended

    def reset(self, key: EpisodeKey) -> None:
        """Start an episode in the current state of the world."""
        if self._kind == "expert":
            expert = self._suite.expert(self._world, noise=self._noise, memory_age_s=self._memory_age_s)
            assert expert is not None, "suites without an expert are refused before"
            self._policy = expert
        else:
            self._policy = Random(self.interface) if self._kind == "random" else Noop(self.interface)
        self._policy.reset(key)
        self._seed = key.digest()
        self._query = self._written = 0

    def act(self, observation: Observation) -> np.ndarray:
        """Compute the next chunk, and the texts of the same moment."""
        began = time.perf_counter()
        actions = self._policy.query(observation.state)
        milliseconds = 1e3 * (time.perf_counter() - began)
        texts = self._write()
        self._reply = Reply(
            timings_ms={"action": milliseconds, "frame": milliseconds},
            requested=tuple(text.request for text in texts),
            finished=texts,
        )
        return actions

    def complete(self) -> Reply:
        """The texts of the query."""
        return self._reply

    def finish(self) -> EpisodeEnd:
        """See `Policy`; no text is unfinished."""
        return EpisodeEnd()

    def _write(self) -> tuple[Text, ...]:
        due = [task.name for task in self._tasks for _ in task.arrivals.due(self._seed, self._query)]
        truth = read_truth(self._world)[0] if due else None
        texts = (
            [] if truth is None else [(task, true_text(task, truth, self._seed % WORDINGS)) for task in due]
        )
        written = [(task, text) for task, text in texts if text is not None]
        first, query = self._written, self._query
        self._written, self._query = first + len(written), query + 1
        return tuple(
            Text(
                task=task,
                request_id=first + number,
                requested_query=query,
                finished_query=query,
                text=text,
                tokens=0,
                reason=ORACLE,
                latency_ms=0.0,
            )
            for number, (task, text) in enumerate(written)
        )
