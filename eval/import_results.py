"""`oxygen-eval import FILE`: results of other programs as a run, to compare, rank and show."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import run_app
from configs.console import TextConsole
from configs.paths import shown, usable_folder
from configs.schema import PROTOCOL, Count, EnvSeedOption, Name, Pixels, Preset, Seed, SettleSteps

app = App(name="oxygen-eval import", default_parameter=Parameter(negative=""))


class Changes(Preset):
    """What was played otherwise than the protocol of that name.

    Attributes:
        max_steps: Step limit of an episode. Default, as of all below: the protocol's.
        num_steps_wait: Settle steps before the first query.
        replan_steps: Control steps between two queries.
        env_seed: Seeding of the environment, as for run.
        camera_size: Height and width of rendered images, pixels.
    """

    max_steps: Annotated[Count | None, PROTOCOL] = None
    num_steps_wait: Annotated[SettleSteps | None, PROTOCOL] = None
    replan_steps: Annotated[Count | None, PROTOCOL] = None
    env_seed: Annotated[EnvSeedOption | None, PROTOCOL] = None
    camera_size: Annotated[Pixels | None, PROTOCOL] = None


@app.default
def main(
    file: Path,
    /,
    *,
    policy: Name,
    protocol: Name,
    suite: Name | None = None,
    seed: Seed = 7,
    in_order: bool = False,
    changes: Annotated[Changes, Parameter(name="*")] = Changes(),  # noqa: B008 - frozen
    output_dir: Annotated[Path, Parameter(name=["--output-dir", "-o"])] = Path("runs"),
) -> None:
    """Write the results in a file as a run, marked as imported.

    Args:
        file: LeRobot's eval_info.json; the aggregate JSON of vla-evaluation-harness; or a CSV file with
            columns task (or task_id) and outcome (or success), and where known suite, init_id, seed, steps,
            wall_s.
        policy: The policy's name.
        protocol: The protocol under which it was played, such as lerobot. It is believed: the run is compared
            with runs of the protocol of that name.
        suite: The suite, where the file does not name it.
        seed: The seed of episodes, where the file does not name it.
        in_order: Trial i of a task began in initial state i, which LeRobot's file does not say: it is so with
            --eval.batch_size 1, and with asynchronous environments. Without it, episodes are not paired.
        output_dir: Parent of the run's folder.
    """
    usable_folder(output_dir, "--output-dir")
    from eval.metrics.rows import RunRows, rate_of  # slow: statistics; --help needs none
    from eval.records.reader import RunRecords
    from eval.report.conclusion import conclude_run
    from eval.rollout.importing import import_results

    folder = import_results(
        file,
        output_dir,
        policy=policy,
        protocol=protocol,
        changes=changes.model_dump(mode="json", exclude_none=True),
        suite=suite,
        seed=seed,
        in_order=in_order,
    )
    run = RunRows(RunRecords(folder)).records
    episodes = list(run.episodes.values())
    console = TextConsole()
    console.print(conclude_run(policy, rate_of(episodes), len(episodes)), soft_wrap=True, markup=False)
    if not run.identity.names_states:
        console.print("Initial states are unknown, so that its episodes are not paired (--in-order).")
    console.print(f"records {shown(folder.path)}", soft_wrap=True, markup=False)


if __name__ == "__main__":
    run_app(app)
