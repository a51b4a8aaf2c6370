"""Training batches: demonstrations normalised, tokenised and shuffled, with texts in their prompts."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import flax.struct
import jax
import numpy as np

from configs.training import TrainConfig
from contracts.errors import UsageError
from contracts.prompt import cleaned, compose, prompt_fields, true_tasks, write_answer
from oxygen.robots.norms import Statistics
from oxygen.robots.tokenizer import Tokenizer, check_fits, fitted
from oxygen.robots.transforms import Transform, embodiment
from oxygen.serving.language import LanguageTask, stop_token
from oxygen.training.config import TrainingConfig
from oxygen.training.samples import Samples, shuffled_rows
from oxygen.typing import Int32, Int64, Leaf

_LENGTH_MULTIPLE = 4
"""Text lengths are padded to a multiple of this, so that slightly longer texts need no recompilation."""


@dataclasses.dataclass(frozen=True)
class TextLayout:
    """The token ranges of a sample's concatenated texts, one range for each language task."""

    tasks: tuple[str, ...]  # names of the language tasks
    lengths: tuple[int, ...]  # tokens of each task's range

    @property
    def tokens(self) -> int:
        """Tokens of all ranges together."""
        return sum(self.lengths)

    @property
    def ranges(self) -> Mapping[str, slice]:
        """Each task's range."""
        ends = itertools.accumulate(self.lengths)
        return {
            task: slice(end - length, end)
            for task, length, end in zip(self.tasks, self.lengths, ends, strict=True)
        }


@flax.struct.dataclass
class Batch:
    """One training batch on the device."""

    images: Leaf  # pixels, [batch, camera, side, side, 3] of uint8
    prompt: Leaf  # tokens, padded, [batch, token]
    length: Leaf  # valid tokens of each prompt, [batch]
    actions: Leaf  # normalised, [batch, horizon, action]
    valid: Leaf  # their loss mask, [batch, horizon]
    text_tokens: Leaf  # of the first rows' texts (suffix and text, all tasks concatenated), [row, token]
    text_targets: Leaf  # the next token at each of these positions
    text_mask: Leaf  # where it enters the loss


def text_targets(
    task: LanguageTask, texts: Sequence[str], tokenizer: Tokenizer
) -> Int32[np.ndarray, "frame 3 token"]:
    """Tokenise texts as the engine decodes them: suffix, text, stop token.

    Gives the input tokens, padded; the next token at each position; and the loss mask, 1 from the suffix's
    last token to the stop token. Texts are truncated to the task's `max_tokens`; an empty one adds nothing to
    the loss.
    """
    suffix = tokenizer.encode(task.prompt)
    stop = stop_token(task, tokenizer)
    ended: dict[str, list[int]] = {}
    for text in dict.fromkeys(texts):
        tokens = itertools.takewhile(lambda token: token != stop, tokenizer.encode(text))
        ended[text] = [*tokens, stop][: task.max_tokens] if text else []
    longest = max([1, *map(len, ended.values())]) + len(suffix) - 1
    width = -(-longest // _LENGTH_MULTIPLE) * _LENGTH_MULTIPLE
    rows = {text: np.zeros((3, width), np.int32) for text in ended}
    for text, row in rows.items():
        whole = [*suffix, *ended[text]]
        row[0, : len(whole) - 1], row[1, : len(whole) - 1] = whole[:-1], whole[1:]
        row[2, len(suffix) - 1 : len(whole) - 1] = 1
    return np.stack([rows[text] for text in texts])


def true_texts(samples: Samples, task: LanguageTask) -> tuple[str, ...]:
    """The text of each frame that a language task is to write; empty where there is none."""
    none = ("",) * len(samples)
    if not task.feedback:
        return samples.texts.get(task.name, none)
    names = true_tasks(task.name, task.feedback)
    columns = [samples.texts.get(name, none) for name in names.values()]
    return tuple(
        write_answer(dict(zip(names, row, strict=True)), task.feedback) if all(row) else ""
        for row in zip(*columns, strict=True)
    )


class PromptTexts:
    """Composes the prompts of samples as `eval.rollout` does, with texts sampled from several origins.

    A share `feedback_none` of the samples has no text, as at the start of an episode. A share `feedback_own`
    has the texts that the policy itself read there, if they were recorded. The rest has the truth of up to
    `feedback_delay_s` before, beyond the field's look-back.
    """

    def __init__(self, samples: Samples, tasks: Sequence[LanguageTask], options: TrainConfig) -> None:
        self.fields = prompt_fields({task.name: task.feedback for task in tasks})
        self._true = {
            field: samples.texts.get(name, ("",) * len(samples))
            for task in tasks
            for field, name in true_tasks(task.name, task.feedback).items()
        }
        if self.fields and samples.frame_index is None:
            raise UsageError(
                "texts in the prompt need samples with `frame_index` and `fps`; give `control_hz` to "
                "Samples.from_episodes"
            )
        self._samples = Samples.joined([samples])  # has all columns
        self._options = options

    def prompt(self, instruction: str, row: int, rng: np.random.Generator) -> str:
        """The prompt of a sample; draws two numbers."""
        kind, age = rng.random(2)
        if kind < self._options.feedback_none:
            return compose(instruction, self.fields, {})
        samples: Any = self._samples
        written = samples.fed[row]
        if written is not None and kind < self._options.feedback_none + self._options.feedback_own:
            return compose(instruction, self.fields, written)
        texts = {}
        for field in self.fields:
            frames = round((age * self._options.feedback_delay_s + field.lookback_s) * samples.fps[row])
            if frames <= samples.frame_index[row]:  # else it is before the episode
                texts[field.field] = cleaned(self._true[field.field][row - frames], field.max_chars)[0]
        return compose(instruction, self.fields, texts)


class TrainingBatches:
    """Batches of demonstrations. Batch `n` is a function of the seed and `n` alone.

    `layout` says where each task's text lies in the concatenated tokens.
    """

    def __init__(
        self, samples: Samples, training: TrainingConfig, *, statistics: Statistics, tokenizer: Tokenizer
    ) -> None:
        """Normalise and tokenise everything once; refuses what does not fit the model, and tasks without
        texts.
        """
        model, tasks = training.model, training.tasks
        transform = Transform.of(embodiment(training.embodiment), statistics)
        transform.check_fits(model)
        cameras, side = samples.images[0].shape[1:3]
        if (cameras, side) != (len(model.cameras), model.image_size):
            raise UsageError(
                f"demonstrations have {cameras} cameras of {side}x{side} pixels; {model.name} takes "
                f"{', '.join(model.cameras)} at {model.image_size}x{model.image_size}"
            )
        horizon = samples.actions.shape[1]
        if horizon < model.horizon:
            raise UsageError(
                f"demonstrations have chunks of {horizon} actions, {model.name} needs {model.horizon}; "
                "collect longer chunks"
            )
        check_fits(tokenizer, model)
        self._samples, self._model, self._options = samples, model, training.options
        self._prompt, self._tokenizer = transform.embodiment.prompt, tokenizer
        chunks = samples.actions[:, : model.horizon]
        self._state = transform.state_norm.normalise(samples.state)
        self._actions = transform.targets(chunks, samples.state, model.action_dim).astype(np.float32)
        self._valid = np.ascontiguousarray(samples.valid[:, : model.horizon])
        self._frames_with_actions = np.flatnonzero(self._valid.any(axis=1))
        self._wordings = [training.wordings.get(text, (text,)) for text in samples.language]
        self._prompt_texts = PromptTexts(samples, tasks, training.options)
        texts = []
        for task in tasks:
            true = true_texts(samples, task)
            if not any(true):
                raise UsageError(f"no demonstration has a text for language task {task.name!r}; leave it out")
            texts.append(text_targets(task, true, tokenizer))
        self._texts = np.concatenate([np.zeros((len(samples), 3, 0), np.int32), *texts], axis=2)
        self.layout = TextLayout(
            tasks=tuple(task.name for task in tasks), lengths=tuple(part.shape[2] for part in texts)
        )

    def batch(self, number: int) -> Batch:
        """Batch `number`, from 0. Rows that train actions alone are of frames with valid actions."""
        options, frames, acting = self._options, len(self._samples), self._frames_with_actions
        if options.text_rows == options.batch or len(acting) == frames:
            rows = shuffled_rows(options.seed, number, options.batch, frames)
        else:
            with_text = shuffled_rows(options.seed, number, options.text_rows, frames)
            actions_only = shuffled_rows(options.seed, number, options.batch - len(with_text), len(acting))
            rows = np.concatenate([with_text, acting[actions_only]])
        prompt, length = self._prompts(rows, number)
        tokens, targets, mask = self._texts[rows[: options.text_rows]].transpose(1, 0, 2)
        arrays = {
            "images": self._samples.pixels(rows),
            "prompt": prompt,
            "length": length,
            "actions": self._actions[rows],
            "valid": self._valid[rows],
            "text_tokens": tokens,
            "text_targets": targets,
            "text_mask": mask.astype(bool),
        }
        return Batch(**jax.device_put(arrays))

    def _prompts(
        self, rows: Int64[np.ndarray, " row"], number: int
    ) -> tuple[Int32[np.ndarray, "row token"], Int32[np.ndarray, " row"]]:
        """Prompts and their lengths: noisy states, a random wording of each instruction, texts fed back."""
        noise, wording, feedback = (
            np.random.Generator(np.random.PCG64([self._options.seed, number, which])) for which in (1, 2, 3)
        )
        states = self._state[rows]
        states = states + self._options.state_noise * noise.standard_normal(states.shape)
        choices = [self._wordings[row] for row in rows]
        sampled = wording.integers([len(choice) for choice in choices])
        longest = self._model.max_prompt
        length = np.zeros(len(rows), np.int32)
        prompt = np.zeros((len(rows), longest), np.int32)
        for place, row in enumerate(rows):
            instruction = choices[place][sampled[place]]
            if self._prompt_texts.fields:
                instruction = self._prompt_texts.prompt(instruction, int(row), feedback)
            line = fitted(self._prompt, instruction, states[place], self._tokenizer, longest=longest)
            length[place] = len(line)
            prompt[place, : len(line)] = line
        return prompt, length
