"""The training recipe: all hyperparameters of a run."""

import dataclasses
import math

from configs.errors import UsageError, unknown

OPTIMISERS = ("muon", "adamw")

RUN_FILE = "run.json"
"""The file in a training's folder that identifies the training."""

CHECKPOINTS = "checkpoints"
"""The subfolder for checkpoints."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hyperparameters of a training run. The defaults train a few million parameters from scratch.

    Attributes:
        steps: Training steps.
        batch: Batch size.
        seed: Of the initial parameters, sample order, augmentation, noise and flow times.
        draws: Noise samples and flow times per sample, all from one prefill.
        text_rows: Samples of a batch that train texts as well; None for all.
        text_weight: Weight of each language task's cross-entropy (nats per token); the flow loss has 1.
        optimiser: `muon` or `adamw`.
        learning_rate: Peak learning rate; cosine decay after the warm-up.
        last_rate: Final learning rate, as a fraction of the peak.
        warm_up: Steps of linear warm-up.
        weight_decay: Weight decay of the matrices.
        clip: Maximal global norm of the gradient.
        ema: Decay of the parameters' moving average, which is the policy.
        image_shift: Maximal random shift, as a fraction of the image's side; the border is replicated.
        brightness: Maximal random offset of all pixels, as a fraction of their range.
        contrast: Maximal random change of the distance to the image's mean, as a fraction.
        saturation: Maximal random change of the distance to grey, as a fraction.
        state_noise: Standard deviation of the noise on the normalised state, whose range is [-1, 1].
        actions_reach_prefix: Whether gradients of the flow loss reach the trunk and the vision tower. False
            is knowledge insulation (arXiv 2505.23705).
        texts_reach_prefix: Whether gradients of the text loss reach the trunk through the prefix. If False,
            they still do through the text's own tokens.
        texts_only: Train only parameters that actions do not depend on (`oxygen.training.freezing`), without
            the flow loss: actions stay the same to the bit.
        adapter: Train a suffix adapter of this rank and nothing else, with AdamW; None trains the policy.
        feedback_delay_s: Maximal age of true texts in a prompt, beyond a field's look-back.
        feedback_none: Share of prompts without texts.
        feedback_own: Share of prompts with the texts that the policy itself read, where these were recorded.
    """

    steps: int
    batch: int = 64
    seed: int = 0
    draws: int = 4
    text_rows: int | None = None
    text_weight: float = 0.1
    optimiser: str = "muon"
    learning_rate: float = 2e-3
    last_rate: float = 0.02
    warm_up: int = 200
    weight_decay: float = 0.01
    clip: float = 1.0
    ema: float = 0.998
    image_shift: float = 0.01
    brightness: float = 0.15
    contrast: float = 0.2
    saturation: float = 0.2
    state_noise: float = 0.02
    actions_reach_prefix: bool = True
    texts_reach_prefix: bool = True
    texts_only: bool = False
    adapter: int | None = None
    feedback_delay_s: float = 1.5
    feedback_none: float = 0.1
    feedback_own: float = 0.4

    def __post_init__(self) -> None:
        if self.optimiser not in OPTIMISERS:
            raise unknown("optimiser", self.optimiser, OPTIMISERS)
        for field, least in {"steps": 1, "batch": 1, "draws": 1, "seed": 0}.items():
            if getattr(self, field) < least:
                raise UsageError(f"{field} is {getattr(self, field)}; at least {least}")
        if not 0 <= self.feedback_delay_s <= 3600:
            raise UsageError(f"feedback_delay_s is {self.feedback_delay_s}; give 0 to 3600 seconds")
        shares = ("ema", "image_shift", "brightness", "contrast", "saturation", "state_noise")
        for field in (*shares, "feedback_none", "feedback_own"):
            if not 0 <= getattr(self, field) < 1:
                raise UsageError(f"{field} is {getattr(self, field)}; give a number from 0 to below 1")
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise UsageError(f"learning_rate is {self.learning_rate}; give one above 0")
        if self.adapter is not None and (self.adapter < 1 or self.optimiser != "adamw"):
            raise UsageError(
                f"an adapter of rank {self.adapter} with {self.optimiser}; give rank 1 or more and adamw"
            )
        self._check_text_rows()

    def _check_text_rows(self) -> None:
        if self.text_rows is not None and not 1 <= self.text_rows <= self.batch:
            raise UsageError(f"text_rows is {self.text_rows}; give 1 to the batch's {self.batch}")
        if not self.trains_actions and self.rows_with_text < self.batch:
            raise UsageError(
                f"text_rows is {self.text_rows} of a batch of {self.batch}; leave it out where only texts "
                "are trained"
            )

    @property
    def trains_actions(self) -> bool:
        """Whether there is a flow loss."""
        return not self.texts_only and self.adapter is None

    @property
    def rows_with_text(self) -> int:
        """Samples of a batch that train texts."""
        return self.batch if self.text_rows is None else self.text_rows
