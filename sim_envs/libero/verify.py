"""`python -m sim_envs.libero.verify FILE.npz`: does this machine's LIBERO compute what the reference did?"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from configs.errors import UsageError
from sim_envs.libero.gl import choose_backend

BAD_INPUT = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit code says whether all episodes agree."""
    try:
        options = _parser().parse_args(arguments)
        # Before anything imports MuJoCo, which answers a wrong MUJOCO_GL with a traceback.
        choose_backend()
        from sim_envs.libero.assets import find_assets
        from sim_envs.libero.replay import read_reference, report

        reference = read_reference(options.file)
        return report(reference, find_assets(options.assets))
    except UsageError as error:
        sys.stderr.write(f"error: {error}\n")
        return BAD_INPUT


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See --help.")


def _parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(
        prog="python -m sim_envs.libero.verify",
        description="Replay reference trajectories of LIBERO and print the largest error per episode.",
        epilog="Exit code: 0 all episodes agree, 1 some differ, 2 the input is not usable.",
    )
    parser.add_argument("file", type=Path, help="reference trajectories, .npz")
    parser.add_argument("--assets", help="folder of LIBERO's asset tree, `download`, or `auto` (the default)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
