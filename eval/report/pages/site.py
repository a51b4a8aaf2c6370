"""Writes self-contained pages, which open from disk and from any static server.

Data that a page loads later is a script that calls a function, since browsers do not fetch files from disk.
"""

import functools
import importlib.resources
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from configs.console import visible_text
from contracts.errors import UsageError
from eval.report.figures import Chart

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


def write_page(folder: Path, template: str, content: Mapping[str, Any], **texts: str) -> Path:
    """Render a template to the folder's `index.html`, with the files it refers to and `texts` by name.

    Raises:
        UsageError: The folder cannot be written.
    """
    files = ((name, text.encode("utf-8", "backslashreplace")) for name, text in texts.items())
    return write_files(folder, [*files, *page_files(template, content)])


def page_files(template: str, content: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Name and content of the page that a template renders to, and of the files it refers to."""
    for name in _SHARED:
        yield name, page_file(name)
    page = _environment().get_template(template).render(content, swatch=swatch)
    yield "index.html", page.encode("utf-8", "backslashreplace")


def write_files(folder: Path, files: Iterable[tuple[str, bytes | Path]]) -> Path:
    """Write files by name, and return `index.html`; a path is linked where the disk allows it, else copied.

    Raises:
        UsageError: The folder cannot be written.
    """
    try:
        for name, content in files:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                target.write_bytes(content)
            else:
                target.unlink(missing_ok=True)
                try:
                    os.link(content, target)
                except OSError:  # another disk, or one without hard links
                    shutil.copyfile(content, target)
    except OSError as error:
        raise UsageError(
            f"cannot write {str(error.filename or folder)!r}: {error.strerror}; give -o another folder"
        ) from None
    return folder / "index.html"


def page_file(name: str) -> bytes:
    """The content of a template, style or script."""
    return (_FILES / name).read_bytes()


def script(function: str, data: Mapping[str, Any]) -> bytes:
    """Data as a script that calls a function with it."""
    return f"{function}({json.dumps(escape_control(data), allow_nan=False)});\n".encode()


def escape_control(value: Any) -> Any:
    """The value with control characters, such as terminal colours, as visible symbols."""
    if hasattr(value, "__html__"):
        return value  # of a template
    match value:
        case str():
            return visible_text(value)
        case Mapping():
            return {escape_control(key): escape_control(each) for key, each in value.items()}
        case list() | tuple():
            return [escape_control(each) for each in value]
    return value


def swatch(label: str, colour: str) -> Markup:
    """A label with the colour that stands for it."""
    shown = Markup('<span class="label"><span class="swatch" style="background: {}"></span>{}</span>')
    return shown.format(colour, escape_control(label))


def link(address: str, text: str) -> Markup:
    """A text that links to an address."""
    return Markup('<a href="{}">{}</a>').format(address, escape_control(text))


def whisker(percent: float, interval: Sequence[float], text: str, colour: str = "var(--accent)") -> Markup:
    """A percentage, by which a table is sorted, with its interval, drawn and in words."""
    low, high = interval
    return Markup(
        '<span class="whisker" data-value="{0}" aria-hidden="true">'
        '<i style="left: {1}%; width: {2}%; background: {4}"></i>'
        '<b style="left: {0}%; background: {4}"></b></span><span class="rate">{3}</span>'
    ).format(percent, low, high - low, escape_control(text), colour)


def chart_group(title: str, *charts: Chart | None) -> list[dict[str, Any]]:
    """The data of charts under a common title, without those that have no point; no group if none has."""
    kept = [_chart_data(chart) for chart in charts if chart and any(line.points for line in chart.lines)]
    return [{"title": title, "charts": kept}] if kept else []


def _chart_data(chart: Chart) -> dict[str, Any]:
    shown = [line for line in chart.lines if line.points]
    highest = max(high for line in shown for *_, high in line.points)
    names = ("y",) if chart.look == "plain" else ("y", "low", "high")
    series = []
    for line in shown:
        xs, *ys = zip(*line.points, strict=True)
        places: list[float] = []
        for x in xs:  # equal ones are moved apart imperceptibly: uPlot shows one value at each
            far = not places or x > places[-1]
            places.append(x if far else places[-1] + 1e-6 * (1 + abs(x)))
        values = {name: [round(value, 4) for value in each] for name, each in zip(names, ys, strict=False)}
        series.append({"label": line.label, "colour": line.colour, "x": places, **values})
    limits = [-2, 102] if chart.is_percent else [0, 1.1 * highest or 1]
    return {"x": chart.x, "y": chart.y, "look": chart.look, "range": limits, "series": series}
