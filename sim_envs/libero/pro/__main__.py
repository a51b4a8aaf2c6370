"""`python -m sim_envs.libero.pro`: say which tasks run here. Called by `oxygen-eval setup`."""

import itertools
import sys

from configs.exits import exit_code_of
from sim_envs.libero.pro.suite import DIMENSIONS, LIBERO_PRO, PREFIX
from sim_envs.suite import open_suite


def _run() -> int:
    every = itertools.product(("spatial", "object", "goal", "10"), DIMENSIONS)
    tasks = [task for name in every for task in open_suite(PREFIX + "_".join(name)).tasks()]
    sys.stdout.write(LIBERO_PRO.available(tasks) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code_of(_run))
