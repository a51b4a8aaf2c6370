"""Options of the policy server."""

from typing import Annotated

from cyclopts import Parameter
from pydantic import Field

from configs.cli import Names
from configs.schema import AdapterMask, Count, Dtype, Mode, Preset, Tokens


class ServeConfig(Preset):
    """The options of `python -m oxygen.serve`.

    Attributes:
        policy: A policy with a model: a preset's name (tiny, pi05_libero), a YAML file, or a checkpoint's
            folder.
        host: Address to listen at; 0.0.0.0 for all.
        port: Port; 0 for a free one.
        robots: Maximal number of concurrent robots, which share one batch of the model.
        batch_window_ms: Maximal time that a query waits for those of other robots.
        mode: How actions and language are scheduled.
        language_tasks: Texts to generate beside actions, or `none`. Default: those the policy was trained on.
        text_every: Request a text of each language task at every N-th query. Default: each task's own rate.
        tokens_per_frame: In mode unified, language tokens decoded per query and text.
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
    robots: int = Field(default=1, gt=0, le=256)
    batch_window_ms: float = Field(default=10.0, ge=0, le=10_000, allow_inf_nan=False)
    mode: Mode = "unified"
    language_tasks: Names | None = None
    text_every: Count | None = None
    tokens_per_frame: Tokens = 5
    replan_steps: Count = 5
    dtype: Dtype | None = None
    adapter: str | None = None
    adapter_mask: AdapterMask | None = None
    random_weights: Annotated[bool, Parameter(negative="")] = False
    api_key_env: str | None = None
