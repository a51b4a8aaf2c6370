"""New requests as device arrays with a fixed number of rows."""

from collections.abc import Sequence

import flax.struct
import jax
import numpy as np

from configs.errors import UsageError
from oxygen.serving.requests import Request
from oxygen.serving.sampler import SamplingInputs
from oxygen.serving.sampling import Sampling
from oxygen.typing import Leaf


@flax.struct.dataclass
class NewRequests:
    """Requests to fork in one program; rows with the spare slot are padding.

    Attributes:
        slots: KV slot, [row].
        robots: Prefix row, [row].
        suffix: The suffix without its last token, padded, [row, token]; at least one column.
        suffix_length: Valid tokens of that, [row].
        token: The suffix's last token, the first input of decoding, [row].
        choice: Sampling parameters; None if every request is greedy.
    """

    slots: Leaf
    robots: Leaf
    suffix: Leaf
    suffix_length: Leaf
    token: Leaf
    choice: SamplingInputs | None = None


def new_requests(
    requests: Sequence[Request], *, rows: int, spare: int, suffix: int, top_k: int
) -> NewRequests:
    """Send requests to the device.

    Args:
        requests: At most `rows` of them; rows left over are padding.
        rows: Rows of the fork program.
        spare: Slot of padding rows.
        suffix: Tokens of the longest suffix.
        top_k: The largest of any request; 0 if every request is greedy.

    Raises:
        UsageError: The programs were not compiled for the sampling of one of them.
    """
    heads = np.zeros((rows, max(1, suffix - 1)), np.int32)
    numbers = np.zeros((4, rows), np.int32)
    slots, robots, lengths, tokens = numbers
    slots[:] = spare
    for row, request in enumerate(requests):
        *head, tokens[row] = request.suffix
        heads[row, : len(head)] = head
        lengths[row], slots[row], robots[row] = len(head), request.slot, request.robot
    slots, robots, lengths, tokens, heads = jax.device_put((slots, robots, lengths, tokens, heads))
    return NewRequests(
        slots=slots,
        robots=robots,
        suffix=heads,
        suffix_length=lengths,
        token=tokens,
        choice=_choice(requests, rows, top_k),
    )


def _choice(requests: Sequence[Request], rows: int, most: int) -> SamplingInputs | None:
    for request in requests:
        _check(request.sampling, most)
    if not most:
        return None
    origin, top_k = np.zeros((rows, 4), np.uint32), np.zeros((rows,), np.int32)
    temperature = np.zeros((rows,), np.float32)
    for row, request in enumerate(requests):
        origin[row] = (*words_of(request.seed), request.query, request.task | request.ordinal << 16)
        temperature[row] = request.sampling.temperature
        top_k[row] = request.sampling.top_k or 0
    return SamplingInputs(*jax.device_put((origin, temperature, top_k)))


def words_of(seed: int) -> tuple[int, int]:
    """The high and the low half of a 64-bit seed."""
    return seed >> 32 & 0xFFFF_FFFF, seed & 0xFFFF_FFFF


def _check(sampling: Sampling, most: int) -> None:
    if not most and not sampling.greedy:
        raise UsageError(
            f"temperature {sampling.temperature:g} requires sampling; the programs were compiled greedy: "
            "compile them with the largest top_k of any task, at least 1"
        )
    if most and (sampling.top_k or 0) > most:
        raise UsageError(f"top_k is {sampling.top_k}; the programs were compiled for {most} at most")
