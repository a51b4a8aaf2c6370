"""Writes self-contained pages, which open from disk and from any static server.

Data that a page loads later is a script that calls a function, since browsers do not fetch files from disk.
"""

import contextlib
import functools
import importlib.resources
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from configs.errors import UsageError
from eval.report.plain_text import escape_control

_FILES = importlib.resources.files("eval.report.pages")
_SHARED = (
    "style.css",
    "tables.js",
    "plots.js",
    "timeline.js",
    "viewer.js",
    "vendor/uPlot.iife.min.js",
    "vendor/uPlot.min.css",
    "vendor/uPlot.LICENSE",
)


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(lambda name: page_file(name).decode()),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=escape_control,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["escape_control"] = escape_control
    return environment


def write_page(folder: Path, template: str, content: Mapping[str, Any]) -> Path:
    """Render a template to the folder's `index.html`, with the files it refers to.

    Raises:
        UsageError: The folder cannot be written.
    """
    page = folder / "index.html"
    with writing(folder):
        for name in _SHARED:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(page_file(name))
        page.write_bytes(render(template, content))
    return page


def render(template: str, content: Mapping[str, Any]) -> bytes:
    """Render a template to UTF-8."""
    return _environment().get_template(template).render(content).encode("utf-8", "backslashreplace")


def page_file(name: str) -> bytes:
    """The content of a template, style or script."""
    return (_FILES / name).read_bytes()


def write_script(path: Path, function: str, data: Mapping[str, Any]) -> None:
    """Write data as a script that calls a function with it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{function}({json.dumps(escape_control(data), allow_nan=False)});\n", encoding="utf-8")


def link_or_copy(source: Path, target: Path) -> bool:
    """Make a file available at another place, without using disk space where possible.

    Returns:
        Whether the source exists.
    """
    if not source.is_file():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without hard links
        shutil.copyfile(source, target)
    return True


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn failures to write to a folder into one line.

    Raises:
        UsageError: The folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UsageError(
            f"cannot write {str(error.filename or folder)!r}: {error.strerror}; give -o another folder"
        ) from None
