"""Texts in the prompts of training samples: true ones, delayed ones, the policy's own, or none."""

from collections.abc import Sequence

import numpy as np

from configs.feedback import Feedback, cleaned, compose, prompt_fields, write_answer
from configs.training import TrainConfig
from oxygen.serving.language import LanguageTask
from oxygen.training.samples import Mixture


def true_texts(mixture: Mixture, task: LanguageTask) -> tuple[str, ...]:
    """The text of each frame that a language task is to write; empty where there is none."""
    if len(task.feedback) < 2:
        return mixture.texts(task.name)
    columns = [mixture.texts(each.field) for each in task.feedback]
    names = [each.field for each in task.feedback]
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

    def __init__(self, mixture: Mixture, tasks: Sequence[LanguageTask], options: TrainConfig) -> None:
        self.fields = prompt_fields({task.name: task.feedback for task in tasks})
        self._true = {
            each.field: mixture.texts(task.name if len(task.feedback) == 1 else each.field)
            for task in tasks
            for each in task.feedback
        }
        self._own = mixture.fed
        self._in_episode, self._fps = mixture.frame_index, mixture.fps
        self._options = options

    def prompt(self, instruction: str, row: int, rng: np.random.Generator) -> str:
        """The prompt of a sample; draws two numbers."""
        kind, age = rng.random(2)
        if kind < self._options.feedback_none:
            return compose(instruction, self.fields, {})
        own = self._own[row]
        if own is not None and kind < self._options.feedback_none + self._options.feedback_own:
            return compose(instruction, self.fields, own)
        texts = {each.field: self._delayed(each, row, age) for each in self.fields}
        return compose(instruction, self.fields, texts)

    def _delayed(self, field: Feedback, row: int, age: float) -> str:
        """The truth of some time before a frame; empty before the episode."""
        frames = round((age * self._options.feedback_delay_s + field.lookback_s) * self._fps[row])
        if frames > self._in_episode[row]:
            return ""
        return cleaned(self._true[field.field][row - frames], field.max_chars)[0]
