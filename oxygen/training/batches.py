"""Training batches: demonstrations normalised, tokenised and shuffled."""

import itertools
from collections.abc import Sequence

import flax.struct
import jax
import numpy as np

from configs.errors import UsageError
from configs.training import TrainConfig
from oxygen.model.config import Pi05Config
from oxygen.robots.prompts import fitted
from oxygen.robots.tokenizer import Tokenizer, check_fits
from oxygen.robots.transforms import Transform
from oxygen.serving.language import LanguageTask, stop_token
from oxygen.training.feedback import PromptTexts, true_texts
from oxygen.training.forward import TextLayout
from oxygen.training.samples import Mixture, shuffled_rows
from oxygen.typing import Int32, Int64, Leaf

_LENGTH_MULTIPLE = 4
"""Text lengths are padded to a multiple of this, so that slightly longer texts need no recompilation."""


@flax.struct.dataclass
class Batch:
    """One training batch on the device.

    Attributes:
        images: Pixels, [batch, camera, side, side, 3] of uint8.
        prompt: Tokens, padded to a bucket, [batch, token]; length: valid tokens, [batch].
        actions: Normalised actions, [batch, horizon, action]; valid: loss mask, [batch, horizon].
        text_tokens: Input tokens of the first rows' texts (suffix and text, all tasks concatenated),
            [row, token].
        text_targets: The next token at each of these positions; text_mask: where it enters the loss.
    """

    images: Leaf
    prompt: Leaf
    length: Leaf
    actions: Leaf
    valid: Leaf
    text_tokens: Leaf
    text_targets: Leaf
    text_mask: Leaf


def text_targets(
    task: LanguageTask, texts: Sequence[str], tokenizer: Tokenizer
) -> Int32[np.ndarray, "frame 3 token"]:
    """Tokenise texts as the engine decodes them: suffix, text, stop token.

    Texts are truncated to the task's `max_tokens`. An empty text contributes nothing to the loss.

    Returns:
        Input tokens, padded; the next token at each position; and the loss mask, 1 from the suffix's last
        token to the stop token.
    """
    suffix = tokenizer.encode(task.prompt)
    stop = stop_token(task, tokenizer)
    encoded = {text: tokenizer.encode(text) for text in dict.fromkeys(texts)}
    ended = {text: _with_stop(tokens, stop)[: task.max_tokens] for text, tokens in encoded.items() if text}
    longest = max([1, *map(len, ended.values())]) + len(suffix) - 1
    width = -(-longest // _LENGTH_MULTIPLE) * _LENGTH_MULTIPLE
    rows = {text: _row(suffix, ended.get(text, []), width) for text in encoded}
    return np.stack([rows[text] for text in texts])


def _with_stop(tokens: Sequence[int], stop: int) -> list[int]:
    """The tokens up to the first stop token, and a stop token."""
    return [*itertools.takewhile(lambda token: token != stop, tokens), stop]


def _row(suffix: Sequence[int], text: Sequence[int], width: int) -> Int32[np.ndarray, "3 token"]:
    row = np.zeros((3, width), np.int32)
    whole = [*suffix, *text]
    row[0, : len(whole) - 1], row[1, : len(whole) - 1] = whole[:-1], whole[1:]
    row[2, len(suffix) - 1 : len(whole) - 1] = 1
    return row


class TrainingBatches:
    """Batches of a mixture of demonstrations. Batch `n` is a function of the seed and `n` alone.

    Attributes:
        layout: Where each task's text lies in the concatenated tokens.
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
        options: TrainConfig,
    ) -> None:
        """Normalise and tokenise everything once.

        Raises:
            UsageError: The demonstrations or the tokenizer do not fit the model, or a language task has no
                texts.
        """
        transform.check_fits(model)
        _check_fits(mixture, model)
        check_fits(tokenizer, model)
        self._mixture, self._model, self._options = mixture, model, options
        self._prompt, self._tokenizer = transform.embodiment.prompt, tokenizer
        self._state = transform.norms.state.normalise(mixture.state)
        chunks = mixture.actions[:, : model.horizon]
        self._actions = transform.targets(chunks, model.action_dim).astype(np.float32)
        self._valid = np.ascontiguousarray(mixture.valid[:, : model.horizon])
        self._frames_with_actions = np.flatnonzero(self._valid.any(axis=1))
        self._wordings = mixture.instructions
        self._prompt_texts = PromptTexts(mixture, tasks, options)
        texts = [text_targets(task, _texts_of(mixture, task), tokenizer) for task in tasks]
        self._texts = np.concatenate([np.zeros((len(mixture), 3, 0), np.int32), *texts], axis=2)
        self.tasks = tuple(task.name for task in tasks)
        self.layout = TextLayout(tuple(part.shape[2] for part in texts))

    def batch(self, number: int) -> Batch:
        """Batch `number`, counted from 0."""
        rows = self._rows(number)
        prompt, length = self._prompts(rows, number)
        tokens, targets, mask = self._texts[rows[: self._options.text_rows]].transpose(1, 0, 2)
        arrays = {
            "images": self._mixture.images(rows),
            "prompt": prompt,
            "length": length,
            "actions": self._actions[rows],
            "valid": self._valid[rows],
            "text_tokens": tokens,
            "text_targets": targets,
            "text_mask": mask.astype(bool),
        }
        return Batch(**jax.device_put(arrays))

    def _rows(self, number: int) -> Int64[np.ndarray, " row"]:
        """The frames of a batch. Rows that train actions alone come from frames with valid actions."""
        options, frames, acting = self._options, len(self._mixture), self._frames_with_actions
        if options.text_rows == options.batch or len(acting) == frames:
            return shuffled_rows(options.seed, number, options.batch, frames)
        with_text = shuffled_rows(options.seed, number, options.text_rows, frames)
        actions_only = shuffled_rows(options.seed, number, options.batch - len(with_text), len(acting))
        return np.concatenate([with_text, acting[actions_only]])

    def _prompts(
        self, rows: Int64[np.ndarray, " row"], number: int
    ) -> tuple[Int32[np.ndarray, "row token"], Int32[np.ndarray, " row"]]:
        rng = np.random.Generator(np.random.PCG64([self._options.seed, number, 1]))
        states = self._state[rows]
        states = states + self._options.state_noise * rng.standard_normal(states.shape)
        longest = self._model.max_prompt
        lines = [
            fitted(self._prompt, instruction, state, self._tokenizer, longest=longest)
            for instruction, state in zip(self._instructions(rows, number), states, strict=True)
        ]
        length = np.array([len(line) for line in lines], np.int32)
        prompt = np.zeros((len(rows), longest), np.int32)
        for place, line in zip(prompt, lines, strict=True):
            place[: len(line)] = line
        return prompt, length

    def _instructions(self, rows: Int64[np.ndarray, " row"], number: int) -> list[str]:
        """One wording of each sample's instruction, sampled at random, with texts if any are fed back."""
        rng = np.random.Generator(np.random.PCG64([self._options.seed, number, 2]))
        choices = [self._wordings[row] for row in rows]
        sampled = rng.integers([len(choice) for choice in choices])
        instructions = [choice[index] for choice, index in zip(choices, sampled, strict=True)]
        if not self._prompt_texts.fields:
            return instructions
        rng = np.random.Generator(np.random.PCG64([self._options.seed, number, 3]))
        return [
            self._prompt_texts.prompt(instruction, int(row), rng)
            for instruction, row in zip(instructions, rows, strict=True)
        ]


def _check_fits(mixture: Mixture, model: Pi05Config) -> None:
    cameras, side = mixture.parts[0].images.shape[1:3]
    if (cameras, side) != (len(model.cameras), model.image_size):
        raise UsageError(
            f"demonstrations have {cameras} cameras of {side}x{side} pixels; {model.name} takes "
            f"{', '.join(model.cameras)} at {model.image_size}x{model.image_size}"
        )
    horizon = mixture.parts[0].actions.shape[1]
    if horizon < model.horizon:
        raise UsageError(
            f"demonstrations have chunks of {horizon} actions, {model.name} needs {model.horizon}; "
            "collect longer chunks"
        )


def _texts_of(mixture: Mixture, task: LanguageTask) -> tuple[str, ...]:
    texts = true_texts(mixture, task)
    if not any(texts):
        raise UsageError(f"no demonstration has a text for language task {task.name!r}; leave it out")
    return texts
