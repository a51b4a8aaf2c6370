"""Random options: whatever is given, commands keep their rule."""

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.attack.commands import call
from tests.attack.table import Option, options

OPTIONS = list(options())
ARGUMENTS = st.text(st.characters(exclude_characters="\0"), max_size=30)
"""What an operating system passes on: anything but NUL."""

one_place = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@one_place
@given(option=st.sampled_from(OPTIONS), value=ARGUMENTS)
def test_any_value_of_any_option(option: Option, value: str, place: Path):
    assert not call(option.command, option.line(value), place).broken_rules()
