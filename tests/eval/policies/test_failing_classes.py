"""Python classes that misbehave: each outcome is the one in the table of docs/policies.md."""

import sys
import textwrap
from pathlib import Path

import pytest

from configs.errors import UsageError
from eval import libero
from eval.policies.python import open_python
from eval.records.run_folders import new_run
from eval.records.schema import Outcome
from eval.rollout.executors.executor import Processes
from sim_envs.fake import FakeSuite, FakeWorld
from tests.eval.conftest import CONFIG, evaluate
from tests.eval.doubles import without_physics
from tests.eval.rollout.scaled import suite_file

_CLASS = """
import sys, time
import numpy as np

GOOD = np.zeros((10, 7))
NAN = np.full((10, 7), np.nan)
kept = []


class Mine:
    embodiment = "libero"
    horizon = 10
    queries = resets = 0

    def infer(self, obs):
        self.queries += 1
        if self.queries != 2 and not {always}:
            return {{"actions": GOOD}}
        {infer}

    def reset(self):
        self.resets += 1
        {reset}
"""

TEN_STEPS = {"suites": ("libero_object",), "task_ids": (0,), "num_trials_per_task": 2, "max_steps": 10}


@pytest.fixture(autouse=True)
def quick_worlds(monkeypatch):
    """Worlds that are solved after seven steps: two queries an episode."""
    without_physics(monkeypatch, lambda task: FakeWorld(success_at=7))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "policy_mine", None)


def written(folder: Path, infer: str = "return {'actions': GOOD}", *, reset: str = "", always: bool = False):
    file = folder / "mine.py"
    file.write_text(_CLASS.format(infer=infer, reset=reset or "pass", always=always))
    return f"{file}:Mine"


def played(folder: Path, policy: str, **how):
    run = new_run(folder / "runs", CONFIG.model_copy(update={"policy": policy, **TEN_STEPS}))
    evaluate(run, **how)
    return list(run.folder.episodes().values())


@pytest.mark.parametrize(
    ("infer", "outcome", "said"),
    [
        ("raise ValueError('no \\x1b[31mweights')", "error", "ValueError: no"),
        ("sys.exit(3)", "error", "SystemExit: 3"),
        ("return None", "error", "answered with NoneType, not a dict with 'actions'"),
        ("return {'actions': GOOD.astype(np.float16)}", "success", None),
        (
            "return {'actions': GOOD[:4]}",
            "invalid_action",
            "shape (4, 7): needed are at least 5 actions",
        ),
        ("return {'actions': NAN}", "invalid_action", "action 0 holds nan"),
        ("print('\\x1b[2J'); return {'actions': GOOD}", "success", None),
    ],
)
def test_one_bad_query_costs_its_episode_alone(tmp_path, infer, outcome, said):
    first, second = played(tmp_path, written(tmp_path, infer))
    assert first.outcome == outcome
    assert (said is None and first.error is None) or said in first.error
    assert second.outcome is Outcome.SUCCESS


@pytest.mark.parametrize("hanging", ["time.sleep(60)", "while True: pass"])
def test_a_query_that_hangs_is_an_error_after_its_time(tmp_path, hanging):
    first, second = played(tmp_path, written(tmp_path, hanging), query_timeout_s=1.0)
    assert first.outcome is Outcome.ERROR
    assert first.error == "QueryTimeoutError: the policy has not answered a query within 1 s"
    assert second.outcome is Outcome.SUCCESS


def test_a_reset_that_fails_is_an_error(tmp_path):
    first, second = played(tmp_path, written(tmp_path, reset="if self.resets == 1: sys.exit(1)"))
    assert (first.outcome, second.outcome) == (Outcome.ERROR, Outcome.SUCCESS)


@pytest.mark.parametrize("where", ["import sys; sys.exit(0)", "class Mine:\n    def __init__(self): exit()"])
def test_a_class_that_exits_before_it_acts_is_refused(tmp_path, where):
    (tmp_path / "mine.py").write_text(textwrap.dedent(where))
    with pytest.raises(UsageError, match="SystemExit"):
        open_python(f"{tmp_path}/mine.py:Mine", {})


@pytest.mark.parametrize(
    ("policy", "limit", "said"),
    [
        ("noop", "5", "--query-timeout 5 is for a Python class, not noop"),
        ("mine.py:Mine", "0", "query_timeout is '0'"),
        ("mine.py:Mine", "nan", "query_timeout is 'nan'"),
    ],
)
def test_invalid_time_limits_are_refused(tmp_path, refused, monkeypatch, policy, limit, said):
    written(tmp_path)
    monkeypatch.chdir(tmp_path)
    line = ("--suite", "libero_object", "--policy", policy, "--query-timeout", limit)
    assert said in refused(libero.app, *line)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["infer", "reset"])
def test_outcomes_are_the_same_in_worker_processes(tmp_path, wrong):
    suite = suite_file(
        tmp_path, "fake", FakeSuite, environment={"success_at": 7, "init_ids": 10}, camera_size=256
    )
    body = {"infer": "sys.exit(3)"} if wrong == "infer" else {"reset": "if self.resets == 1: sys.exit(3)"}
    own = {**TEN_STEPS, "policy": written(tmp_path, **body), "suites": (suite,), "num_trials_per_task": 3}
    config = CONFIG.model_copy(update=own)
    run = new_run(tmp_path / "runs", config)
    evaluate(run, executor=Processes(num_envs=2))
    outcomes = [each.outcome for each in run.folder.episodes().values()]
    assert sorted(outcomes) == ["error", "error", "success"]
