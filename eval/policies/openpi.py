"""Policies that take observations in openpi's keys and return `{"actions": …}`, in process or remote."""

import dataclasses
import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from contracts.episode import EpisodeKey
from contracts.errors import UsageError, unknown
from contracts.interface import Interface, as_image_size
from contracts.observation import Observation
from contracts.prompt import INSTRUCTION, FieldsByTask, cleaned, prompt_fields, write_answer
from contracts.text import EpisodeEnd, Reply, Text
from eval.policies.base import BadAnswerError, LoadedPolicy, Policy, numeric_actions
from oxygen.robots.images import RESIZES
from oxygen.robots.openpi_keys import ACTION_PREFIX, DELAY_STEPS, OpenpiKeys


def named(keys: OpenpiKeys, name: str, declared: Mapping[str, Any]) -> OpenpiKeys:
    """The robot's keys with the name of a policy and what it declares.

    Of `declared` count `horizon`, the number of actions in an answer; `image_resolution`, the height and
    width of its images, or None for those of the cameras; `image_resize`, how they are resized to that; and
    `action_prefix`, whether it is told what the robot executes until its answer arrives. An invalid one is
    refused.
    """
    horizon = declared.get("horizon")
    if horizon is not None and (type(horizon) is not int or horizon < 1):
        raise UsageError(f"policy {name}: its horizon is {horizon!r}; give a number of actions, at least 1")
    interface = keys.interface
    interface = dataclasses.replace(interface, name=name, horizon=horizon or interface.horizon)
    if not isinstance(wanted := declared.get("action_prefix", False), bool):
        raise UsageError(f"policy {name}: its action_prefix is {wanted!r}; give true or false")
    resize = resize_of(declared, name)
    keys = dataclasses.replace(keys, interface=interface, resize=resize, action_prefix=wanted)
    if "image_resolution" not in declared:
        return keys
    if keys.declared_sizes:
        raise UsageError(f"policy {name} declares the sizes of its cameras; leave out image_resolution")
    if (size := declared["image_resolution"]) is None:
        return dataclasses.replace(keys, image_size=None)
    size = as_image_size(size, f"image_resolution of policy {name}")
    return dataclasses.replace(keys, declared_sizes=dict.fromkeys(keys.images.values(), size))


def resize_of(declared: Mapping[str, Any], name: str) -> str:
    """How a policy declares its images to be resized; see `oxygen.robots.images.resized`."""
    resize = declared.get("image_resize", "pad")
    if resize not in RESIZES:
        raise unknown(f"image_resize of policy {name}:", resize, RESIZES)
    return str(resize)


def assumption(name: str, assumed: OpenpiKeys, fields_by_task: FieldsByTask, remedy: str) -> str:
    """The remark on a policy that declares no robot and therefore gets the suite's keys."""
    keys = f"the keys of {assumed.robot or assumed.interface.name} ({', '.join(assumed.names)})"
    if fields := [each.field for each in prompt_fields(fields_by_task)]:
        keys += f" and of its texts ({', '.join([INSTRUCTION, *fields])})"
    return f"{name} does not say which robot it is for and is shown {keys}; {remedy}"


class InferencePolicy(Protocol):
    """openpi's two methods."""

    def infer(self, obs: dict[str, Any], /) -> Mapping[str, Any]:
        """Answer an observation with a mapping that has `actions` [horizon, action]."""

    def reset(self) -> None:
        """Begin an episode."""


class OpenpiQueries:
    """The queries of one world, in openpi's keys; answers have the texts of declared prompt fields."""

    follows_mode = False  # see `LoadedPolicy`
    charged_ms: float | None = None

    def __init__(self, keys: OpenpiKeys, fields_by_task: FieldsByTask | None = None) -> None:
        self.keys = keys  # of its observations
        # Language task to the fields of later prompts that hold its texts.
        self.fields_by_task = fields_by_task or {}
        self.writes_texts = bool(self.fields_by_task)  # whether its replies may have texts
        self.number, self._written = -1, 0  # of the last query in the episode, and of texts
        self.answer: Mapping[str, Any] = {}  # to that query
        self.timings_ms: Mapping[str, float] = {}  # stages of that query until its actions

    @property
    def interface(self) -> Interface:
        """Its conventions of observations and actions."""
        return self.keys.interface

    def reset(self, key: EpisodeKey) -> None:
        """Start an episode."""
        del key
        self.number, self._written = -1, 0

    def ask(self, observation: Observation) -> dict[str, Any]:
        """The argument of `infer` for the next query."""
        self.number += 1
        return self.query(observation)

    def take(self, answer: Any, began: float, sent: float) -> np.ndarray:
        """The actions [horizon, action] of an answer; one without them is a BadAnswerError.

        `began` and `sent` are when the query began and was sent, in the time of `time.perf_counter`.
        """
        if not isinstance(answer, Mapping):
            kind = type(answer).__name__
            raise BadAnswerError(f"the policy answered with {kind}, not a dict with 'actions'")
        if "actions" not in answer:
            names = ", ".join(map(repr, answer))
            raise BadAnswerError(f"the policy's answer has no 'actions'; it has {names}")
        self.answer = answer
        actions, limits = numeric_actions(answer["actions"]), self.interface.action.limits
        if self.keys.clips and limits:
            actions = actions.clip(*limits)
        ended = time.perf_counter()
        self.timings_ms = {
            "preprocess": 1e3 * (sent - began),
            **self.stages(answer, 1e3 * (ended - sent)),
            "action": 1e3 * (ended - began),
        }
        return actions

    def query(self, observation: Observation) -> dict[str, Any]:
        """The argument of `infer` for an observation."""
        written, *earlier = (
            self.keys.write(seen.images, seen.state, observation.language)
            for seen in (observation, *observation.history)
        )
        if self.keys.action_prefix:
            written |= {ACTION_PREFIX: observation.executing, DELAY_STEPS: observation.delay_steps}
        if self.keys.history:
            written |= {"history": earlier}
        return {**written, **observation.feedback}

    def stages(self, answer: Mapping[str, Any], answer_ms: float) -> Mapping[str, float]:
        """Stages of an answer that took `answer_ms`, milliseconds; unknown in process."""
        del answer, answer_ms
        return {}

    def complete(self) -> Reply:
        """Complete the query, which ends with its actions and the fields in its answer.

        A field that is not a text is a BadAnswerError.
        """
        texts = [text for task in self.fields_by_task if (text := self._text(task)) is not None]
        return Reply(
            timings_ms={**self.timings_ms, "frame": self.timings_ms["action"]},
            requested=tuple(text.request for text in texts),
            finished=tuple(texts),
        )

    def _text(self, task: str) -> Text | None:
        """The text of a language task in the last answer, if that has any of its fields."""
        fields = self.fields_by_task[task]
        found = {each.field: self.answer[each.field] for each in fields if each.field in self.answer}
        for field, text in found.items():
            if not isinstance(text, str):
                raise BadAnswerError(f"the policy's {field!r} is {type(text).__name__}; give a text")
        if not found:
            return None
        if len(fields) > 1:  # without the labels of others, and empty if it is missing
            found = {each.field: cleaned(found.get(each.field, ""), None)[0] for each in fields}
        self._written += 1
        return Text(
            task=task,
            request_id=self._written - 1,
            requested_query=self.number,
            finished_query=self.number,
            text=write_answer(found, fields),
            tokens=0,
            reason="stop",
            latency_ms=self.timings_ms["action"],
        )

    def finish(self) -> EpisodeEnd:
        """End the episode."""
        return EpisodeEnd()


class OpenpiPolicy(OpenpiQueries):
    """A policy with openpi's two methods."""

    def __init__(
        self, policy: InferencePolicy, keys: OpenpiKeys, fields_by_task: FieldsByTask | None = None
    ) -> None:
        super().__init__(keys, fields_by_task)
        self._policy = policy

    def reset(self, key: EpisodeKey) -> None:
        """Start an episode. openpi's policies get neither its key nor a seed."""
        super().reset(key)
        self._policy.reset()

    def act(self, observation: Observation) -> np.ndarray:
        """Return a chunk of actions [horizon, action]; an answer without actions is a BadAnswerError."""
        began = time.perf_counter()
        query = self.ask(observation)
        sent = time.perf_counter()
        return self.take(self._policy.infer(query), began, sent)


def opened(policy: OpenpiPolicy, *, remark: str | None = None, **inputs: Any) -> LoadedPolicy:
    """The policy for a run: one object for all episodes. The manifest records `inputs`."""
    return described(policy, lambda *_: policy, remark=remark, **inputs)


def described(
    policy: OpenpiQueries, in_world: Callable[..., Policy], *, remark: str | None = None, **inputs: Any
) -> LoadedPolicy:
    """A policy for a run, with what its queries declare."""
    importlib.import_module("PIL.Image")  # or the first query would be timed with it
    keys, size = policy.keys, policy.keys.image_size
    sizes = {camera: list(declared) for camera, declared in keys.declared_sizes.items()}
    inputs = {"keys": list(keys.names), "image_size": sizes or (size and list(size)), **inputs}
    own_sizes = dict.fromkeys(keys.images.values(), size) if size and keys.robot else {}
    if keys.resize != "pad":
        inputs["image_resize"] = keys.resize
    if keys.history:
        inputs["history"] = keys.history
    return LoadedPolicy(
        interface=policy.interface,
        image_sizes=keys.declared_sizes or own_sizes,
        inputs=inputs,
        in_world=in_world,
        writes_texts=policy.writes_texts,
        follows_mode=policy.follows_mode,
        fields_by_task=policy.fields_by_task,
        history=keys.history,
        remark=remark,
    )
