"""How a policy is trained: everything a run is a function of, beside its demonstrations and its model."""

import dataclasses
import math

from configs.errors import UsageError, unknown

OPTIMISERS = ("muon", "adamw")

RUN_FILE = "run.json"
"""Where a training's folder says what is trained in it."""

CHECKPOINTS = "checkpoints"
"""The folder in a training's own in which its checkpoints are."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """Numbers of a training run. The defaults are for a policy of a few million parameters, from scratch.

    Attributes:
        steps: Batches until the learning rate has run out.
        batch: Samples in a batch.
        seed: Of the initial parameters, the order of the samples, augmentation, noise and flow times.
        draws: Noises and flow times for every sample, all denoised from the one prefix.
        text_rows: Samples of every batch whose texts are learnt too; None for all.
        text_weight: Of a language task's cross-entropy (in nats per token), where the flow's is 1.
        optimiser: `muon` or `adamw`.
        learning_rate: The highest, after warming up; then it falls along a cosine.
        last_rate: What it falls to, as a share of the highest.
        warm_up: Batches in which it rises from 0.
        weight_decay: On matrices.
        clip: The gradient's global norm is cut to this.
        ema: Decay of the average of parameters that is served.
        image_shift: An image is moved by up to this share of its side, each way; its border pixels fill up.
        brightness: Added to all pixels at random, up to this share of the range.
        contrast: Distance from the image's mean, scaled by 1 ± up to this.
        saturation: Distance from grey, scaled likewise.
        state_noise: Standard deviation of the noise on a normalised state, whose range is [-1, 1].
        actions_reach_prefix: Whether the flow's gradients reach the trunk and the vision tower through the
            prefix. Off, the trunk learns from texts alone and the action expert reads what it finds:
            knowledge insulation (arXiv 2505.23705).
        texts_reach_prefix: Whether the texts' do. Off, the trunk still learns what it does with a text's own
            tokens.
        texts_only: Train what texts alone pass through (`oxygen.training.freezing`), and no flow: a policy
            that acts as before, to the last bit.
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

    def __post_init__(self) -> None:
        if self.optimiser not in OPTIMISERS:
            raise unknown("optimiser", self.optimiser, OPTIMISERS)
        for field, least in {"steps": 1, "batch": 1, "draws": 1, "seed": 0}.items():
            if getattr(self, field) < least:
                raise UsageError(f"{field} is {getattr(self, field)}; at least {least}")
        for field in ("ema", "image_shift", "brightness", "contrast", "saturation", "state_noise"):
            if not 0 <= getattr(self, field) < 1:
                raise UsageError(f"{field} is {getattr(self, field)}; give a number from 0 up to 1")
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise UsageError(f"learning_rate is {self.learning_rate}; give one above 0")
        self._check_text_rows()

    def _check_text_rows(self) -> None:
        if self.text_rows is not None and not 1 <= self.text_rows <= self.batch:
            raise UsageError(f"text_rows is {self.text_rows}; give 1 to the batch's {self.batch}")
        if self.texts_only and self.rows_with_text < self.batch:
            raise UsageError(
                f"text_rows is {self.text_rows} of a batch of {self.batch}, and only texts are learnt; "
                "leave it out"
            )

    @property
    def rows_with_text(self) -> int:
        """Samples of a batch whose texts are learnt."""
        return self.batch if self.text_rows is None else self.text_rows
