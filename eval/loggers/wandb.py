"""Logs a run to Weights & Biases. Reads its environment variables: WANDB_MODE=offline, WANDB_PROJECT, …."""

import os
from collections.abc import Mapping
from pathlib import Path

import wandb

from configs.errors import UsageError
from eval.loggers.monitor import PROJECT, describe, log_id
from eval.records.run_folders import Run

_STEP = "episode"


def require_login() -> None:
    """Check that the logger is offline or has an API key.

    Raises:
        UsageError: It is online without one, or its key is refused.
    """
    try:
        is_ready = wandb.setup().settings.mode != "online" or wandb.login(prompt=False)
    except wandb.errors.Error as error:
        raise UsageError(
            f"--log wandb: {' '.join(str(error).split())}; run wandb login --relogin, or log offline with "
            "WANDB_MODE=offline"
        ) from error
    if not is_ready:
        raise UsageError(
            "--log wandb: there is no API key for Weights & Biases; run wandb login, or set WANDB_API_KEY, "
            "or log offline with WANDB_MODE=offline"
        )


class WandbLogger:
    """Logs to a run of W&B of the same name. All variants of an evaluation are one group."""

    def __init__(self, run: Run, group: str) -> None:
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            dir=os.environ.get("WANDB_DIR", run.folder.path),
            id=log_id(run),
            name=run.folder.run_id,
            group=group,
            config=describe(run),
            resume="allow",
            reinit="create_new",  # variants are open at the same time
            settings=wandb.Settings(console="off", silent=True),
        )
        # W&B's own step only ever grows, and that of a resumed run may repeat.
        self._run.define_metric("*", step_metric=_STEP)
        self.where = self._run.url or f"wandb sync {Path(self._run.dir).parent}"

    def log(self, values: Mapping[str, float], videos: Mapping[str, Path], *, step: int) -> None:
        """See `RunLogger`."""
        films = {name: wandb.Video(str(path), format="mp4") for name, path in videos.items()}
        self._run.log({**values, **films, _STEP: step})

    def close(self) -> None:
        """See `RunLogger`."""
        self._run.finish()
