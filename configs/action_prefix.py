"""The actions that the robot executes while its policy computes, for guided denoising."""

import dataclasses

from configs.errors import UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActionPrefix:
    """The actions of a policy's last chunk that are under way.

    Attributes:
        first: Index of the one that is executed as the observation is taken.
        delay: Actions, from that one on, that are expected to be executed until the next chunk has come.
    """

    first: int
    delay: int

    def __post_init__(self) -> None:
        if self.first < 0 or self.delay < 1:
            raise UsageError(f"action prefix {self}: `first` is 0 or more, and `delay` at least 1")
