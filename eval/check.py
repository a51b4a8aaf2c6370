"""`oxygen-eval check SUITE`: is a suite what it should be?"""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import Numbers, run_app
from configs.console import TextConsole
from configs.paths import shown, usable_file

app = App(
    name="oxygen-eval check",
    help="Open every task of a suite, draw its first picture, play it by holding still, at random and by the "
    "expert, and say what is wrong.\n\nExit code: 0 if nothing fails, 2 if something does.",
)


@app.default
def check(
    suite: str,
    /,
    *,
    task_ids: Annotated[Numbers, Parameter(show_default=False)] = (),
    assets: str = "auto",
    only_available: Annotated[bool, Parameter(show_default=False)] = False,
    per_category: int | None = None,
    picture: Path | None = None,
    play: bool = True,
) -> int:
    """Print a line per task, and each fault with its remedy; write the pictures of all into one image.

    Args:
        suite: A suite's name, or its YAML file.
        task_ids: Tasks, as `0 3 7` or `0-4`. Default: all.
        assets: Source of its assets.
        only_available: Only tasks for which the assets lack nothing.
        per_category: That many tasks of each category.
        picture: The image to write. Default: check_SUITE.png.
        play: Whether the tasks are also played.
    """
    from configs.errors import check as checked
    from configs.schema import RunConfig
    from eval.monitors.checks import print_result
    from eval.rollout.plan import chosen_tasks
    from sim_envs.contact_sheet import Sheet
    from sim_envs.preflight import Status
    from sim_envs.suite import open_suite
    from sim_envs.task_check import check_conformance, check_task

    asked = {"task_ids": task_ids, "only_available": only_available, "per_category": per_category}
    config = checked(RunConfig, asked, source="the command line")
    opened = open_suite(suite, assets=assets)
    file = usable_file(picture or Path(f"check_{opened.protocol.name}.png"), "--picture")
    sheet, console, playable = Sheet(file), TextConsole(), list[int]()
    tasks, failed = chosen_tasks(config, opened, suite), 0
    for task in tasks:
        found = check_task(opened, task, play=play)
        for result in found.results:
            print_result(console, result)
        if any(result.status is Status.FAIL for result in found.results):
            failed += 1
        else:
            playable.append(task.task_id)
        if found.pictures is not None:
            sheet.add(task, found.pictures)
    if play and playable:
        result = check_conformance(opened, opened.tasks()[playable[0]])
        print_result(console, result)
        failed += result.status is Status.FAIL
    drawn = sheet.write()
    done = f"{len(playable)} of {len(tasks)} tasks can be played."
    console.print(f"\n{done} Pictures: {shown(file)}" if drawn else f"\n{done}", soft_wrap=True)
    return 2 if failed else 0


if __name__ == "__main__":
    run_app(app)
