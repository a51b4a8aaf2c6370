"""`python -m oxygen.tools.parity FIXTURE.npz [...]`: compare the model with reference outputs."""

import sys
from collections.abc import Sequence
from pathlib import Path

from configs.errors import UsageError
from configs.exits import OneLineParser, exit_code_of


def main(arguments: Sequence[str]) -> int:
    """Compare every fixture named on the command line; returns the exit code."""
    parser = OneLineParser(prog="python -m oxygen.tools.parity", description=__doc__)
    parser.add_argument("fixtures", type=Path, nargs="+", metavar="FIXTURE.npz")

    def run() -> int:
        files: Sequence[Path] = parser.parse_args(arguments).fixtures
        from oxygen.tools.fixtures import compare, load, report  # JAX, which --help does not need

        passed = True
        for file in files:
            try:
                checks = compare(load(file))
            except UsageError as error:
                raise UsageError(f"{file}: {error}") from None
            sys.stdout.write(report(file, checks) + "\n")
            passed = passed and all(check.passed for check in checks)
        return 0 if passed else 1

    return exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
