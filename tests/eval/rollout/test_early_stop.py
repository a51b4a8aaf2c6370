"""What ends a run before its time: errors in a row, a policy that is lost. What was done can be resumed."""

import pytest

from configs.errors import UsageError
from configs.exits import INPUT_ERROR
from eval import libero
from eval.policies.base import PolicyLostError
from eval.records.run_folders import find_unfinished, new_run
from eval.records.schema import Outcome, RunFolder
from eval.rollout.evaluation import exit_code
from tests.eval.conftest import CONFIG, call, evaluate

EIGHT = (
    *("--suite", "libero_object", "--task-ids", "0", "--init-ids", "0-7", "--max-steps", "20"),
    *("--policy", "noop", "--video", "none"),
)
"""Eight episodes."""


def outcomes(run: RunFolder) -> list[Outcome]:
    return [result.outcome for result in run.episodes().values()]


def test_five_errors_in_a_row_stop_the_run_in_one_line_below_the_first_traceback(tmp_path, policy, capsys):
    policy.fails_at = 0
    assert call(libero.app, *EIGHT, "--output-dir", tmp_path) == INPUT_ERROR
    *traceback, line = capsys.readouterr().err.splitlines()
    assert traceback[0] == "Traceback (most recent call last):"
    assert traceback[-1] == "FloatingPointError: the fake policy fails as it was told to"
    assert traceback.count(traceback[0]) == 1
    assert line.startswith("error: stopped: 5 episodes in a row were errors")
    assert "--resume" in line
    assert "--max-errors" in line
    (run,) = map(RunFolder, tmp_path.iterdir())
    assert outcomes(run) == [Outcome.ERROR] * 5
    assert run.read_manifest()["status"] == "interrupted"


def test_a_run_stopped_by_errors_resumes_where_it_stopped(tmp_path, policy):
    policy.fails_at = 0
    with pytest.raises(UsageError, match="2 episodes in a row were errors"):
        evaluate(new_run(tmp_path, CONFIG), max_errors=2)
    assert len(policy.episodes) == 2
    policy.fails_at = None
    (again,) = find_unfinished(tmp_path, {})
    assert exit_code(evaluate(again)) == 0
    assert outcomes(again.folder) == [Outcome.SUCCESS] * 8
    assert len(policy.episodes) == 10


def test_a_lost_policy_interrupts_the_run_which_resumes(tmp_path, policy, capsys):
    policy.fails_at, policy.fails_with = 0, PolicyLostError("no answer from ws://robot:8000 for 60 s")
    assert call(libero.app, *EIGHT, "--output-dir", tmp_path) == INPUT_ERROR
    captured = capsys.readouterr()
    assert captured.err == "error: no answer from ws://robot:8000 for 60 s\n"
    assert "Interrupted: 0 of 8 episodes" in " ".join(captured.out.split())
    (run,) = map(RunFolder, tmp_path.iterdir())
    assert run.read_manifest()["status"] == "interrupted"
    assert run.episodes() == {}
    policy.fails_at = None
    assert call(libero.app, *EIGHT, "--output-dir", tmp_path, "--resume") == 0
    assert outcomes(run) == [Outcome.SUCCESS] * 8
