"""Whole command lines of an attacker keep the rule of all commands."""

import pytest

from tests.attack.commands import call
from tests.attack.lines import LINES
from tests.attack.table import thinned

CASES = [(line,) for of_kind in LINES.values() for line in of_kind]
IDS = [f"{kind}-{line.line[:80]}" for kind in LINES for line in LINES[kind]]


@pytest.mark.parametrize("line", thinned(CASES, keep=9), ids=IDS)
@pytest.mark.timeout(60, func_only=True)
def test_an_attackers_line_breaks_nothing(line, place):
    line.prepare(place)
    command, *arguments = line.line.split()
    assert not call(command, arguments, place).broken_rules(refused=line.refused)
