"""From demonstrations to batches of what the model takes: normalised, tokenised, in an order of their own."""

import dataclasses
import itertools
from collections.abc import Sequence

import flax.struct
import jax
import numpy as np

from configs.errors import UsageError
from oxygen.model.config import Pi05Config
from oxygen.robots.prompts import fitted
from oxygen.robots.tokenizer import Tokenizer, check_fits
from oxygen.robots.transforms import Transform
from oxygen.serving.language import LanguageTask, stop_token
from oxygen.training.forward import TextLayout
from oxygen.training.recipe import Recipe
from oxygen.training.samples import Mixture, order
from oxygen.typing import Bool, Float32, Int32, Int64, Leaf

_ROUNDED_TO = 4
"""A stretch of text is a multiple of so many tokens, so that a few more words need no new program."""


@flax.struct.dataclass
class Batch:
    """Samples as the model takes them.

    Attributes:
        images: Pixels, [batch, camera, side, side, 3] of uint8.
        prompt: Tokens, padded to a bucket, [batch, token]; length: those that count, [batch].
        actions: In the model's units, [batch, horizon, action]; valid: which count, [batch, horizon].
        tokens: The texts of the first rows, suffix and all, side by side, [row, token].
        following: The token that comes after each, likewise; graded: where the model must know it.
    """

    images: Leaf
    prompt: Leaf
    length: Leaf
    actions: Leaf
    valid: Leaf
    tokens: Leaf
    following: Leaf
    graded: Leaf


@dataclasses.dataclass(frozen=True, kw_only=True)
class Script:
    """What a language task should say of every frame.

    Attributes:
        task: Its name.
        tokens: Suffix and text, padded, [frame, token].
        following: The token after each.
        graded: Where the model must know what follows: from the suffix's last token to the stop token.
    """

    task: str
    tokens: Int32[np.ndarray, "frame token"]
    following: Int32[np.ndarray, "frame token"]
    graded: Bool[np.ndarray, "frame token"]


def script(task: LanguageTask, texts: Sequence[str], tokenizer: Tokenizer) -> Script:
    """The tokens of a language task's texts, each as `Engine` would have it written: suffix, text, stop.

    A text longer than the task allows is learnt as far as it could be written.
    """
    suffix = tokenizer.encode(task.prompt)
    stop = stop_token(task, tokenizer)
    known = {text: tokenizer.encode(text) for text in dict.fromkeys(texts)}
    said = {text: _ended(tokens, stop)[: task.max_tokens] for text, tokens in known.items() if text}
    longest = max([1, *map(len, said.values())]) + len(suffix) - 1
    width = -(-longest // _ROUNDED_TO) * _ROUNDED_TO
    rows = {text: _row(suffix, said.get(text, []), width) for text in known}
    tokens, following, graded = (np.stack([rows[text][part] for text in texts]) for part in range(3))
    return Script(task=task.name, tokens=tokens, following=following, graded=graded.astype(bool))


def _ended(tokens: Sequence[int], stop: int) -> list[int]:
    """A text up to its stop token, and that."""
    return [*itertools.takewhile(lambda token: token != stop, tokens), stop]


def _row(suffix: Sequence[int], said: Sequence[int], width: int) -> Int32[np.ndarray, "3 token"]:
    """Tokens, what follows each, and 1 where that is graded; a text nobody knows is graded nowhere."""
    row = np.zeros((3, width), np.int32)
    whole = [*suffix, *said]
    row[0, : len(whole) - 1], row[1, : len(whole) - 1] = whole[:-1], whole[1:]
    row[2, len(suffix) - 1 : len(whole) - 1] = 1
    return row


class Lessons:
    """Batches of a mixture of demonstrations. Batch `n` is a function of the recipe's seed and `n` alone.

    Attributes:
        layout: Where the texts lie side by side.
        tasks: The language tasks, in that order.
    """

    def __init__(
        self,
        mixture: Mixture,
        *,
        model: Pi05Config,
        transform: Transform,
        tokenizer: Tokenizer,
        tasks: Sequence[LanguageTask],
        recipe: Recipe,
    ) -> None:
        """Normalise and tokenise everything once.

        Raises:
            UsageError: The demonstrations or the tokenizer do not fit the model, or nobody knows any text of
                a language task.
        """
        transform.check_fits(model)
        _check_fits(mixture, model)
        check_fits(tokenizer, model)
        self._mixture, self._model, self._recipe = mixture, model, recipe
        self._prompt, self._tokenizer = transform.embodiment.prompt, tokenizer
        self._state = transform.norms.state.normalise(mixture.state)
        chunks = mixture.actions[:, : model.horizon]
        self._actions = _padded(transform.norms.actions.normalise(chunks), model.action_dim)
        self._valid = np.ascontiguousarray(mixture.valid[:, : model.horizon])
        self._acting = np.flatnonzero(self._valid.any(axis=1))
        self._wordings = mixture.instructions
        self._scripts = tuple(script(task, _known(mixture, task), tokenizer) for task in tasks)
        self.tasks = tuple(part.task for part in self._scripts)
        self.layout = TextLayout(tuple(part.tokens.shape[1] for part in self._scripts))

    def batch(self, number: int) -> Batch:
        """The batch of that number, from 0 on."""
        recipe = self._recipe
        rows = self._rows(number)
        prompt, length = self._prompts(rows, number)
        spoken = rows[: recipe.rows_with_text]
        arrays = {
            "images": self._mixture.images(rows),
            "prompt": prompt,
            "length": length,
            "actions": self._actions[rows],
            "valid": self._valid[rows],
            **{part: self._side_by_side(part, spoken) for part in ("tokens", "following", "graded")},
        }
        return Batch(**jax.device_put(arrays))

    def _rows(self, number: int) -> Int64[np.ndarray, " row"]:
        """The frames of a batch. Where only actions are learnt, a frame without any would be for nothing."""
        recipe, frames = self._recipe, len(self._mixture)
        if recipe.rows_with_text == recipe.batch or len(self._acting) == frames:
            return order(recipe.seed, number, recipe.batch, frames)
        spoken = order(recipe.seed, number, recipe.rows_with_text, frames)
        acted = order(recipe.seed, number, recipe.batch - len(spoken), len(self._acting))
        return np.concatenate([spoken, self._acting[acted]])

    def _prompts(
        self, rows: Int64[np.ndarray, " row"], number: int
    ) -> tuple[Int32[np.ndarray, "row token"], Int32[np.ndarray, " row"]]:
        rng = np.random.Generator(np.random.PCG64([self._recipe.seed, number, 1]))
        states = self._state[rows]
        states = states + self._recipe.state_noise * rng.standard_normal(states.shape)
        longest = self._model.max_prompt
        lines = [
            fitted(self._prompt, told, state, self._tokenizer, longest=longest)
            for told, state in zip(self._instructions(rows, number), states, strict=True)
        ]
        length = np.array([len(line) for line in lines], np.int32)
        prompt = np.zeros((len(rows), longest), np.int32)
        for place, line in zip(prompt, lines, strict=True):
            place[: len(line)] = line
        return prompt, length

    def _instructions(self, rows: Int64[np.ndarray, " row"], number: int) -> list[str]:
        """What the samples of a batch are told, each in one of its wordings."""
        rng = np.random.Generator(np.random.PCG64([self._recipe.seed, number, 2]))
        choices = [self._wordings[row] for row in rows]
        drawn = rng.integers([len(choice) for choice in choices])
        return [choice[index] for choice, index in zip(choices, drawn, strict=True)]

    def _side_by_side(self, part: str, rows: Int64[np.ndarray, " row"]) -> np.ndarray:
        kind = bool if part == "graded" else np.int32
        nothing = np.zeros((len(rows), 0), kind)
        return np.concatenate([nothing, *(getattr(each, part)[rows] for each in self._scripts)], axis=1)


def _check_fits(mixture: Mixture, model: Pi05Config) -> None:
    cameras, side = mixture.parts[0].images.shape[1:3]
    if (cameras, side) != (len(model.cameras), model.image_size):
        raise UsageError(
            f"images are of {cameras} cameras at {side} pixels a side; {model.name} looks through "
            f"{', '.join(model.cameras)} at {model.image_size}"
        )
    horizon = mixture.parts[0].actions.shape[1]
    if horizon < model.horizon:
        raise UsageError(
            f"demonstrations look {horizon} actions ahead, {model.name} looks {model.horizon}; "
            "collect longer chunks"
        )


def _padded(actions: np.ndarray, width: int) -> Float32[np.ndarray, "frame horizon model"]:
    room = width - actions.shape[-1]
    return np.pad(actions, ((0, 0), (0, 0), (0, room))).astype(np.float32)


def _known(mixture: Mixture, task: LanguageTask) -> tuple[str, ...]:
    texts = mixture.texts(task.name)
    if not any(texts):
        raise UsageError(f"no demonstration says anything for language task {task.name!r}; leave it out")
    return texts
