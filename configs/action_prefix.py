"""The actions that the robot executes while its policy computes, for guided denoising."""

import dataclasses

from configs.errors import UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActionPrefix:
    """The actions of the last chunk that the robot executes until the next chunk is ready.

    Attributes:
        first: Index of the action executed at the time of the observation.
        delay: Expected number of them, including the first.
    """

    first: int
    delay: int

    def __post_init__(self) -> None:
        if self.first < 0 or self.delay < 1:
            raise UsageError(f"action prefix {self}: `first` is 0 or more, and `delay` at least 1")
