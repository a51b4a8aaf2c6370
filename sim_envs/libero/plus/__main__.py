"""`python -m sim_envs.libero.plus`: say which tasks run here. Called by `oxygen-eval setup`."""

import sys

from configs.exits import exit_code_of
from sim_envs.libero.plus.suite import LIBERO_PLUS, PREFIX, PUBLISHED
from sim_envs.suite import open_suite


def _run() -> int:
    """Print how many tasks run here, and what the others need."""
    suites = [open_suite(f"{PREFIX}{name}") for name in PUBLISHED]
    tasks = [task for suite in suites for task in suite.tasks()]
    lines = [LIBERO_PLUS.available(tasks)]
    if any(task.missing for task in tasks):
        lines.append(
            "The others (lights, textures, added objects) need its assets: unpack assets.zip (6.4 GB) of "
            "https://huggingface.co/datasets/Sylvest/LIBERO-plus and give the folder with --assets; "
            "--only-available plays without them."
        )
    if not any(task.difficulty for task in tasks):
        lines.append(
            "Difficulties are unknown: a checkout of https://github.com/sylvestf/LIBERO-plus has them, "
            f"which {LIBERO_PLUS.option} PATH or {LIBERO_PLUS.variable}=PATH names."
        )
    for suite in suites:
        suite.check([task for task in suite.tasks() if not task.missing][:1])
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code_of(_run))
