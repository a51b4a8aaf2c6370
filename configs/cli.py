"""Shared by all command lines: checked options and presets, lists, and errors of one line."""

import functools
import inspect
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, NoReturn, TypeVar, Union, get_args, get_origin

import docstring_parser
from cyclopts import (
    UNSET,
    App,
    ArgumentCollection,
    CycloptsError,
    MissingArgumentError,
    Parameter,
    Token,
    UnknownOptionError,
    UnusedCliTokensError,
)
from docstring_parser import DocstringStyle
from pydantic import AfterValidator, BeforeValidator, ValidationError

from configs import __version__
from configs.errors import invalid
from configs.exits import exit_code_of
from configs.paths import parse_yaml, refuse_home, relative_to_here
from contracts.errors import UsageError, unknown
from contracts.redaction import MASK, is_secret

ValueT = TypeVar("ValueT")

_FORMAT_WARNING = warnings.formatwarning
_MAX_NUMBERS = 100_000  # in one range


class _BriefHelp:
    """A formatter of `--help` that shows some options, in this order; `--help-all` shows all."""

    def __init__(self, *shown: str) -> None:
        self._places = {f"--{name}": place for place, name in enumerate(shown)}

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        """Print a panel of options or commands."""
        from cyclopts.help.formatters import DefaultFormatter  # slow

        if panel.format == "parameter":
            shown = [entry for entry in panel.entries if self._place(entry) is not None]
            panel = panel.copy(entries=sorted(shown, key=self._place))
        if panel.entries:
            DefaultFormatter()(console, options, panel)

    def render_usage(self, console: Any, options: Any, usage: Any) -> None:
        """Print the line above all."""
        from cyclopts.help.formatters import DefaultFormatter  # slow

        DefaultFormatter().render_usage(console, options, usage)

    def _place(self, entry: Any) -> Any:
        return min((self._places[name] for name in entry.names if name in self._places), default=None)


def brief_app(command: str, about: str, *shown: str) -> App:
    """The command line of `oxygen-eval COMMAND`, whose help begins with `about` and shows some options."""
    return App(
        name=f"oxygen-eval {command}",
        help=about,
        help_formatter=_BriefHelp(*shown),
        help_epilogue="`--help-all` lists all options.",
        default_parameter=Parameter(negative=""),
    )


def run_app(app: App, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line, by default the process's own, and exit as `configs.exits.exit_code_of` says."""
    app.config = (_check_tokens,)
    app.version = __version__
    for flag in (*app.help_flags, *app.version_flags):
        app[flag].show = False  # the box Commands is left to commands
    # cyclopts also reads the sources of options' classes, and of pydantic's, for docstrings of single fields.
    docstring_parser.parse_from_object = _parse_docstring
    warnings.formatwarning = _format_warning
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if "--help-all" in (arguments[:1] if app.help_formatter is None else arguments):
        app.help_formatter, app.help_epilogue, arguments = None, None, ["--help"]

    def command() -> int | None:
        try:
            with relative_to_here():
                code: int | None = app(
                    arguments,
                    exit_on_error=False,
                    print_error=False,
                    verbose=False,
                    result_action="return_value",
                )
        except CycloptsError as error:
            raise usage_error(error) from None
        return code

    sys.exit(exit_code_of(command))


def _format_warning(message: Warning | str, category: type[Warning], *where: Any, **line: Any) -> str:
    """One line for a warning to users; others, which are for programmers, also say where they arose."""
    if category is UserWarning:
        return f"warning: {message}\n"
    return _FORMAT_WARNING(message, category, *where, **line)


def _parse_docstring(obj: Any, style: DocstringStyle = DocstringStyle.AUTO) -> docstring_parser.Docstring:
    return docstring_parser.parse(obj.__doc__ or "", style)


def usage_error(error: CycloptsError) -> UsageError:
    """Convert cyclopts' error to one line with a remedy."""
    remedy = "See --help."
    if isinstance(error.__cause__, ValidationError):
        return invalid(error.__cause__, "the command line")
    if isinstance(error, UnknownOptionError):
        arguments = [argument for argument in error.argument_collection if argument.parse]
        names = dict.fromkeys(name for argument in arguments for name in argument.names)
        given = error.token.keyword or error.token.value
        return unknown("option", given.split("=")[0], names, remedy=remedy)
    if isinstance(error, UnusedCliTokensError):
        parameters = inspect.signature(error.target).parameters.values() if error.target else ()
        places = [each.name.upper() for each in parameters if each.kind is each.POSITIONAL_ONLY]
        takes = " ".join(places) or "only options, as --NAME VALUE"
        left = " ".join(error.unused_tokens or ())
        return UsageError(f"too much: {left}; the command takes {takes}. {remedy}")
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        return UsageError(f"{error.keyword or error.argument.name} is missing: give it. {remedy}")
    message = " ".join(str(error).split()).removesuffix(".")
    return UsageError(f"{message}. {remedy}")


def _check_tokens(_app: App, _commands: Sequence[str], arguments: ArgumentCollection) -> None:
    """Refuse empty values, unknown home folders, and fractions, which cyclopts would round."""
    for argument in arguments:
        kinds = _kinds_of(argument.hint)
        is_whole = argument.parameter.converter is None and kinds == {int}
        for token in argument.tokens:
            given = f"{argument.name} {token.value!r}"
            if not token.value.strip() and token.implicit_value is UNSET:
                raise UsageError(f"{given}: give a value, or leave the option out")
            if token.value.startswith("~"):
                refuse_home(given, token.value, literal=Path in kinds)
            if is_whole and re.fullmatch(r"[+-]?[0-9]{1,18}", token.value) is None:
                raise UsageError(f"{given}: give a whole number, such as 10")
            if argument.parameter.converter is None and kinds == {float} and not _is_number(token.value):
                raise UsageError(f"{given}: give a number, such as 0.5")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _kinds_of(hint: Any) -> set[Any]:
    """The types of an option's values, without None."""
    if get_origin(hint) is Annotated:
        return _kinds_of(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return {kind for each in get_args(hint) for kind in _kinds_of(each)} - {type(None)}
    return {hint}


def pieces_of(given: Iterable[str]) -> list[str]:
    """The items of a list given as several values, several options, commas, or any mix of them."""
    pieces = [piece.strip() for value in given for piece in value.split(",")]
    if not all(pieces):
        raise UsageError(f"{' '.join(given)!r} has an empty item: write a,b or a b")
    return pieces


def _numbers(given: Sequence[str], *, distinct: bool = False) -> tuple[int, ...]:
    """Numbers (`7`) and ranges that include both ends (`0-9`); with `distinct`, each once at most."""
    numbers: dict[int, None] = {}
    for piece in pieces_of(given):
        match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", piece)
        if match is None:
            raise UsageError(f"{piece!r} is neither a number (7) nor a range (0-9)")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(f"the range {piece!r} runs backwards: write {last}-{first}")
        if last - first >= _MAX_NUMBERS:
            raise UsageError(
                f"the range {piece!r} holds {last - first + 1} numbers; at most {_MAX_NUMBERS} may be given"
            )
        new = range(first, last + 1)
        if distinct and (twice := [number for number in new if number in numbers]):
            raise UsageError(f"{twice[0]} is given twice in {' '.join(given)}; give each number once")
        numbers |= dict.fromkeys(new)
    return tuple(numbers)


def option_arguments(option: str, value: Any) -> list[str]:
    """An option as command-line arguments."""
    flag = "--" + option.replace("_", "-")
    if value is True:
        return [flag]
    items = value if isinstance(value, list | tuple) else [value]
    return [flag, *(map(str, items) if items else ["none"])]


def format_option(option: str, value: Any) -> str:
    """An option as typed on a command line: `--init-ids 3 5`, `--resume`."""
    return shlex.join(option_arguments(option, value))


def ranges(numbers: Iterable[int]) -> list[str]:
    """Whole numbers as ranges that `Numbers` reads: `0-3`, `7`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ["-".join(map(str, run)) for run in runs]


def read_kwargs(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse keyword arguments, each value a YAML scalar: `scale=0.5 fast=true`; else a UsageError."""
    kwargs: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"policy argument {pair!r}: write key=value, such as scale=0.5")
        if key in kwargs:
            raise UsageError(f"policy argument {key!r} is given twice; give it once")
        if re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+", value):  # YAML 1.1 reads 1e-3 as a string
            kwargs[key] = float(value)
        else:
            try:
                kwargs[key] = parse_yaml(value, f"policy argument {key!r}")
            except UsageError:
                kwargs[key] = ...
        if not isinstance(kwargs[key], str | int | float | bool | None):
            shown = MASK if is_secret(key, value) else repr(value)
            raise UsageError(
                f"policy argument {key!r} is {shown}; give a number, true, false, null or a (quoted) word"
            )
    return kwargs


_LIST = Parameter(consume_multiple=(1, None), negative_iterable=(), show_default=False)


def _list_option(read: Callable[[Sequence[str]], Any]) -> tuple[Parameter, Parameter, BeforeValidator]:
    """Parse a list alike from a command line and from YAML."""

    def convert(_: type, tokens: Sequence[Token]) -> Any:
        return read([token.value for token in tokens])

    def validate(value: Any) -> Any:
        items = [value] if isinstance(value, str | int) else value
        return read([str(item) for item in items]) if isinstance(items, list | tuple) else value

    return _LIST, Parameter(converter=convert), BeforeValidator(validate)


Words = Annotated[tuple[str, ...], _LIST]
"""A list of words, unchanged: `--policy-kwargs a=1 b=2`."""

Several = Annotated[tuple[ValueT, ...], *_list_option(lambda given: tuple(dict.fromkeys(pieces_of(given))))]
"""A list without duplicates: `--mode a b`, `--mode a --mode b` and `--mode a,b` are equivalent."""

Names = Several[str]

RepeatableNames = Annotated[tuple[str, ...], *_list_option(lambda given: tuple(pieces_of(given)))]
"""Likewise, with duplicates."""

NamesOrNone = Annotated[Names, AfterValidator(lambda names: () if names == ("none",) else names)]
"""A list of words; `none` is the empty one."""

NumbersOf = Annotated[tuple[ValueT, ...], *_list_option(_numbers)]
"""Likewise of whole numbers from 0, with ranges that include both ends: `--task-ids 0-3,7`."""

DistinctOf = Annotated[tuple[ValueT, ...], *_list_option(functools.partial(_numbers, distinct=True))]
"""Likewise, where a number that is given twice is an error."""

Numbers = NumbersOf[int]
