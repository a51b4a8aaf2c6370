"""Options of `oxygen-eval serve`."""

from typing import Annotated, Self

from cyclopts import Parameter
from pydantic import Field, model_validator

from configs.cli import Names
from configs.schema import AdapterMask, Count, Dtype, Preset, Tokens
from contracts.mode import Mode

_ROBOTS = 8  # default number of concurrent robots


class ServeConfig(Preset):
    """The options of `oxygen-eval serve`.

    Attributes:
        policy: A policy with a model: a preset's name (tiny, pi05_libero), a YAML file, or a checkpoint's
            folder.
        host: Address to listen at; 0.0.0.0 for all.
        port: Port; 0 for a free one.
        robots: Maximal number of concurrent robots. Default: 8, or the batch size if that is larger; in mode
            parallel, whose language runs in a second process, the batch size.
        batch_size: Robots that share a batch of the model, padded; with 1, robots are served in turn.
        batch_wait_ms: Maximal time that a query waits for those of other robots in its batch.
        mode: How actions and language are scheduled.
        language_tasks: Texts to generate beside actions, or `none`. Default: those the policy was trained on.
        text_every: Request a text of each language task at every N-th query. Default: each task's own rate.
        tokens_per_frame: In modes unified and interleaved, language tokens decoded per query and text.
        replan_steps: Actions of a chunk that vla-eval's clients execute (5 as in openpi's LIBERO).
        dtype: Data type of the computation. Default: the policy's own.
        adapter: A suffix adapter for the policy's texts, an .npz.
        adapter_mask: What its generated tokens see: exact or published. Default: what its card says, else
            exact.
        random_weights: Random weights instead of the policy's checkpoint, to measure latency.
        api_key_env: The environment variable with the key that clients must send.
    """

    policy: str
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, lt=2**16)
    robots: int | None = Field(default=None, gt=0, le=256)
    batch_size: int = Field(default=1, gt=0, le=256)
    batch_wait_ms: float = Field(default=10.0, ge=0, le=10_000, allow_inf_nan=False)
    mode: Mode = Mode.UNIFIED
    language_tasks: Names | None = None
    text_every: Count | None = None
    tokens_per_frame: Tokens = 5
    replan_steps: Count = 5
    dtype: Dtype | None = None
    adapter: str | None = None
    adapter_mask: AdapterMask | None = None
    random_weights: Annotated[bool, Parameter(negative="")] = False
    api_key_env: str | None = None

    @property
    def most_robots(self) -> int:
        """Maximal number of concurrent robots."""
        default = self.batch_size if self.mode == "parallel" else max(_ROBOTS, self.batch_size)
        return self.robots or default

    @model_validator(mode="after")
    def _check_batches(self) -> Self:
        if self.most_robots < self.batch_size:
            raise ValueError(
                f"`batch_size` is {self.batch_size} for {self.most_robots} robots; give at most that many"
            )
        if self.mode == "parallel" and self.most_robots > self.batch_size:
            raise ValueError(
                f"`robots` is {self.most_robots} in mode parallel, which serves one batch; give "
                f"--batch-size {self.most_robots}"
            )
        return self
