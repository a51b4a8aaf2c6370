"""Puts worlds and policies together: plan, rollout, records, statistics, reports and the command line."""

import importlib.util
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eval.api import Results, evaluate

__all__ = ["Results", "evaluate"]


def __getattr__(name: str) -> Any:
    """The Python API, imported on use: it takes a second."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from eval import api

    return getattr(api, name)


# As `python -m eval.…` and in no other case: imports take a moment, and Ctrl-C in it needs no traceback.
if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _refuse_hidden_packages() -> None:
    """End a command in one line if a folder on Python's path hides what it imports: traces would follow.

    Many projects have folders with the names of our packages.
    """
    for name in ("configs", "oxygen", "sim_envs", "videos"):
        spec = importlib.util.find_spec(name)
        found = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
        own = Path(__file__).resolve().parents[1] / name / "__init__.py"
        if found != own:
            _stop(
                f"{name!r} is imported from {found}, which hides that of oxygen-eval at {own}: take its "
                "folder out of PYTHONPATH, or run from another folder"
            )
    from configs.installed import imported_version
    from contracts.errors import UsageError

    try:
        for name in ("numpy", "scipy", "jax", "jaxlib", "flax", "gymnasium"):
            imported_version(name)
    except UsageError as error:
        _stop(str(error))


def _stop(message: str) -> None:
    sys.stderr.write(f"error: {message}\n")
    sys.exit(2)


if sys.argv[:1] == ["-m"] or Path(sys.argv[0]).name == "oxygen-eval":
    _refuse_hidden_packages()
