"""What a training trains: its options with their names resolved."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from configs.training import TrainConfig
from contracts.errors import UsageError
from contracts.redaction import redact
from oxygen.model.config import Pi05Config
from oxygen.serving.language import LanguageTask


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The options of a training with their names resolved.

    Attributes:
        model: The model's sizes.
        embodiment: Name of the robot, see `oxygen.robots.transforms`.
        tasks: The language tasks to train.
        options: The options, stored in `run.json` for resuming. The hyperparameters and the names of the
            demonstrations are taken from them.
        start_from: Checkpoint with the initial parameters; random ones from the seed if None.
        norm_stats: A checkpoint or a `norm_stats.json` with the robot's statistics; measured over the
            demonstrations if None.
        wordings: Instruction to the wordings that training draws from; others are used as they are.
        base: For an adapter, the card of the policy that it is trained for.
    """

    model: Pi05Config
    embodiment: str
    tasks: tuple[LanguageTask, ...]
    options: TrainConfig
    start_from: str | None = None
    norm_stats: str | None = None
    wordings: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    base: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        options = self.options
        if options.text_rows > options.batch:
            raise UsageError(f"text_rows is {options.text_rows}; give 1 to the batch's {options.batch}")
        if options.trains_actions:
            return
        if options.text_rows < options.batch:
            raise UsageError(
                f"text_rows is {options.text_rows} of a batch of {options.batch}; leave it out where only "
                "texts are trained"
            )
        needed = {"start_from": self.start_from, "norm_stats": self.norm_stats, "tasks": self.tasks}
        missing = [name for name, value in needed.items() if not value]
        if missing:
            raise UsageError(f"texts are trained for an existing policy: give {missing[0]}")

    def identity(self) -> dict[str, Any]:
        """Everything that distinguishes this training from others, as JSON."""
        content = dataclasses.asdict(self)
        del content["options"]
        content |= {"recipe": self.options.recipe(), "data": self.options.data}
        as_json: dict[str, Any] = redact(json.loads(json.dumps(content)))
        feeding = any(task.feedback for task in self.tasks)
        for task in as_json["tasks"] if not feeding else ():
            del task["feedback"]
        for name in () if feeding else ("feedback_delay_s", "feedback_none", "feedback_own"):
            del as_json["recipe"][name]
        return as_json
