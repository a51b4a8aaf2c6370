"""`oxygen-eval preflight`: is this machine ready for an evaluation?"""

import dataclasses
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import Names, run_app
from configs.console import TextConsole
from configs.paths import usable_file

app = App(
    name="oxygen-eval preflight",
    help="Check versions, renderer, assets, policy, memory, disk and JAX, and run each suite for a few steps."
    "\n\nExit code: 0 if nothing fails, 1 if something does.",
)


@app.default
def preflight(
    *,
    suite: Names | None = None,
    policy: str | None = None,
    assets: str | None = None,
    num_envs: int = 1,
    output_dir: Path = Path("runs"),
    json: Annotated[Path | None, Parameter(name="--json")] = None,
) -> int:
    """Print one line per check: ok, warn or fail, with the remedy.

    Args:
        suite: Task suites. Default: those of the demo; without LIBERO, of DROID's.
        policy: The policy. Default: the demo's; none with --suite.
        assets: Source of the suites' assets. Default: auto; for the demo's suites, the demo's.
        num_envs: Number of parallel worlds that memory has to hold.
        output_dir: Folder that runs are written to.
        json: Also write the results to this file.
    """
    from configs.errors import check
    from configs.load import overlay
    from configs.schema import PlayConfig, RunConfig, VariantsConfig
    from eval.monitors.checks import print_result
    from eval.records.json_files import write_json

    if json is not None:
        json = usable_file(json, "--json")
    check(PlayConfig, {"num_envs": num_envs}, source="the command line")
    console = TextConsole()
    console.print("Half a minute or more: each suite is opened and played for a few steps.", soft_wrap=True)
    from eval.rollout.readiness import all_checks, demo_preset  # slow
    from sim_envs.preflight import Status

    given = {"suites": suite, "policy": policy, "assets": assets}
    flags = {name: value for name, value in given.items() if value is not None}
    options = overlay(VariantsConfig, demo_preset() if suite is None else None, flags)
    chosen = {name: options[name] for name in given if name in options}
    config = check(RunConfig, chosen, source="the command line")
    results = []
    for result in all_checks(config, output_dir, num_envs=num_envs):
        results.append(result)
        print_result(console, result)
    if json is not None:
        write_json(json, {"checks": [dataclasses.asdict(result) for result in results]})
    return int(any(result.status is Status.FAIL for result in results))


if __name__ == "__main__":
    run_app(app)
