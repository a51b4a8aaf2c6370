"""Time during which a policy works: runs within its calls and stands still between them."""

import time
from collections.abc import Callable


class WorkClock:
    """Maps the time of a clock to seconds worked; entered for the duration of a call."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._worked = 0.0
        self._since = self._until = clock()

    def __enter__(self) -> float:
        """Begin a call; returns the time."""
        self._since = self._until = self._clock()
        return self._since

    def __exit__(self, *_: object) -> None:
        self._until = self._clock()
        self._worked += self._until - self._since
        self._since = self._until

    def at(self, moment: float) -> float:
        """Seconds worked at a moment of this call, or of the one before."""
        return self._worked + moment - self._since if moment > self._since else self._worked
