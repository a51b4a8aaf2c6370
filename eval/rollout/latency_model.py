"""Latency of a query from the engine's work and a device profile. Imports no simulator and no model.

Actions come first: host, prefill, denoising. The decode jobs follow in order, each with its prefills, forks,
stacking and decode steps. In mode `parallel` the jobs start with the query in a second process, and the query
ends when both are done.
"""

import hashlib
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import get_args

from configs.errors import UsageError
from configs.profile import ProfileConfig, StageTime
from configs.schema import Mode
from oxygen.serving.requests import DecodeWork
from sim_envs.world import EpisodeKey

_RANDOM_BITS = 52


class LatencyModel:
    """Simulated milliseconds since a query was issued, on the device of a profile.

    Attributes:
        action_ms: Until the actions are available.
    """

    def __init__(self, profile: ProfileConfig, mode: Mode, *, guided: bool = False) -> None:
        """Build the model of one mode.

        Raises:
            UsageError: The profile lacks the costs of the mode, or of guided denoising.
        """
        acting, language = 1.0, 1.0
        if mode == "parallel":
            if profile.parallel is None:
                others = ", ".join(name for name in get_args(Mode) if name != mode)
                raise UsageError(
                    f"profile {profile.name!r} cannot price mode {mode}: it has no `parallel`, the "
                    f"slowdown of two processes on one device; use another mode: {others}"
                )
            acting, language = profile.parallel.action, profile.parallel.decode
        denoise = profile.guided_denoise if guided else profile.denoise
        if denoise is None:
            raise UsageError(
                f"profile {profile.name!r} cannot price overlap rtc: it has no `guided_denoise`, the time "
                "of denoising with a backward pass in each step; measure it (eval.bench --save-profile), or "
                "choose overlap blend or skip"
            )
        self._profile = profile
        self._slowdown = language
        self.action_ms = acting * (profile.host.ms + profile.prefill.ms + denoise.ms)
        self._language_from_ms = 0.0 if mode == "parallel" else self.action_ms

    def busy_ms(self, work: Sequence[DecodeWork]) -> float:
        """Until the next query can start, given the query's decode jobs in order."""
        return max(self.action_ms, self._language_from_ms + sum(self._job_ms(job, job.steps) for job in work))

    def text_ms(self, work: Sequence[DecodeWork], *, job: int, steps: int) -> float:
        """Until the last token of a text is known: after `steps` decode steps of the job with index `job`."""
        before = sum(self._job_ms(other, other.steps) for other in work[:job])
        return self._language_from_ms + before + self._job_ms(work[job], steps)

    def decode_ms(self, batch: int) -> float:
        """One decode step on an otherwise idle device."""
        return _at(self._profile.decode, batch)

    def _job_ms(self, job: DecodeWork, steps: int) -> float:
        """A decode job up to `steps` of its steps."""
        prefill = self._profile.text_prefill or self._profile.prefill
        stack_ms = _at(self._profile.stack, job.batch) if self._profile.stack else 0.0
        begun = job.prefills * prefill.ms + job.forks * self._profile.fork.ms + stack_ms
        return self._slowdown * (begun + steps * self.decode_ms(job.batch))


def _at(times: Mapping[int, StageTime], batch: int) -> float:
    """Milliseconds at a batch size.

    Piecewise linear in the batch sizes of the profile, extrapolated above the largest; constant below the
    smallest.
    """
    sizes = sorted(times)
    if batch <= sizes[0] or len(sizes) == 1:
        return times[sizes[0]].ms
    above = next((size for size in sizes if size >= batch), sizes[-1])
    below = sizes[sizes.index(above) - 1]
    slope = (times[above].ms - times[below].ms) / (above - below)
    if batch > above:  # measurement noise must not make a larger batch faster
        return times[above].ms + max(0.0, slope) * (batch - above)
    return times[below].ms + slope * (batch - below)


def jitter(profile: ProfileConfig, key: EpisodeKey, query: int) -> float:
    """Log-normal factor with median 1 for all times of a query.

    A function of the profile's `jitter`, the episode key and the query number.
    """
    if profile.jitter == 0:
        return 1.0
    digest = hashlib.sha256(f"latency of {key}, query {query}".encode()).digest()
    share = ((int.from_bytes(digest[:8], "big") >> (64 - _RANDOM_BITS)) + 0.5) / 2**_RANDOM_BITS
    return math.exp(profile.jitter * statistics.NormalDist().inv_cdf(share))
