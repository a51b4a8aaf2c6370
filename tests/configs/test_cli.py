"""Every command line refuses bad input in one line, and takes its lists in whatever way people write them."""

import importlib
import os
import subprocess
import sys
from typing import Annotated, Literal

import pytest
from cyclopts import App, Parameter

from configs.cli import Names, Numbers, run_app
from configs.errors import UsageError
from configs.paths import usable_folder


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


def demo(
    *,
    suite: Names = ("a",),
    task_ids: Numbers = (0,),
    trials: int = 1,
    limit: Annotated[int | None, Parameter(name="--limit")] = None,
    mode: Literal["one", "two"] = "one",
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
        (["--trials", "10.7"], "--trials '10.7': give a whole number"),
        (["--trials", "10.0"], "--trials '10.0': give a whole number"),
        (["--limit", "1.5"], "--limit '1.5': give a whole number"),
        (["--limit", "0x10"], "--limit '0x10': give a whole number"),
        (["--task-ids", "0-99999999999"], "100000000000 numbers; at most 100000"),
        (["--task-ids", "9" * 5000], "is neither a number (7) nor a range"),
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


def test_a_missing_extra_is_one_line_with_its_remedy(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    def command() -> None:
        importlib.import_module("pyarrow")

    code, out, err = outcome(command, [], capsys)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "this needs the package pyarrow, which is not installed: run uv pip install -e '.[train]'" in err


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


@pytest.mark.parametrize(("given", "value"), [("--report", True), ("--no-report", False)])
def test_a_flag_may_be_set_and_unset(given, value, capsys):
    seen = []

    def command(*, report: Annotated[bool, Parameter(negative="--no-report")] = not value) -> None:
        seen.append(report)

    assert outcome(command, [given], capsys)[::2] == (0, "")
    assert seen == [value]


def test_whole_numbers_may_have_a_sign(capsys):
    seen = []

    def command(*, trials: int) -> None:
        seen.append(trials)

    for given in ("7", "+7", "-7"):
        assert outcome(command, [f"--trials={given}"], capsys)[0] == 0
    assert seen == [7, 7, -7]


def test_a_folder_may_be_there_or_be_made(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    for path in (tmp_path, tmp_path / "a" / "b", tmp_path / "link" / "a"):
        assert usable_folder(path, "--output-dir") == path
    assert list(tmp_path.iterdir()) == [tmp_path / "link"]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path, why in {
        tmp_path / "file": "is not a folder",
        tmp_path / "file" / "a": "file is not a folder",
        tmp_path / "link": "is a broken link",
        tmp_path / "link" / "a" / "b": "link is a broken link",
    }.items():
        with pytest.raises(UsageError, match=f"--output-dir .*{why}; give another"):
            usable_folder(path, "--output-dir")


@pytest.mark.parametrize("command", ["eval.bench", "eval.preflight"])
def test_a_jax_platform_that_is_missing_is_one_line(command, tmp_path):
    options = ["--quick"] if command == "eval.bench" else ["--suite=gym_reacher", "--policy=noop"]
    done = subprocess.run(
        [sys.executable, "-m", command, *options],
        env={**os.environ, "JAX_PLATFORMS": "cuda", "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "JAX_PLATFORMS=cuda" in line]
    assert "unset JAX_PLATFORMS" in line
    assert "Traceback" not in done.stdout + done.stderr
