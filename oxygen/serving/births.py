"""Requests on their way to the device: arrays of a fixed number of rows, with the key that each draws by."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from configs.errors import UsageError
from oxygen.serving.decoding import Births
from oxygen.serving.drawing import Choice
from oxygen.serving.sampling import GREEDY, Sampling


@dataclasses.dataclass(frozen=True, kw_only=True)
class Birthing:
    """A request to be begun.

    Attributes:
        slot: Where it will live.
        parent: The robot, a row of the prefix, whose observation it speaks of.
        suffix: Tokens that ask for the text; at least one.
        seed: The robot's episode seed, 64 bits.
        query: The query it is born in.
        task: Its language task, a number below 2^16.
        ordinal: Which it is of the requests of its task that are born in that query, below 2^16. The
            request's key is a function of seed, query, task and ordinal alone.
        sampling: How its tokens are chosen.
    """

    slot: int
    parent: int
    suffix: Sequence[int]
    seed: int
    query: int
    task: int
    ordinal: int = 0
    sampling: Sampling = GREEDY


def births_of(requests: Sequence[Birthing], *, rows: int, slots: int, suffix: int, top_k: int) -> Births:
    """Requests on the device.

    Args:
        requests: At most `rows` of them; rows left over are padding.
        rows: How many one fork takes.
        slots: Places in the pool; padding goes to the spare one behind them.
        suffix: Tokens of the longest suffix.
        top_k: The largest of any request; 0 where nothing is drawn.

    Raises:
        UsageError: One wants its tokens drawn in a way that the programs were not compiled for.
    """
    heads = np.zeros((rows, max(1, suffix - 1)), np.int32)
    numbers = np.zeros((4, rows), np.int32)
    places, parents, lengths, tokens = numbers
    places[:] = slots
    for row, request in enumerate(requests):
        *head, tokens[row] = request.suffix
        heads[row, : len(head)] = head
        lengths[row], places[row], parents[row] = len(head), request.slot, request.parent
    places, parents, lengths, tokens, heads = jax.device_put((places, parents, lengths, tokens, heads))
    return Births(
        slots=places,
        parents=parents,
        suffix=heads,
        suffix_length=lengths,
        token=tokens,
        choice=_choice(requests, rows, top_k),
    )


def _choice(requests: Sequence[Birthing], rows: int, most: int) -> Choice | None:
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
    return Choice(*jax.device_put((origin, temperature, top_k)))


def words_of(seed: int) -> tuple[int, int]:
    """The high and the low half of a 64-bit seed."""
    return seed >> 32 & 0xFFFF_FFFF, seed & 0xFFFF_FFFF


def _check(sampling: Sampling, most: int) -> None:
    if not most and not sampling.greedy:
        raise UsageError(
            f"temperature {sampling.temperature:g} asks for drawn tokens; the programs were compiled greedy: "
            "compile them with the largest top_k of any task, at least 1"
        )
    if most and (sampling.top_k or 0) > most:
        raise UsageError(f"top_k is {sampling.top_k}; the programs were compiled for {most} at most")
