"""`python -m eval.media`: a run's clip and table for a README; an episode of two runs side by side."""

import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import Names, Numbers, run_app
from configs.errors import UsageError
from configs.paths import usable_file, usable_folder
from configs.reading import read_text
from eval.records.schema import RunFolder
from eval.report.marked_block import MarkedBlock
from eval.report.plain_text import escape_control
from eval.report.readme_media import ReadmeMedia, find_readme_media, to_markdown, write_pictures
from eval.report.side_by_side import Filters, find_pair
from videos.mp4 import VideoError

DEMO = MarkedBlock("demo", "python -m eval.media")

app = App(name="python -m eval.media")


@app.default
def main(
    run: Path,
    other: Path | None = None,
    /,
    *,
    side_by_side: Annotated[bool, Parameter(negative="")] = False,
    suites: Annotated[Names, Parameter(name="--suite")] = (),
    task_ids: Numbers = (),
    init_ids: Numbers = (),
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    readme: Path | None = None,
    docs: Path | None = None,
) -> None:
    """Show an episode of a finished run in a README, as a picture and a clip, and the run's table.

    The episode is the run's best, or with --side-by-side one that two runs have played, on one clock of
    simulated time. Without --readme, print a preview, or write the side-by-side video.

    Args:
        run: Folder of a run with videos; the other variants of its evaluation are found.
        other: With --side-by-side, the folder of the run to show on the right.
        side_by_side: Show both runs' videos of an episode: one that only one of them solved if there is one,
            else the one whose lengths differ most.
        suites: With --side-by-side, suites from which the episode is chosen. Default: all.
        task_ids: Tasks from which it is chosen, as `0 3 7`, `0,3,7` or `0-4`. Default: all.
        init_ids: Initial states from which it is chosen. Default: all.
        output: With --side-by-side, the MP4 file to write. Default: side_by_side.mp4.
        readme: File whose text between the two `demo` markers is replaced.
        docs: Folder for `rollout.jpg` and `rollout.webp`. Default: `docs` next to the README.
    """
    filters = Filters(suites=suites, task_ids=task_ids, init_ids=init_ids)
    if side_by_side and other is None:
        raise UsageError("--side-by-side shows two runs: give the folder of another after the first")
    given = [str(other or ""), str(filters), "" if output is None else f"--output {output}"]
    if not side_by_side and (useless := next(filter(None, given), None)):
        raise UsageError(f"{useless} is for two runs side by side; give --side-by-side, or leave it out")
    if output is not None and readme is not None:
        raise UsageError(f"--output {output} is for a video without --readme; give one of the two")
    if docs is not None and readme is None:
        raise UsageError(f"--docs {docs} is for pictures beside a README; name that with --readme")
    pair = None if other is None else find_pair(RunFolder(run), RunFolder(other), filters)
    try:
        if readme is not None:
            _write_readme(find_readme_media(RunFolder(run), pair), readme, docs or readme.parent / "docs")
        elif pair is not None:
            path = usable_file(output or Path("side_by_side.mp4"), "--output")
            pair.write(path)
            sys.stdout.write(f"{escape_control(pair.why)}\n{path}\n")
        else:
            media = find_readme_media(RunFolder(run))
            sys.stdout.write(
                f"{escape_control(media.why)}\n{media.best.path}\n\n{to_markdown(media)}\n\n"
                "Nothing is written. --readme FILE puts this table between the markers of that file, and a "
                "picture and a clip of the video beside it: docs/rollout.jpg and docs/rollout.webp.\n"
            )
    except VideoError as error:
        raise UsageError(str(error)) from None


def _write_readme(media: ReadmeMedia, readme: Path, docs: Path) -> None:
    folder = usable_folder(docs, "--docs")
    still, clip = folder / "rollout.jpg", folder / "rollout.webp"
    links = [Path(os.path.relpath(path, readme.parent)).as_posix() for path in (clip, still)]
    picture = f"[![{media.alternative_text}]({links[0]})]({links[1]})\n\n"
    page = DEMO.replaced(read_text(readme), picture + to_markdown(media))  # fails before anything is written
    write_pictures(media, still=still, clip=clip)
    readme.write_text(page, encoding="utf-8")
    sys.stdout.write(f"{escape_control(media.why)}\n{still}\n{clip}\n{readme}\n")


if __name__ == "__main__":
    run_app(app)
