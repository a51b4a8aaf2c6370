"""Every command refuses unknown options in one line, with exit code 2, before anything is written."""

import importlib

import pytest

from configs.cli import run_app
from eval.__main__ import _COMMANDS

COMMANDS = [
    *(module for module, _ in _COMMANDS.values()),
    *("eval.media", "eval.results", "eval.bundle.__main__", "eval.pipeline"),
    *("sim_envs.contact_sheet", "oxygen.tools.convert", "oxygen.tools.parity"),
    "oxygen.tools.train_tokenizer",
]


@pytest.mark.parametrize("module", COMMANDS)
def test_unknown_options_are_refused_and_help_is_printed(module, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def call(option):
        command = importlib.import_module(module)
        try:
            return run_app(command.app, [option]) if hasattr(command, "app") else command.main([option])
        except SystemExit as stop:
            return stop.code

    assert call("--nonsense=1") == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err[:7]) == ("", 1, "error: ")
    assert call("--help") == 0
    assert "usage" in capsys.readouterr().out.lower()
    assert not list(tmp_path.iterdir())
