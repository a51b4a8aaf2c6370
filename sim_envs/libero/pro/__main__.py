"""`python -m sim_envs.libero.pro`: say which tasks run here. Called by `oxygen-eval setup`."""

import sys

from configs.exits import exit_code_of
from sim_envs.libero.pro.suite import DIMENSIONS, LIBERO_PRO, PREFIX
from sim_envs.suite import open_suite


def main() -> int:
    """Print the number of tasks and of those that run; returns the exit code."""

    def run() -> int:
        names = [
            f"{PREFIX}{suite}_{each}" for suite in ("spatial", "object", "goal", "10") for each in DIMENSIONS
        ]
        tasks = [task for name in names for task in open_suite(name).tasks()]
        left = sum(not task.missing for task in tasks)
        copy = LIBERO_PRO.find()
        sys.stdout.write(
            f"{LIBERO_PRO.name}: {len(tasks)} tasks in {copy}; {left} run with the assets here.\n"
        )
        return 0

    return exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main())
