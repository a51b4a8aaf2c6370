"""A π0.5 of a few thousand parameters: the same code as the real one, compiled in seconds."""

import dataclasses
import functools
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import flax.traverse_util
import numpy as np
import pytest
import sentencepiece

from contracts.mode import Mode
from contracts.text import Reply
from oxygen.model.config import GemmaConfig, Pi05Config, SiglipConfig
from oxygen.policy.vector_policy import VectorPolicy, create_vector_policy
from oxygen.robots import tokenizer
from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.language import EveryN, LanguageTask
from oxygen.serving.scheduler import FixedTokens
from oxygen.weights.adapter import AdapterSource

_EXPERT = GemmaConfig(width=32, depth=2, mlp_dim=64, num_heads=4, num_kv_heads=1, head_dim=8)

SMALL = Pi05Config(
    name="small-for-tests",
    siglip=SiglipConfig(width=16, depth=1, mlp_dim=32, num_heads=2, patch=14),
    trunk=_EXPERT,
    expert=_EXPERT,
    vocab_size=768,
    cameras=("image", "wrist_image"),
    image_size=28,
    prompt_buckets=(24,),
)

TASKS = (
    LanguageTask(name="narration", prompt="Narrate: ", max_tokens=11, priority=1),
    LanguageTask(name="memory", prompt="Remember: it", arrivals=EveryN(3), max_tokens=17),
)


def small_policy(
    engine: EngineConfig | None = None,
    *,
    config: Pi05Config = SMALL,
    tasks: Sequence[LanguageTask] = TASKS,
    adapter: AdapterSource | None = None,
) -> VectorPolicy:
    vocabulary = tokenizer.tiny()
    return create_vector_policy(
        config, weights=0, tokenizer=vocabulary, tasks=tasks, engine=engine, adapter=adapter
    )


def flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    return flax.traverse_util.flatten_dict(tree, sep="/")


def answered(policy: VectorPolicy, *observations: Mapping[str, Any]) -> tuple[np.ndarray, Reply]:
    """Actions and reply of the first robot, in a query with an observation of each robot."""
    return policy.act(dict(enumerate(observations)))[0], policy.complete()[0]


class OneRobot:
    """Passes everything on to a policy for one robot."""

    def __init__(self, policy):
        self._policy = policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def with_engine(self, engine, **tasks):
        return OneRobot(self._policy.with_engine(engine, **tasks))

    def reset(self, episode_seed: int):
        self._policy.reset(0, episode_seed)

    def act(self, observation):
        return self._policy.act({0: observation})[0]

    def complete(self):
        return self._policy.complete().get(0)

    def finish(self):
        return self._policy.finish(0)


@pytest.fixture(scope="session")
def one_robot() -> OneRobot:
    """A policy in mode `unified`, 3 tokens a frame. Tests that need another mode ask it for that."""
    engine = EngineConfig(mode=Mode.UNIFIED, budget=FixedTokens(3), slots=10, rows=8)
    return OneRobot(small_policy(engine))


@pytest.fixture(scope="session")
def policy(one_robot: OneRobot) -> OneRobot:
    return one_robot


@pytest.fixture(scope="session")
def in_mode(one_robot: OneRobot) -> Callable[[Mode], OneRobot]:
    """The same policy in any mode, on the same programs; a second process is started once, for `parallel`."""

    @functools.cache
    def served(mode: Mode) -> OneRobot:
        return one_robot.with_engine(dataclasses.replace(one_robot.engine, mode=mode))

    return served


@pytest.fixture(scope="session")
def observe() -> Callable[[int], Mapping[str, Any]]:
    """Makes an observation out of a number, always the same one."""

    def observation(number: int) -> Mapping[str, Any]:
        rng = np.random.default_rng(number)
        images = {camera: rng.integers(0, 256, (64, 48, 3), dtype=np.uint8) for camera in SMALL.cameras}
        prompt = f"put the mug on plate {number // 9}"
        return {"images": images, "state": rng.normal(size=8), "prompt": prompt}

    return observation


@pytest.fixture(scope="session")
def openpi_transforms(golden: Path) -> dict[str, np.ndarray]:
    """What openpi makes of images, prompts and numbers."""
    with np.load(golden / "openpi_transforms.npz") as file:
        return dict(file)


@pytest.fixture(scope="session")
def other_vocabulary() -> tokenizer.SentencePieceTokenizer:
    """A vocabulary of three letters, without tokens of bytes."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["abc"]), model_writer=model, vocab_size=7, minloglevel=2
    )
    return tokenizer.SentencePieceTokenizer(model.getvalue())
