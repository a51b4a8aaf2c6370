"""Keeps secrets out of records and messages: user, password and query of URLs, and arguments named like one.

A configuration holds its secrets in memory alone. What is written (`redact`) or shown (`redact_text`) has
`***` in their place.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, unquote

ValueT = TypeVar("ValueT")

MASK = "***"

_ARGUMENTS = {"kwargs", "policy_kwargs"}
"""Keys of mappings whose keys are names of arguments."""

_SECRET_NAME = re.compile(
    "key|token(?!i[sz])|secret|passw|passphrase|pwd|auth(?!or)|authori[sz]|credential|cookie|signature", re.I
)
_LONG = 8
"""Characters of a value in a query that may be a secret whatever its name."""

_URL = re.compile(
    r"""
    (?<![a-z0-9+.-]) (?P<scheme> [a-z][a-z0-9+.-]*:///? | (?:ws|http)s?:/? )
    (?: (?P<user> [^\s/?\#'"<>]* | [^\s/?\#@:\['"]* : (?!\d*(?:[/?\#\s'"]|$)) [^\s'"]* ) @ )?
    (?P<rest> [^\s?\#'"<>]* )
    (?: \? (?P<query> [^\s\#'"<>]* [^\s\#'"<>).,;:] ) )?
    (?: \# (?P<fragment> [^\s'"<>]* [^\s'"<>).,;:] ) )?
    """,
    re.I | re.X,
)
"""A URL in a text. A password may hold what only belongs in one as %2F, %3F or %23."""
_USER = re.compile(r"(?<![\w/])[\w.%+~-]+:[^\s/@'\"]+@(?=\[|[A-Za-z]|\d+\.\d)")
"""User and password of an address without a scheme."""
_NAMES = re.compile(r"^(?:-[\w-]+=)?(?:[\w.]+=)?")
"""The names before a value on a command line: `token=`, or `--policy-kwargs=token=`."""
_IS_URL = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.I)

_known: set[str] = set()


def redact(value: ValueT, *, named: bool = False) -> ValueT:
    """Remove the secrets from a record, such as a configuration; where `named`, keys name arguments."""
    redacted: Any = value
    if isinstance(value, Mapping):
        redacted = {
            name: MASK
            if named and is_secret(str(name), inner)
            else redact(inner, named=named or name in _ARGUMENTS)
            for name, inner in value.items()
        }
    elif isinstance(value, list | tuple):
        kind = list if isinstance(value, list) else tuple
        redacted = kind(redact(inner, named=named) for inner in value)
    elif isinstance(value, str):
        redacted = _URL.sub(_masked, value)
        if _IS_URL.match(value):  # no text with a URL in it: all of its end is the URL's
            redacted = re.sub(r"([?#]).+", rf"\1{MASK}", redacted, flags=re.S)
    return redacted


def redact_text(text: str) -> str:
    """A message or a command line without the secrets of its URLs, and those that this process was given."""
    text = _USER.sub(f"{MASK}@", _URL.sub(_masked, text))
    for secret in sorted(_known, key=len, reverse=True):
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(secret)}(?![A-Za-z0-9])", MASK, text)
    return text


def redact_command(words: Sequence[str]) -> list[str]:
    """Remove the secrets from the words of a command line, and values after names such as `token=`."""
    redacted, option = [], ""
    for word in words:
        names = "".join(_NAMES.findall(word)[:1])
        value = word.removeprefix(names)
        is_value = any(is_secret(name, value) for name in [option, *names.split("=")])
        redacted.append(
            names + MASK if is_value and not value.startswith("--") else redact_text(redact(word))
        )
        option = word if word.startswith("--") and not names else ""
    return redacted


def strip_url(url: str) -> str:
    """A URL without user, password, query and fragment, as it is shown."""
    return _URL.sub(lambda match: match["scheme"] + match["rest"], redact(url))


def is_secret(name: str, value: object) -> bool:
    """Whether an argument is a secret, by its name; names of variables and counts of tokens are none."""
    counts = "tokens" in name.lower() and str(value).isdecimal()
    names_variable = name.lower().endswith(("_env", "-env"))
    if value is None or isinstance(value, bool) or counts or names_variable:
        return False
    return _SECRET_NAME.search(name) is not None


def remember_secrets(value: Any, *, named: bool = False, secret: bool = False) -> None:
    """Keep a configuration's secrets out of all later messages of this process, wherever they stand in them.

    The arguments are those of `redact`; the whole value may be a `secret`.
    """
    if isinstance(value, Mapping):
        for name, inner in value.items():
            is_one = secret or (named and is_secret(str(name), inner))
            remember_secrets(inner, named=named or name in _ARGUMENTS, secret=is_one)
    elif isinstance(value, list | tuple):
        for inner in value:
            remember_secrets(inner, named=named, secret=secret)
    elif value is not None:
        text = str(value)
        found = [text, *text.split()[-1:]] if secret else _in_urls(text)  # `Bearer …`: alone, too
        _known.update(form for each in found if each not in ("", MASK) for form in _forms(each))


def _in_urls(text: str) -> Iterator[str]:
    for match in _URL.finditer(text):
        if user := match["user"]:
            yield user
            yield base64.b64encode(unquote(user).encode()).decode()  # as in the header of the handshake
            yield user.partition(":")[2]
        if query := match["query"]:
            yield query
            yield from (
                each for name, each in parse_qsl(query) if len(each) >= _LONG or is_secret(name, each)
            )
        yield match["fragment"] or ""


def _forms(secret: str) -> set[str]:
    return {secret, quote(secret), quote(secret, safe=""), unquote(secret), repr(secret)[1:-1]}


def _masked(match: re.Match[str]) -> str:
    user = "" if match["user"] is None else f"{MASK}@"
    query = "" if match["query"] is None else f"?{MASK}"
    return f"{match['scheme']}{user}{match['rest']}{query}{'' if match['fragment'] is None else f'#{MASK}'}"
