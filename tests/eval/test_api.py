"""`evaluate()`: as the command evaluates, and nothing of the caller changes."""

import json
import logging
import random
import signal
import sys
import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from contracts.errors import UsageError
from eval import Results, evaluate
from eval.run import app
from sim_envs.fake import FakeSuite
from tests.commands import ROOT, printed
from tests.eval.rollout.scaled import suite_file


class Policy:
    """Also does what policies of users do to a process."""

    embodiment = "libero"

    def __init__(self, scale: float = 0.0) -> None:
        self.scale, self.begun = scale, 0

    def reset(self) -> None:
        self.begun += 1

    def infer(self, observation):
        random.seed(3)
        np.random.seed(3)  # noqa: NPY002 - as users do
        logging.basicConfig(level=logging.DEBUG, force=True)
        warnings.simplefilter("ignore")
        return {"actions": np.full((10, 7), self.scale * np.random.rand())}  # noqa: NPY002


class Batched(Policy):
    def reset(self, rows, keys):
        self.begun += len(rows)

    def infer_batch(self, observations):
        return [self.infer(each) for each in observations]


@pytest.fixture
def options(tmp_path):
    suite = suite_file(tmp_path, "fake", FakeSuite, camera_size=256, environment={"success_at": 7})
    shared = {"init_ids": "0-1", "max_steps": 20, "video": "none"}
    return {"suite": suite, "output_dir": tmp_path / "runs", **shared}


def test_an_object_and_a_class_are_policies(options):
    policy = Policy()
    results = evaluate(policy, **options)
    assert isinstance(results, Results)
    assert (results.success, policy.begun) == (1.0, 2)
    assert "| Policy | 2/2 | 100.0 % |" in results.table()
    by_class = evaluate(Policy, policy_kwargs={"scale": 0.5}, **options)
    (folder,) = by_class.folders
    assert by_class.success == 1.0
    assert (folder / "results.json").is_file()


def test_a_row_of_the_frame_is_an_episode(options):
    frame = evaluate(Policy, **options).frame()
    assert list(frame["init_id"]) == [0, 1]
    assert set(frame["outcome"]) == {"success"}
    assert set(frame["steps"]) == {7}


def test_names_and_values_are_those_of_the_command(options, command):
    by_name = evaluate("noop", **options, seed=3)
    words = ("--policy", "noop", "--suite", options["suite"], "--init-ids", "0-1", "--max-steps", 20)
    more = ("--video", "none", "--seed", 3, "--no-report", "--output-dir", options["output_dir"])
    assert command(app, *words, *more)[0] == 0
    (own,) = by_name.folders
    (other,) = set(options["output_dir"].iterdir()) - {own}
    recorded, asked = (json.loads((folder / "manifest.json").read_text()) for folder in (own, other))
    for part in ("config", "protocol_hash", "policy", "policy_options", "mode", "n_planned"):
        assert recorded[part] == asked[part]


def test_one_object_with_infer_batch_serves_parallel_worlds(options):
    policy = Batched()
    assert evaluate(policy, **options, num_envs=2).success == 1.0
    assert policy.begun == 2


def test_several_modes_have_results_each(options):
    results = evaluate("noop", mode="isolated,unified", **options)
    assert {mode: each.success for mode, each in results.by_mode.items()} == {"isolated": 1.0, "unified": 1.0}
    with pytest.raises(UsageError, match=r"choose one: by_mode\['isolated'\]"):
        _ = results.success


@pytest.mark.parametrize(
    ("policy", "wrong", "says"),
    [
        (Policy, {"max_step": 3}, "unknown option 'max_step'; did you mean 'max_steps'?"),
        (Policy, {"max_steps": -3}, "evaluate(): max_steps is -3"),
        (Policy(), {"num_envs": 2}, "test_api:Policy is one object without infer_batch, and num_envs is 2"),
        (Policy(), {"policy_kwargs": {"scale": 1}}, "is an object: leave out policy_kwargs"),
        (Policy, {"policy_kwargs": {"size": 1}}, "its arguments: scale: float = 0.0"),
        (3, {}, "lacks infer, reset"),
        ("nope", {}, "unknown policy 'nope'"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(options, policy, wrong, says):
    with pytest.raises(UsageError) as error:
        evaluate(policy, **{**options, **wrong})
    assert says in str(error.value)
    assert not options["output_dir"].exists() or not [*options["output_dir"].iterdir()]


def test_a_training_goes_on_as_if_there_had_been_no_evaluation(options):
    @jax.jit
    def step(weights, batch):
        return weights - 0.1 * jax.grad(lambda w: jnp.mean((batch @ w - 1.0) ** 2))(weights)

    def train(evaluates):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002 - the caller's
        weights = jnp.zeros(4)
        for number in range(6):
            weights = step(weights, np.random.rand(8, 4) + random.random())  # noqa: NPY002
            if evaluates and number % 3 == 2:
                assert evaluate(Policy(float(weights[0])), **options).success == 1.0
        return np.asarray(weights)

    np.testing.assert_array_equal(train(evaluates=True), train(evaluates=False))


def test_signals_logging_and_warnings_are_as_before_and_nothing_is_printed(options, capfd):
    root = logging.getLogger()

    def state():
        handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]
        return handlers, root.level, list(root.handlers), list(warnings.filters)

    before, timer = state(), signal.getitimer(signal.ITIMER_REAL)  # pytest-timeout's
    signal.setitimer(signal.ITIMER_REAL, 500)
    assert evaluate(Policy, **options).success == 1.0
    left_s, _ = signal.setitimer(signal.ITIMER_REAL, *timer)
    assert 0 < left_s < 500
    assert state() == before
    assert capfd.readouterr() == ("", "")


def test_another_thread_may_evaluate(options):
    found = []
    thread = threading.Thread(target=lambda: found.append(evaluate(Policy, **options).success))
    thread.start()
    thread.join()
    assert found == [1.0]


_WORLDS = """
import pathlib
from sim_envs.fake import FakeSuite

class Suite(FakeSuite):
    def open(self, task):
        with pathlib.Path("opened.txt").open("a") as file:
            file.write("world\\n")
        return super().open(task)
"""
_SCRIPT = """
import sys
import numpy as np
from eval import evaluate

print("the script runs")

class Policy:
    embodiment = "libero"
    def infer(self, observation):
        return {"actions": np.zeros((10, 7))}
    def reset(self):
        pass

for _ in range(2):
    how = {"init_ids": [0, 1], "max_steps": 20, "video": "none", "num_envs": int(sys.argv[1])}
    print(evaluate(Policy, suite="fake.yaml", **how).success)
"""


@pytest.mark.parametrize("worlds", [1, 2])
def test_a_script_without_a_guard_runs_once_and_worlds_stay_open_between_calls(tmp_path, worlds):
    (tmp_path / "worlds.py").write_text(_WORLDS)
    (tmp_path / "script.py").write_text(_SCRIPT)
    protocol = {"world": "worlds:Suite", "camera_size": 256, "environment": {"success_at": 7}}
    suite_file(tmp_path, "fake", FakeSuite, **protocol)
    said = printed(sys.executable, "script.py", worlds, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert said.split("\n") == ["the script runs", "1.0", "1.0", ""]
    assert (tmp_path / "opened.txt").read_text() == "world\n" * worlds
