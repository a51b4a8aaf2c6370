"""Every command works in a terminal without Unicode, colours or control of the cursor."""

import pytest

from tests.attack.commands import COMMANDS, call
from tests.attack.table import BASE, thinned

NO_UNICODE = {"TERM": "dumb", "NO_COLOR": "1", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}


CASES = [
    *((command, BASE[command]) for command in COMMANDS),
    *((command, "--help") for command in COMMANDS),
]


@pytest.mark.parametrize(("command", "options"), thinned(CASES, keep=3))
def test_a_command_prints_ascii(command, options, place, monkeypatch):
    for name, value in NO_UNICODE.items():
        monkeypatch.setenv(name, value)
    answer = call(command, options.split(), place, encoding="ascii")
    assert not answer.broken_rules(refused=False if options == "--help" else None)
    assert "\x1b" not in answer.out
