"""Every command refuses unknown options in one line, with exit code 2, before anything is written."""

import importlib

import pytest

from configs.cli import run_app

APPS = (
    *(
        "eval.run",
        "eval.libero",
        "eval.droid",
        "eval.sweep",
        "eval.compare",
        "eval.leaderboard",
        "eval.media",
    ),
    *(
        "eval.merge",
        "eval.results",
        "eval.bundle.__main__",
        "eval.collect.__main__",
        "eval.pipeline.__main__",
    ),
    *("eval.train.__main__", "eval.export", "eval.preflight", "eval.report.__main__", "eval.watch"),
    *("oxygen.serve.__main__", "sim_envs.contact_sheet"),
)
"""Modules with a cyclopts `app`."""
MAINS = (
    *("eval.bench.__main__", "oxygen.tools.convert", "oxygen.tools.parity", "oxygen.tools.train_tokenizer"),
)
"""Modules with a `main`."""

pytestmark = pytest.mark.parametrize("module", [*APPS, *MAINS])


def exit_code(module: str, arguments: list[str]) -> int:
    try:
        if module in MAINS:
            return importlib.import_module(module).main(arguments)
        run_app(importlib.import_module(module).app, arguments)
    except SystemExit as stop:
        return stop.code


@pytest.mark.parametrize("option", ["--nonsense", "--nonsense=1"])
def test_an_unknown_option_is_refused(module, option, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert exit_code(module, [option]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("error: ")
    assert not list(tmp_path.iterdir())


def test_help_is_printed(module, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert exit_code(module, ["--help"]) == 0
    out, err = capsys.readouterr()
    assert "usage" in out.lower()
    assert err == ""
    assert not list(tmp_path.iterdir())
