"""`python -m eval.media RUN`: a finished run's picture, clip and table for the README."""

import os
from pathlib import Path

from cyclopts import App

from configs.cli import run_app
from configs.errors import UsageError
from eval.records.schema import RunFolder
from eval.report.readme_media import find_showcase, to_markdown, write_pictures
from videos.mp4 import VideoError

BEGIN = "<!-- demo: begin. Written by python -m eval.media; edits are lost. -->"
END = "<!-- demo: end -->"

app = App(name="python -m eval.media", version_flags=[])


@app.default
def main(run: Path, /, *, readme: Path = Path("README.md"), docs: Path = Path("docs")) -> None:
    """Write the best video of a finished run as a picture and a clip, and the run's table into the README.

    Args:
        run: The folder of a run with videos, or of one of several arms; the others are found by it.
        readme: What stands between its two `demo` markers is replaced.
        docs: Where `rollout.jpg` and `rollout.webp` go.
    """
    page = _read(readme)
    showcase = find_showcase(RunFolder(run))
    still, clip = docs / "rollout.jpg", docs / "rollout.webp"
    try:
        write_pictures(showcase, still=still, clip=clip)
    except VideoError as error:
        raise UsageError(str(error)) from None
    links = [Path(os.path.relpath(path, readme.parent)).as_posix() for path in (clip, still)]
    picture = f"[![A rollout: both cameras, what is said, time and latency]({links[0]})]({links[1]})\n\n"
    readme.write_text(between(page, picture + to_markdown(showcase)), encoding="utf-8")
    print(f"{showcase.best.why}\n{still}\n{clip}\n{readme}")  # noqa: T201 - what the command is for


def between(page: str, content: str) -> str:
    """The page with `content` between its markers, in place of what was there.

    Raises:
        UsageError: It has not each of the markers once, in their order.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise UsageError(f"the README needs each of the lines {BEGIN!r} and {END!r} once, in this order")
    return f"{before}{BEGIN}\n\n{content}\n\n{END}{after}"


def _read(readme: Path) -> str:
    try:
        return readme.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {str(readme)!r}: {error.strerror}; give --readme another") from None


if __name__ == "__main__":
    run_app(app)
