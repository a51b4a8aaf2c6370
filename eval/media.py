"""`python -m eval.media RUN --readme FILE`: a finished run's picture, clip and table for a README."""

import os
import sys
from pathlib import Path

from cyclopts import App

from configs.cli import run_app
from configs.errors import UsageError
from configs.paths import usable_folder
from eval.records.schema import RunFolder
from eval.report.plain_text import visible
from eval.report.readme_media import ReadmeMedia, find_readme_media, to_markdown, write_pictures
from videos.mp4 import VideoError

BEGIN = "<!-- demo: begin. Written by python -m eval.media; edits are lost. -->"
END = "<!-- demo: end -->"

app = App(name="python -m eval.media", version_flags=[])


@app.default
def main(run: Path, /, *, readme: Path | None = None, docs: Path | None = None) -> None:
    """Show the best video of a finished run in a README, as a picture and a clip, and the run's table.

    Without --readme, print what would be written.

    Args:
        run: Folder of a run with videos; the other variants of its evaluation are found.
        readme: File whose text between the two `demo` markers is replaced.
        docs: Folder for `rollout.jpg` and `rollout.webp`. Default: `docs` beside the README.
    """
    media = find_readme_media(RunFolder(run))
    if readme is None:
        _print_preview(media, docs)
        return
    folder = usable_folder(docs or readme.parent / "docs", "--docs")
    still, clip = folder / "rollout.jpg", folder / "rollout.webp"
    links = [Path(os.path.relpath(path, readme.parent)).as_posix() for path in (clip, still)]
    picture = f"[![A rollout: both cameras, what is said, time and latency]({links[0]})]({links[1]})\n\n"
    page = between(_read(readme), picture + to_markdown(media))  # refused before anything is written
    try:
        write_pictures(media, still=still, clip=clip)
    except VideoError as error:
        raise UsageError(str(error)) from None
    readme.write_text(page, encoding="utf-8")
    sys.stdout.write(f"{visible(media.best.why)}\n{still}\n{clip}\n{readme}\n")


def _print_preview(media: ReadmeMedia, docs: Path | None) -> None:
    if docs is not None:
        raise UsageError(f"--docs {docs} is for pictures beside a README; name that with --readme")
    sys.stdout.write(
        f"{visible(media.best.why)}\n{media.best.path}\n\n{to_markdown(media)}\n\n"
        "Nothing is written. --readme FILE puts this table between the markers of that file, and a picture "
        "and a clip of the video beside it: docs/rollout.jpg and docs/rollout.webp.\n"
    )


def between(page: str, content: str) -> str:
    """The page with `content` between its markers, in place of what was there.

    Raises:
        UsageError: The page does not have each marker once, in order.
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
