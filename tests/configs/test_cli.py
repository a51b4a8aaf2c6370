"""Every command line refuses bad input in one line, and takes its lists in whatever way people write them."""

from typing import Literal

import pytest
from cyclopts import App

from configs.cli import Names, Numbers, Pairs, run_app
from configs.errors import UsageError


def app_that(command):
    app = App(name="demo")
    app.default(command)
    return app


def outcome(command, arguments, capsys):
    """Exit code, stdout and stderr of a command line."""
    with pytest.raises(SystemExit) as stop:
        run_app(app_that(command), arguments)
    printed = capsys.readouterr()
    return stop.value.code, printed.out, printed.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--suite", "a", "b", "c"],
        ["--suite", "a", "--suite", "b", "--suite", "c"],
        ["--suite", "a,b,c"],
        ["--suite=a,b", "--suite", "c"],
        ["--suite", "a, b", "c"],
        ["--suite", "a", "b", "a", "c"],
    ],
)
def test_a_list_of_names_reads_the_same_however_it_is_written(arguments, capsys):
    seen = []

    def command(*, suite: Names = ("z",)) -> None:
        seen.append(suite)

    assert outcome(command, arguments, capsys)[0] == 0
    assert seen == [("a", "b", "c")]


def test_a_list_of_numbers_takes_ranges_with_both_ends(capsys):
    seen = []

    def command(*, task_ids: Numbers | None = None) -> None:
        seen.append(task_ids)

    assert outcome(command, ["--task-ids", "0-3,7", "9", "--task-ids", "2"], capsys)[0] == 0
    assert outcome(command, [], capsys)[0] == 0
    assert seen == [(0, 1, 2, 3, 7, 9), None]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--policy-kwargs", "host=a=b", "port=2"],
        ["--policy-kwargs", "host=a=b", "--policy-kwargs", "port=2"],
        ["--policy-kwargs", "host=a=b,port=2"],
    ],
)
def test_settings_by_name_read_the_same_however_they_are_written(arguments, capsys):
    seen = []

    def command(*, policy_kwargs: Pairs | None = None) -> None:
        seen.append(policy_kwargs)

    assert outcome(command, arguments, capsys)[0] == 0
    assert outcome(command, [], capsys)[0] == 0
    assert seen == [{"host": "a=b", "port": "2"}, None]
    for wrong in ("host", "=a"):
        code, _, error = outcome(command, ["--policy-kwargs", wrong], capsys)
        assert code == 2
        assert f"{wrong!r} is not of the form key=value" in error
        assert error.count("\n") == 1


def demo(
    *, suite: Names = ("a",), task_ids: Numbers = (0,), trials: int = 1, mode: Literal["one", "two"] = "one"
):
    """The options of a command that does nothing."""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--suit", "a"], "'--suite'"),
        (["--suite"], "--suite"),
        (["--suite", "a,,b"], "empty item"),
        (["--task-ids", "3-1"], "1-3"),
        (["--task-ids", "one"], "'one'"),
        (["--task-ids", "-1"], "-1"),
        (["--trials", "many"], "many"),
        (["--trials"], "--trials"),
        (["--trials", "1", "--trials", "2"], "--trials"),
        (["--mode", "tow"], "two"),
        (["stray"], "stray"),
        (["--empty-suite"], "--empty-suite"),
    ],
)
def test_bad_arguments_are_one_line_on_stderr_and_exit_code_2(arguments, said, capsys):
    code, out, err = outcome(demo, arguments, capsys)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said in err


def test_a_usage_error_of_the_command_is_one_line_too(capsys):
    def command() -> None:
        raise UsageError("no such\nthing")

    assert outcome(command, [], capsys) == (2, "", "error: no such thing\n")


def test_ctrl_c_exits_with_130(capsys):
    def command() -> None:
        raise KeyboardInterrupt

    assert outcome(command, [], capsys) == (130, "", "")


def test_a_fault_of_the_program_keeps_its_traceback():
    def command() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_app(app_that(command), [])


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (0, 0), (3, 3)])
def test_what_a_command_returns_is_its_exit_code(returned, code, capsys):
    def command() -> int | None:
        return returned

    assert outcome(command, [], capsys) == (code, "", "")


def test_help_goes_to_stdout_and_succeeds(capsys):
    code, out, err = outcome(demo, ["--help"], capsys)
    assert (code, err) == (0, "")
    assert "--task-ids" in out
