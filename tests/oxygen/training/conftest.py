"""A training of a few thousand parameters on a handful of distinct samples."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from configs.training import TrainConfig
from contracts.mode import Mode
from oxygen.model.config import PRESETS
from oxygen.policy.vector_policy import VectorPolicy, create_vector_policy
from oxygen.robots import tokenizer
from oxygen.robots.transforms import LIBERO, of_checkpoint
from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.language import EveryN, LanguageTask
from oxygen.training.batches import TrainingBatches
from oxygen.training.checkpoint import CheckpointWriter
from oxygen.training.config import TrainingConfig
from oxygen.training.samples import Samples, measure
from oxygen.weights.adapter import AdapterSource
from oxygen.weights.loading import load
from tests.oxygen.conftest import SMALL, answered

_EXPERT = dataclasses.replace(SMALL.trunk, depth=1)

MODEL = dataclasses.replace(
    SMALL,
    name="small-for-training",
    siglip=dataclasses.replace(SMALL.siglip, stem=(8,)),
    trunk=_EXPERT,
    expert=_EXPERT,
    action_dim=8,
)

DEEP = dataclasses.replace(
    MODEL, siglip=dataclasses.replace(MODEL.siglip, depth=2), trunk=SMALL.trunk, expert=SMALL.expert
)
"""Two layers each, so that first and last differ."""

TASKS = (
    LanguageTask(name="narration", prompt="Narrate: ", max_tokens=16, priority=1),
    LanguageTask(name="memory", prompt="Remember: ", arrivals=EveryN(n=2), max_tokens=24),
)

RECIPE = TrainConfig(
    data=("in memory",),
    steps=260,
    batch=8,
    text_rows=8,
    draws=4,
    learning_rate=3e-3,
    warm_up=20,
    ema=0.9,
    text_weight=0.2,
    **dict.fromkeys(("image_shift", "brightness", "contrast", "saturation", "state_noise"), 0.0),
)


def changed(options: TrainConfig, **changes: Any) -> TrainConfig:
    return TrainConfig(**{**options.model_dump(exclude_unset=True), **changes})


THINGS = ("alphabet soup", "cream cheese", "milk", "butter", "ketchup", "orange juice", "bowl", "mug")


def samples(count: int = 8, seed: int = 0, horizon: int = 12) -> Samples:
    """Frames of different colours, actions and texts; the last one's chunk is cut and it has no narration."""
    rng = np.random.default_rng(seed)
    fading = np.linspace(1.0, 0.5, horizon)[None, :, None]
    side = MODEL.image_size
    colours = rng.integers(0, 256, (count, 2, 1, 1, 3), dtype=np.uint8)
    valid = np.ones((count, horizon), bool)
    valid[-1, 4:] = False
    names = [THINGS[index % len(THINGS)] for index in range(count)]
    return Samples(
        images=(np.broadcast_to(colours, (count, 2, side, side, 3)).copy(),),
        state=rng.normal(size=(count, 8)).astype(np.float32),
        actions=(rng.uniform(-1, 1, (count, 1, 7)) * fading).astype(np.float32),
        valid=valid,
        language=tuple(f"pick up the {name}" for name in names),
        texts={
            "narration": (*(f"Grasping the {name}." for name in names[:-1]), ""),
            "memory": tuple(f"The {name} is on the table." for name in names),
        },
    )


@pytest.fixture(scope="session")
def mixture() -> Samples:
    return Samples.joined([samples(4, seed=0), samples(4, seed=1)])


def stop_at(steps: int) -> Callable[[], bool]:
    """Requests a stop after some steps, as a time limit or Ctrl-C would."""
    left = iter(range(steps - 1, -1, -1))
    return lambda: next(left, None) == 0


def bits(state: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


def by_path(tree: Any) -> dict[str, np.ndarray]:
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in paths}


def training_batches(parts=None, **changes) -> TrainingBatches:
    whole = Samples.joined(parts or (samples(8),))
    changed_training = dataclasses.replace(training(), **{"wordings": {}, **changes})
    return TrainingBatches(whole, changed_training, statistics=measure(whole, LIBERO), tokenizer=VOCABULARY)


@pytest.fixture(autouse=True)
def known_model(monkeypatch) -> None:
    """Registers the model as a preset, so that its checkpoints can be loaded by their `policy.yaml`."""
    monkeypatch.setitem(PRESETS, MODEL.name, MODEL)


def training(**recipe) -> TrainingConfig:
    return TrainingConfig(
        model=MODEL,
        embodiment="libero",
        tasks=TASKS,
        options=changed(RECIPE, **recipe),
        wordings={"pick up the milk": ("pick up the milk", "take the milk")},
    )


VOCABULARY = tokenizer.tiny()


def writer(training: TrainingConfig, mixture: Samples) -> CheckpointWriter:
    statistics, model = measure(mixture, LIBERO), VOCABULARY.serialized
    return CheckpointWriter(training=training, statistics=statistics, tokenizer=model, frames=len(mixture))


def served(checkpoint: Path, adapter: AdapterSource | None = None) -> VectorPolicy:
    """A checkpoint's policy, which says a text at once."""
    return create_vector_policy(
        MODEL,
        weights=load(checkpoint, MODEL),
        tokenizer=VOCABULARY,
        tasks=TASKS,
        engine=EngineConfig(mode=Mode.ISOLATED, slots=4, rows=1),
        transform=of_checkpoint(LIBERO, checkpoint),
        adapter=adapter,
    )


def answer(policy: VectorPolicy, part: Samples, row: int) -> tuple[np.ndarray, dict[str, str]]:
    """What a policy does and says in a frame."""
    images = dict(zip(MODEL.cameras, part.images[0][row], strict=True))
    policy.reset(0, row)
    observation = {"images": images, "state": part.state[row], "prompt": part.language[row]}
    actions, reply = answered(policy, observation)
    return actions, {text.task: text.text for text in reply.finished}
