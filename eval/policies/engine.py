"""Vision-language-action models behind the serving engine, as policies of a rollout."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from configs.schema import RunConfig
from contracts.episode import EpisodeKey
from contracts.interface import Interface
from contracts.observation import Observation
from contracts.text import EpisodeEnd, Reply
from eval.policies.base import BatchSlot, LoadedPolicy
from eval.policies.resolved import ResolvedPolicy
from oxygen.model.compile_cache import use_compile_cache
from oxygen.policy.vector_policy import VectorPolicy
from oxygen.presets.language_tasks import language_task
from oxygen.presets.loading import load_policy
from oxygen.robots.transforms import Prediction
from oxygen.serving.engine_config import EngineConfig, ample_slots, texts_in_progress
from oxygen.serving.language import LanguageTask
from oxygen.serving.scheduler import Budget, Deadline, FixedTokens


def open_engine(
    resolved: ResolvedPolicy, variants: Sequence[RunConfig], *, worlds: int = 1
) -> list[LoadedPolicy]:
    """Load a model once, and serve it in every variant.

    Prefill and denoise are compiled once, fork and decode for every combination of tokens per frame and text
    rate among the variants, so that a variant is served as if it were the only one. `worlds` is the number of
    parallel episodes, divided into groups of the batch size, which all variants share. Refuses a checkpoint
    that is not available, or another model's.
    """
    use_compile_cache()
    interface = resolved.interface
    assert interface is not None, "only a policy with a model is served"
    first: VectorPolicy | None = None
    guided = any(variant.overlap == "rtc" for variant in variants)  # all share the denoise programs
    opened: dict[int, LoadedPolicy] = {}
    for sharing in _sharing_programs(variants):
        group = [variants[place] for place in sharing]
        speaking = next((variant for variant in group if variant.mode != "actions"), group[0])
        tasks = [language_task(task) for task in resolved.tasks_of(speaking)]
        engine = dataclasses.replace(engine_for(tasks, [speaking, *group]), guided=guided)
        if first is None:
            dtype, random = group[0].dtype, group[0].random_weights
            policy = first = load_policy(
                resolved.policy, tasks=tasks, engine=engine, dtype=dtype, random_weights=random
            )
        else:
            policy = first.with_tasks(tasks, engine)
        robot = policy.transform.embodiment
        inputs = {"prompt": robot.prompt.template, "cameras": list(interface.observation.camera_names)}
        inputs["absent_cameras"] = "dropped"
        if robot.predicts is not Prediction.ACTIONS:
            inputs["predicts"] = robot.predicts.value
        unused = [policy]  # serves one group, of its own engine
        served: list[tuple[EngineConfig, list[EnginePolicy]]] = []
        for place, variant in zip(sharing, group, strict=True):
            config = dataclasses.replace(engine, mode=variant.mode, budget=_budget(variant))
            # Equal engines share the group of a single world.
            groups = next((those for same, those in served if worlds == 1 and same == config), None) or [
                EnginePolicy(
                    unused.pop() if unused and config == policy.engine else policy.with_engine(config)
                )
                for _ in range(math.ceil(worlds / config.robots))
            ]
            served.append((config, groups))
            opened[place] = LoadedPolicy(
                interface=interface,
                inputs=inputs,
                in_world=_first_row(groups, interface),
                groups=groups,
                writes_texts=bool(tasks) and variant.mode != "actions",
                reports_work=True,
            )
    return [opened[place] for place in range(len(variants))]


def _first_row(groups: "Sequence[EnginePolicy]", interface: Interface) -> Callable[..., BatchSlot]:
    return lambda *_: BatchSlot(groups[0], interface)


def _sharing_programs(variants: Sequence[RunConfig]) -> list[list[int]]:
    """Indices of the variants, grouped by compiled programs; variants without texts join the first group."""
    shared: dict[tuple[int, int | None], list[int]] = {}
    for place, variant in enumerate(variants):
        if variant.mode != "actions":
            shared.setdefault((variant.tokens_per_frame, variant.text_every), []).append(place)
    silent = [place for place, variant in enumerate(variants) if variant.mode == "actions"]
    first, *others = shared.values() or [[]]
    return [sorted([*silent, *first]), *others]


class EnginePolicy:
    """A vision-language-action model behind the engine, as a `BatchPolicy`."""

    def __init__(self, policy: VectorPolicy) -> None:
        self._policy = policy

    def reset(self, row: int, key: EpisodeKey) -> None:
        """See `BatchPolicy`."""
        self._policy.reset(row, key.digest())

    def act(self, observations: Mapping[int, Observation]) -> dict[int, np.ndarray]:
        """See `BatchPolicy`."""
        return self._policy.act(
            {
                row: {
                    "images": seen.images,
                    "state": seen.state,
                    "prompt": seen.language,
                    "action_prefix": seen.action_prefix,
                }
                for row, seen in observations.items()
            }
        )

    def complete(self) -> dict[int, Reply]:
        """See `BatchPolicy`."""
        return self._policy.complete()

    def finish(self, row: int) -> EpisodeEnd:
        """See `BatchPolicy`."""
        return self._policy.finish(row)


def engine_for(tasks: Sequence[LanguageTask], variants: Sequence[RunConfig]) -> EngineConfig:
    """The engine configuration of the first variant, with programs large enough for all of them.

    With a fixed number of tokens per frame every running text has a row. With a deadline a frame may decode
    fewer tokens, so there are more slots than rows, in which texts wait.
    """
    first = variants[0]
    rows = texts_in_progress(tasks, first.tokens_per_frame)
    waiting = any(variant.deadline_ms is not None for variant in variants)
    slots = ample_slots(tasks=len(tasks), rows=rows) if waiting else rows
    return EngineConfig(
        mode=first.mode,
        budget=_budget(first),
        slots=slots,
        rows=rows,
        robots=first.batch_size,
        int8_decode=first.decode_weights == "int8",
    )


def _budget(config: RunConfig) -> Budget:
    return (
        FixedTokens(config.tokens_per_frame) if config.deadline_ms is None else Deadline(config.deadline_ms)
    )
