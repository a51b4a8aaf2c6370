"""How often the expert solves perturbed episodes, beside their controls.

python -m benchmarks.solvability libero_object --assets standins --perturb robot:3 layout:3 --init-ids 0-4
"""

import contextlib
import sys
from collections import Counter
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import Names, Numbers, run_app
from contracts.episode import EpisodeKey
from sim_envs.suite import Suite, open_suite
from sim_envs.task_check import play_episode
from sim_envs.world import Perturbable, World, perturbed_world

app = App(name="python -m benchmarks.solvability", help=__doc__)


@app.default
def main(
    suites: Names,
    /,
    *,
    perturb: Annotated[Names, Parameter(required=True)],
    task_ids: Numbers = (),
    init_ids: Numbers = (0,),
    seed: int = 7,
    assets: str = "auto",
) -> None:
    """Play each initial state of each task under each perturbation and without; print a row after each state.

    Args:
        suites: The suites.
        perturb: Perturbations, such as robot:3, each alone.
        task_ids: Tasks. Default: all that the expert plays.
        init_ids: Initial states.
        seed: Seed of the episodes.
        assets: Source of assets.
    """
    for name in suites:
        suite, solved, played, redraws = open_suite(name, assets=assets), Counter(), Counter(), Counter()
        for init_id in init_ids:
            for task in suite.expert_tasks():
                if not task_ids or task.task_id in task_ids:
                    key = EpisodeKey(suite=name, task_id=task.task_id, init_id=init_id, seed=seed)
                    with contextlib.closing(suite.open(task)) as world:
                        for text in ("none", *perturb):
                            perturbed = open_suite(name, assets=assets, perturb=text)
                            solved[text] += _is_solved(perturbed, world, key)
                            played[text] += 1
                            redraws[text] += world.perturber.redraws if isinstance(world, Perturbable) else 0
            rows = (f"{text} {solved[text]}/{played[text]} ({redraws[text]} redraws)" for text in played)
            sys.stdout.write(f"{name}: {', '.join(rows)}\n")
            sys.stdout.flush()


def _is_solved(suite: Suite, world: World, key: EpisodeKey) -> bool:
    """Whether the expert solves an episode; False if no draw of its perturbation is possible."""
    perturbed_world(world, suite.protocol.perturb)
    expert = suite.expert(world)
    assert expert is not None, "its tasks have an expert"
    try:
        return play_episode(suite, world, key, expert)[0]
    except RuntimeError as error:
        sys.stdout.write(f"{key}: {error}\n")
        return False


if __name__ == "__main__":
    run_app(app)
