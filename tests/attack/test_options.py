"""Every bad option of every command is refused in one line, before anything is written."""

import pytest

from tests.attack.commands import COMMANDS, call
from tests.attack.table import BASE, YAML_TEXTS, options, thinned

CASES = [(option, value) for option in options() for value in option.values]


def _id(option, value):
    shown = (
        value.encode("ascii", "backslashreplace").decode() if len(value) < 20 else f"{value[0]}*{len(value)}"
    )
    return f"{option.kind}-{option.command}-{option.flag}={shown!r}"


@pytest.mark.parametrize(("option", "value"), thinned(CASES, keep=37), ids=[_id(*case) for case in CASES])
@pytest.mark.timeout(60, func_only=True)
def test_a_bad_option_is_refused(option, value, place):
    assert not call(option.command, option.line(value), place).broken_rules(refused=True)


PRESETS = [
    (line, text)
    for line in (
        "eval.libero --suite libero_object --config {}",
        "eval.sweep --config {}",
        "eval.collect --config {}",
        "eval.train --config {}",
        "eval.pipeline --dry-run {}",
        "eval.libero --policy {}",
        "eval.libero --policy noop --suite {}",
        "eval.libero --policy noop --clock profile:{}",
        "eval.libero --policy noop --mode unified --language-tasks {}",
        "eval.bundle --pipeline {}",
    )
    for text in YAML_TEXTS
]


@pytest.mark.parametrize(("line", "text"), thinned(PRESETS, keep=7))
@pytest.mark.timeout(60, func_only=True)
def test_a_bad_preset_is_refused(line, text, place):
    content = YAML_TEXTS[text]
    (place / "bad.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    command, *arguments = line.format("bad.yaml").split()
    assert not call(command, arguments, place).broken_rules(refused=True)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("line", ["--nonsense", "--nonsense=1", "{base} \x1b[31m"])
@pytest.mark.timeout(60, func_only=True)
def test_strange_words_break_nothing(command, line, place):
    assert not call(command, line.format(base=BASE[command]).split(), place).broken_rules()


@pytest.mark.parametrize("command", COMMANDS, ids=[f"help-{command}" for command in COMMANDS])
@pytest.mark.timeout(60, func_only=True)
def test_help_is_help(command, place):
    answer = call(command, ["--help"], place)
    assert not answer.broken_rules(refused=False)
    assert "usage" in answer.out.lower()
    assert not answer.wrote
