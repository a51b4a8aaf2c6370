"""What every command line here shares: one-line errors with exit code 2, lists, and how options are spelt."""

import re
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

from cyclopts import App, CycloptsError, Parameter, Token, UnknownOptionError

from configs.errors import UsageError, unknown

INPUT_ERROR = 2
"""Exit code for input that a person can mend."""
INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as shells have it."""


def run_app(app: App, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line and exit: 0 or what the command returns, 2 for bad input (one line), 130 for Ctrl-C.

    Args:
        app: The commands. What they return is the exit code; None counts as 0.
        arguments: What to parse instead of the process's own arguments.
    """
    try:
        code = app(
            arguments, exit_on_error=False, print_error=False, verbose=False, result_action="return_value"
        )
    except CycloptsError as error:
        _refuse(_one_line(error))
    except UsageError as error:
        _refuse(str(error))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(code or 0)


def _refuse(message: str) -> NoReturn:
    sys.stderr.write(f"error: {message}\n")
    sys.exit(INPUT_ERROR)


def _one_line(error: CycloptsError) -> str:
    """What was wrong with the arguments, in one line with a remedy."""
    remedy = "See --help."
    if isinstance(error, UnknownOptionError):
        names = {name for argument in error.argument_collection for name in argument.names}
        given = error.token.keyword or error.token.value
        return str(unknown("option", given.split("=")[0], names, remedy=remedy))
    return f"{' '.join(str(error).split())} {remedy}"


def _pieces(tokens: Sequence[Token]) -> list[str]:
    """The items of a list given as several values, several options, commas, or any mix of them."""
    pieces = [piece.strip() for token in tokens for piece in token.value.split(",")]
    if not all(pieces):
        given = " ".join(token.value for token in tokens)
        raise UsageError(f"{given!r} has an empty item: write a,b or a b")
    return pieces


def _names(_: type, tokens: Sequence[Token]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_pieces(tokens)))


def _numbers(_: type, tokens: Sequence[Token]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(number for piece in _pieces(tokens) for number in _range(piece)))


def _range(piece: str) -> range:
    """`7` is 7 alone, `0-9` is 0 to 9 with both ends."""
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", piece)
    if match is None:
        raise UsageError(f"{piece!r} is neither a number (7) nor a range (0-9)")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise UsageError(f"the range {piece!r} runs backwards: write {last}-{first}")
    return range(first, last + 1)


def spelt(option: str, value: Any) -> str:
    """An option as the command line takes it: `--init-ids 3 5`, `--resume`."""
    flag = "--" + option.replace("_", "-")
    if isinstance(value, list | tuple):
        return f"{flag} {' '.join(map(str, value)) or 'none'}"
    return flag if value is True else f"{flag} {value}"


def _list_option(converter: Callable[[type, Sequence[Token]], Any]) -> Parameter:
    return Parameter(converter=converter, consume_multiple=(1, None), negative_iterable=())


def _pairs(_type: type, tokens: Sequence[Token]) -> dict[str, str]:
    return dict(map(_pair, _pieces(tokens)))


def _pair(piece: str) -> tuple[str, str]:
    key, equals, value = piece.partition("=")
    if not key or not equals:
        raise UsageError(f"{piece!r} is not of the form key=value")
    return key, value


Pairs = Annotated[
    dict[str, str],
    Parameter(converter=_pairs, n_tokens=-1, consume_multiple=(1, None), negative_iterable=()),
]
"""Settings by name: `--policy-kwargs a=1 b=2`."""

Names = Annotated[tuple[str, ...], _list_option(_names)]
"""A list of words: `--suite a b`, `--suite a --suite b` and `--suite a,b` are one; doubles count once."""

Numbers = Annotated[tuple[int, ...], _list_option(_numbers)]
"""A list of whole numbers from 0 on, likewise, with ranges that include both ends: `--task-ids 0-3,7`."""
