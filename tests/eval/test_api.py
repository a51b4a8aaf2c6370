"""`evaluate()`: as the command evaluates, and nothing of the caller changes."""

import asyncio
import contextlib
import functools
import json
import logging
import random
import signal
import sys
import threading
import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from contracts.errors import UsageError
from eval import Results, evaluate
from eval.rollout import prepare
from eval.rollout.executors.executor import SERIAL
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


def test_objects_of_a_class_are_told_apart_by_name(options):
    first, second = (evaluate(Policy(), name=name, **options) for name in ("step 1000", "step 2000"))
    assert "| step-2000 | 2/2 |" in repr(second)
    assert [folder.name.endswith("-step-1000") for folder in first.folders] == [True]
    assert [each.rows.records.identity.policy for each in (first, second)] == ["step-1000", "step-2000"]


def test_an_interrupted_evaluation_is_resumed_in_its_folder_by_its_name(options):
    class Interrupted(Policy):
        def reset(self):
            super().reset()
            if self.begun == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(Interrupted(), name="mine", **options)
    with pytest.raises(UsageError, match="nothing to resume"):
        evaluate(Policy(), name="yours", resume=True, **options)
    policy = Policy()
    results = evaluate(policy, name="mine", resume=True, **options)
    assert (results.success, policy.begun, len(list(options["output_dir"].iterdir()))) == (1.0, 1, 1)


def test_a_suites_file_is_read_again_by_each_call(options, tmp_path):
    assert list(evaluate(Policy, **options).frame()["steps"]) == [7, 7]
    suite_file(tmp_path, "fake", FakeSuite, camera_size=256, environment={"success_at": 9})
    assert list(evaluate(Policy, **options).frame()["steps"]) == [9, 9]


def test_a_row_of_the_frame_is_an_episode(options):
    frame = evaluate(Policy, **options).frame()
    assert list(frame["init_id"]) == [0, 1]
    assert set(frame["outcome"]) == {"success"}
    assert set(frame["steps"]) == {7}


def test_names_and_values_are_those_of_the_command(options, command):
    by_name = evaluate("noop", **options, seeds=3)
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


def test_control_and_perturbed_episodes_are_told_apart(options):
    results = evaluate("noop", perturb="wording:1", **options)
    assert [*results.by_perturbation] == ["none", "wording:1"]
    assert [rows.overall.n_episodes for rows in results.by_mode["actions"].runs] == [2, 2]
    assert list(results.frame()["perturb"]) == ["none", "none", "wording:1", "wording:1"]
    with pytest.raises(UsageError, match=r"choose one: by_perturbation\['none'\]"):
        _ = results.success
    assert "difference" in results.table()
    control = results.by_perturbation["none"].folders[0]
    again = evaluate("noop", perturb="wording:1", control=str(control), **options)
    assert again.table() == results.table(), "beside the control that was given"


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
        (Policy, {"name": "?!"}, "name is '?!': give one with letters or digits"),
        ("noop", {"name": "mine"}, "name='mine' is for a policy that is an object or a class"),
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


class OfMainThread(FakeSuite):
    """Its worlds belong to the main thread of a process, as those with a renderer do."""

    def open(self, task):
        assert threading.current_thread() is threading.main_thread()
        return super().open(task)


def in_a_thread(call):
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize(("asked", "played"), [({}, "processes"), ({"executor": "serial"}, "serial")])
def test_another_thread_has_its_worlds_in_processes(options, monkeypatch, asked, played):
    chosen = []
    monkeypatch.setattr(prepare, "choose_executor", lambda how: chosen.append(how.executor) or SERIAL)
    assert evaluate(Policy, **options).success == 1.0
    assert in_a_thread(lambda: evaluate(Policy, **options, **asked).success) == 1.0
    assert chosen == [None, played]


@pytest.mark.slow
@pytest.mark.parametrize("worlds", [1, 2])
def test_another_thread_may_evaluate_beside_the_worlds_of_the_main_one(options, tmp_path, worlds):
    options["suite"] = suite_file(tmp_path, "fake", OfMainThread, camera_size=256)
    for _ in range(2):
        assert evaluate(Policy, **options).rows.overall.n_episodes == 2
        frame = in_a_thread(lambda: evaluate(Policy, num_envs=worlds, **options).frame())
        assert list(frame["outcome"]) == ["timeout", "timeout"]


def test_a_cell_of_a_notebook_whose_event_loop_runs_may_evaluate(options):
    async def cell():
        return evaluate(Policy, **options)

    results = asyncio.run(cell())
    assert results._repr_markdown_() == repr(results) == results.table()


class Torch:
    """As much of PyTorch as is put back."""

    def __init__(self):
        self.state = {"default_dtype": "float32", "num_threads": 8, "grad_enabled": True, "rng": 0}
        self.random = SimpleNamespace(fork_rng=self.fork_rng)
        self.cuda = SimpleNamespace(is_initialized=lambda: False)
        for name in ("default_dtype", "num_threads", "grad_enabled"):
            setattr(self, f"set_{name}", functools.partial(self.state.__setitem__, name))
            getter = "is_grad_enabled" if name == "grad_enabled" else f"get_{name}"
            setattr(self, getter, functools.partial(self.state.get, name))

    inference_mode = contextlib.nullcontext

    @contextlib.contextmanager
    def fork_rng(self, devices):
        assert list(devices) == []
        before = self.state["rng"]
        yield
        self.state["rng"] = before


def test_pytorchs_defaults_are_the_callers_again(options, monkeypatch):
    torch = Torch()
    monkeypatch.setitem(sys.modules, "torch", torch)

    class Careless(Policy):
        def infer(self, observation):
            torch.state |= {"default_dtype": "bfloat16", "num_threads": 1, "grad_enabled": False, "rng": 5}
            return super().infer(observation)

    before = dict(torch.state)
    assert evaluate(Careless, **options).success == 1.0
    assert torch.state == before


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


_INTERRUPTED = """
import os, signal
import numpy as np
import psutil
from eval import evaluate

class Policy:
    embodiment = "libero"
    is_interrupted = True
    def infer(self, observation):
        if self.is_interrupted:
            os.kill(os.getpid(), signal.SIGINT)
        return {"actions": np.zeros((10, 7))}
    def reset(self):
        pass

def workers():
    return sum("spawn_main" in " ".join(each.cmdline()) for each in psutil.Process().children())

how = {"suite": "fake.yaml", "init_ids": [0, 1], "max_steps": 20, "video": "none", "num_envs": 2}
try:
    evaluate(Policy, **how)
except KeyboardInterrupt:
    print("interrupted,", workers(), "workers")
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
Policy.is_interrupted = False
print(evaluate(Policy, resume=True, **how).success, "by", workers(), "workers")
"""


@pytest.mark.slow
def test_ctrl_c_leaves_no_worker_and_the_next_call_resumes(tmp_path):
    (tmp_path / "script.py").write_text(_INTERRUPTED)
    suite_file(tmp_path, "fake", FakeSuite, camera_size=256, environment={"success_at": 7})
    said = printed(sys.executable, "script.py", cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert said.splitlines() == ["interrupted, 0 workers", "1.0 by 2 workers"]
