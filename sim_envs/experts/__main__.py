"""`python -m sim_envs.experts`: how often the scripted policies solve LIBERO's tasks."""

import sys
from collections.abc import Sequence

from configs.errors import UsageError
from sim_envs.libero.gl import choose_backend


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, play, print a table; exit 2 with one line for bad input."""
    try:
        # Before anything imports MuJoCo, which answers a wrong MUJOCO_GL with a traceback.
        choose_backend()
        from sim_envs.experts.cli import measure

        measure(arguments)
    except UsageError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
