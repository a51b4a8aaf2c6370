"""`oxygen-eval setup libero`: install LIBERO without the training stack that its packages require."""

import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires
from typing import Literal

from cyclopts import App

from configs.cli import run_app
from configs.errors import UsageError

PINNED = ("bddl==1.0.1", "hf-libero==0.1.4", "robosuite==1.4.0")
"""Installed without their dependencies, among them torch, transformers and robomimic."""

app = App(name="python -m eval.setup")


@app.default
def setup(what: Literal["libero"], /) -> int:
    """Install a world's packages into this Python's environment, with uv if it is on the path, else pip.

    Args:
        what: libero installs hf-libero, robosuite and bddl at the versions of LIBERO's published scores, and
            what they import; not their other dependencies, such as torch.
    """
    try:
        listed = requires("oxygen-eval") or []
    except PackageNotFoundError:
        raise UsageError(
            "oxygen-eval is not installed in this environment: install its wheel, or run `make setup` in a "
            f"checkout, which installs {what}, too"
        ) from None
    imported = [each.split(";")[0].strip() for each in listed if each.endswith(f"extra == '{what}'")]
    if uv := shutil.which("uv"):
        install = [uv, "pip", "install", "--python", sys.executable]
    else:
        install = [sys.executable, "-m", "pip", "install"]
    for packages in (imported, ["--no-deps", *PINNED]):
        if subprocess.run([*install, *packages], check=False).returncode != 0:
            return 1
    return 0


if __name__ == "__main__":
    run_app(app)
