"""One object of a class with `infer_batch` serves all worlds; a failure is one line or one episode."""

import contextlib
import dataclasses
import re
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from configs.exits import INPUT_ERROR
from contracts.episode import EpisodeKey, Outcome
from contracts.errors import UsageError
from contracts.observation import Observation
from contracts.text import Reply
from eval import run
from eval.policies.base import PolicyLostError
from eval.policies.interprocess import EpisodeStart, FailedAnswer, PolicyServer
from eval.policies.python import open_python
from eval.policies.torch_objects import as_numpy, fatal_failure, runs_on, share_cores, weight_bytes
from eval.records.query_logs import read_queries
from eval.records.schema import RunFolder
from eval.testing import check_policy
from sim_envs.fake import FakeSuite, FakeWorld
from tests.commands import call
from tests.eval.rollout.scaled import suite_file

MINE = """
    import sys
    import numpy as np

    MADE = []

    class Mine:
        embodiment = "libero"
        pad_batches = PADS

        def __init__(self):
            MADE.append(self)
            self.batches, self.begun = [], []

        def infer_batch(self, observations):
            rows = [seen["row"] for seen in observations]
            self.batches.append(rows)
            answers = [{"actions": np.full((10, 7), row / 100)} for row in rows]
            FAULT
            return answers

        def reset(self, rows, keys):
            self.begun += zip(rows, keys)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Writes the class; `fault` is a statement before it answers."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "policy_mine", None)

    def write(fault="pass", *, pads=False):
        source = textwrap.dedent(MINE).replace("FAULT", fault).replace("PADS", str(pads))
        (tmp_path / "mine.py").write_text(source)
        return f"{tmp_path / 'mine.py'}:Mine"

    return write


def key(number):
    return EpisodeKey(suite="libero_object", task_id=0, init_id=number, seed=7)


class Worlds:
    """As many worlds as there are rows, which ask a policy at the same time."""

    def __init__(self, target, worlds, batch_size):
        loaded = open_python(target, {}, worlds=worlds, batch_size=batch_size)
        self.server = PolicyServer([loaded])
        self.numbers = range(worlds)
        (self.policy,) = sys.modules["policy_mine"].MADE
        for world in self.numbers:
            self.server.handle(world, EpisodeStart(variant=0, key=key(world)), None)

    def act(self, *worlds):
        """What each of these worlds, or all, is answered; a failure as it is raised there."""
        answers = {}
        for world in worlds or self.numbers:
            self.server.handle(
                world, ("act", FakeWorld().observe()), lambda each, w=world: answers.update({w: each})
            )
        while self.server.poll() != np.inf:
            pass
        return {
            world: each.error if isinstance(each, FailedAnswer) else each for world, each in answers.items()
        }


@pytest.mark.parametrize(
    ("batch_size", "batches"), [(4, [[0, 1, 2, 3]]), (2, [[0, 2], [1, 3]]), (3, [[0, 2], [1, 3]])]
)
def test_one_object_serves_all_worlds_in_batches_of_at_most_the_batch_size(mine, batch_size, batches):
    worlds = Worlds(mine(), 4, batch_size)
    for _ in range(2):
        assert {world: chunk[0, 0] for world, chunk in worlds.act().items()} == {n: n / 100 for n in range(4)}
    assert sorted(worlds.policy.batches) == sorted(2 * batches)
    assert worlds.policy.begun == [(world, key(world)) for world in range(4)]


def test_a_class_gets_what_was_observed_in_as_many_control_steps_as_it_says(mine):
    target = mine("assert [len(seen['history']) for seen in observations] == [1, 0]")
    file = Path(target.removesuffix(":Mine"))
    source = file.read_text()
    file.write_text(source.replace("pad_batches", "history_steps = 2\n    pad_batches"))
    opened = open_python(target, {}, worlds=2, batch_size=2)
    assert (opened.history, opened.inputs["history"]) == (2, 2)
    seen = FakeWorld().observe()
    acted = opened.groups[0].act({0: dataclasses.replace(seen, history=(seen,)), 1: seen})
    assert [chunk.shape for chunk in acted.values()] == [(10, 7), (10, 7)]
    file.write_text(source.replace("pad_batches", "history_steps = 'all'\n    pad_batches"))
    with pytest.raises(UsageError, match="its history_steps is 'all'; give a number of control steps"):
        open_python(target, {})


def test_a_class_may_have_its_batches_padded(mine):
    worlds = Worlds(mine(pads=True), 2, 4)
    assert list(worlds.act(1)) == [1]
    assert worlds.policy.batches == [[1, -1, -1, -1]]


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_class_changes_in_an_observation_is_changed_there_alone(fails):
    class Changing:
        embodiment, image_resolution, pad_batches = "libero", None, True
        reset = print

        def infer_batch(self, observations):
            for seen in observations:
                for key in ("observation/image", "observation/state"):
                    seen[key] += 1
            if fails and len({seen["row"] for seen in observations} - {-1}) > 1:
                raise ValueError("more than one")
            return [{"actions": np.full((10, 7), seen["observation/image"].max())} for seen in observations]

    (group,) = open_python("Changing", {}, worlds=3, batch_size=3, given=Changing()).groups
    blank = {name: np.zeros((8, 8, 3), np.uint8) for name in ("image", "wrist_image")}
    observation = Observation(images=blank, state=np.zeros(8), language="do it")
    assert {chunk.max() for chunk in group.act({0: observation, 1: observation}).values()} == {1.0}


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("answers[1] = None", "answered with NoneType"),
        ("answers[1] = {}", "no 'actions'"),
        ("answers[1]['actions'] = ['left']", "actions are list"),
        ("answers[1] = OSError('no such prompt')", "no such prompt"),
    ],
)
def test_a_bad_row_concerns_its_episode_alone(mine, fault, why):
    worlds, completed = Worlds(mine(fault), 3, 3), []
    answers = worlds.act()
    assert why in str(answers.pop(1))
    assert [chunk.shape for chunk in answers.values()] == [(10, 7), (10, 7)]
    for world in answers:
        worlds.server.handle(world, ("complete", None), completed.append)
    assert [type(reply) for reply in completed] == [Reply, Reply]


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("raise ValueError('odd')", "odd"),
        ("sys.exit(3)", "SystemExit(3)"),
        ("answers.pop()", "infer_batch returned 0 answers for 1 observations"),
        ("answers *= 2", "infer_batch returned 2 answers for 1 observations"),
        ("return {'actions': np.zeros((1, 10, 7))}", "infer_batch returned dict, not a list"),
    ],
)
@pytest.mark.parametrize("pads", [False, True])
def test_a_row_that_fails_its_batch_is_asked_alone_and_ends_its_episode_alone(mine, capsys, fault, why, pads):
    worlds = Worlds(mine(f"if 1 in rows:\n{' ' * 12}{fault}", pads=pads), 3, 3)
    if pads:
        why = why.replace("0 answers for 1", "2 answers for 3").replace("2 answers for 1", "6 answers for 3")
    for _ in range(2):
        answers = worlds.act()
        assert why in repr(answers.pop(1))
        assert {world: chunk[0, 0] for world, chunk in answers.items()} == {0: 0.0, 2: 0.02}
    padding = [-1, -1] if pads else []
    assert worlds.policy.batches == 2 * [[0, 1, 2], *([row, *padding] for row in range(3))]
    warning, *more = capsys.readouterr().err.splitlines()
    assert re.match(r"warning: infer_batch failed for 3 observations \(.*\); each is asked alone", warning)
    assert more == []


def test_a_query_out_of_time_is_not_asked_again(mine):
    target = mine("raise sys.modules['eval.policies.base'].QueryTimeoutError('too slow')")
    worlds = Worlds(target, 3, 3)
    assert {str(each) for each in worlds.act().values()} == {"too slow"}
    assert len(worlds.policy.batches) == 1


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("raise MemoryError", r"out of memory in a batch of 4 \(MemoryError: \); .* --resume --batch-size 2"),
        ("raise RuntimeError('CUDA out of memory. Tried')", "in a batch of 4 .* --resume --batch-size 2"),
        ("raise type('OutOfMemoryError', (RuntimeError,), {})", "in a batch of 4 .* --resume --batch-size 2"),
        ("raise RuntimeError('CUDA error: unspecified')", "device is lost .*; continue with --resume"),
    ],
)
def test_a_full_or_lost_device_ends_the_run_with_its_remedy(mine, fault, why):
    with pytest.raises(PolicyLostError, match=why):
        Worlds(mine(fault), 4, 4).act()


def test_a_batch_of_one_that_does_not_fit_is_an_error_of_its_episode():
    assert fatal_failure(MemoryError(), 1) is None


def test_a_reset_without_rows_is_one_line(mine):
    target = mine()
    file = Path(target.removesuffix(":Mine"))
    file.write_text(file.read_text().replace("(self, rows, keys)", "(self)"))
    with pytest.raises(UsageError, match=r"its reset takes rows .*: def reset\(self, rows, keys\)"):
        open_python(target, {})


def test_it_conforms_like_any_policy(mine):
    Worlds(mine(), 1, 1)
    check_policy(sys.modules["policy_mine"].Mine, FakeWorld().observe())


SUITE = {"environment": {"success_at": 7, "init_ids": 10}, "camera_size": 256}


def command(tmp_path, policy, *options):
    suite = suite_file(tmp_path, "fake", FakeSuite, **SUITE)
    line = f"--suite {suite} --policy {policy} --num-trials-per-task 4 --max-steps 10 --video none"
    return call(run.app, *line.split(), "--output-dir", tmp_path / "runs", *options)


def recorded(tmp_path):
    (manifest,) = (tmp_path / "runs").glob("*/manifest.json")
    return RunFolder(manifest.parent)


@pytest.mark.slow
def test_parallel_worlds_are_served_by_one_object_and_their_batches_recorded(tmp_path, mine, capsys):
    assert command(tmp_path, mine(), "--num-envs", 2, "--batch-size", 2) == 0
    assert "copies" not in capsys.readouterr().out
    (policy,) = sys.modules["policy_mine"].MADE
    assert max(map(len, policy.batches)) <= 2
    assert {row for row, _ in policy.begun} == {0, 1}
    folder = recorded(tmp_path)
    manifest = folder.read_manifest()
    assert (manifest["config"]["batch_size"], manifest["policy_inputs"]["padded_batches"]) == (2, False)
    for begun, episode in folder.episodes().items():
        assert episode.outcome is Outcome.SUCCESS
        (row,) = {query.actions[0][0] for query in read_queries(folder, begun)}  # the same in all queries
        assert row in (0, 0.01)


@pytest.mark.slow
def test_a_run_out_of_memory_keeps_its_records_and_goes_on_with_smaller_batches(tmp_path, mine, capsys):
    full = "if len(self.batches) == 4 and len(rows) == 2:\n                raise MemoryError"
    target = mine(full, pads=True)
    assert command(tmp_path, target, "--num-envs", 2, "--batch-size", 2) == INPUT_ERROR
    *_, last = capsys.readouterr().err.splitlines()
    assert "out of memory in a batch of 2 (MemoryError: ); continue with --resume --batch-size 1" in last
    assert recorded(tmp_path).read_manifest()["status"] == "interrupted"
    assert command(tmp_path, target, "--num-envs", 2, "--resume", "--batch-size", 1) == 0
    manifest = recorded(tmp_path).read_manifest()
    assert (manifest["status"], manifest["config"]["batch_size"]) == ("complete", 1)
    assert [attempt["batch_size"] for attempt in manifest["attempts"]] == [2, 1]
    assert {each.outcome for each in recorded(tmp_path).episodes().values()} == {Outcome.SUCCESS}


COPIED = """
    import numpy as np

    class Mine:
        embodiment = "libero"

        def __init__(self):
            self.layers = [{"weights": np.zeros(250_000)}]

        def infer(self, observation):
            return {"actions": np.zeros((10, 7))}

        def reset(self):
            pass
"""


def test_copies_of_a_class_without_batches_are_told_with_their_weight(tmp_path, mine):
    target, lines = mine(), []
    (tmp_path / "mine.py").write_text(textwrap.dedent(COPIED))
    opened = open_python(target, {}, worlds=4, notify=lines.append)
    assert len({id(group) for group in opened.groups}) == 4
    assert lines == [
        f"{target}: 4 copies, one per world, weights 2.0 MB each; with infer_batch, one serves all."
    ]
    lines.clear()
    open_python(target, {}, worlds=1, notify=lines.append)
    assert lines == []


class Tensor:
    """As much of a tensor as is looked at."""

    def __init__(self, array, device="cuda:0", dtype="torch.float32"):
        self.array, self.device, self.dtype, self.nbytes = (
            np.asarray(array),
            device,
            dtype,
            4 * np.size(array),
        )

    def detach(self):
        return Tensor(self.array, self.device, self.dtype)

    def cpu(self):
        return Tensor(self.array, "cpu", self.dtype)

    def float(self):
        return Tensor(self.array, self.device)

    def is_floating_point(self):
        return True

    def numpy(self):
        if self.device != "cpu" or self.dtype == "torch.bfloat16":
            raise TypeError("cannot be converted")
        return self.array


class Module:
    def __init__(self, *parameters):
        self.parameters, self.buffers = lambda: iter(parameters), lambda: iter(())


@pytest.mark.parametrize("dtype", ["torch.float32", "torch.bfloat16"])
def test_tensors_on_any_device_are_taken(dtype):
    chunk = np.ones((10, 7), np.float32)
    assert (as_numpy(Tensor(chunk, dtype=dtype)) == chunk).all()
    assert np.array_equal(as_numpy([Tensor(row, dtype=dtype) for row in chunk]), chunk)
    assert as_numpy("left") == "left"


def test_weights_are_counted_once_wherever_they_are():
    shared = Tensor(np.zeros(1000))
    policy = SimpleNamespace(
        model=Module(shared, Tensor(np.zeros(500))), table={"more": [np.zeros(10), shared]}
    )
    policy.itself = policy
    assert weight_bytes(policy) == 4 * 1500 + 80
    assert weight_bytes(SimpleNamespace(name="none", model=print)) is None


@pytest.fixture
def torch(monkeypatch):
    threads = [8]
    double = SimpleNamespace(
        __version__="2.11.0",
        cuda=SimpleNamespace(get_device_name=lambda device: "H200"),
        get_num_threads=lambda: threads[0],
        set_num_threads=lambda number: threads.__setitem__(0, number),
        threads=threads,
    )
    monkeypatch.setitem(sys.modules, "torch", double)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return double


def test_batches_are_computed_in_inference_mode(mine, torch):
    @contextlib.contextmanager
    def inference_mode():
        torch.is_inferring = True
        yield
        torch.is_inferring = False

    torch.inference_mode = inference_mode
    worlds = Worlds(mine("self.begun.append(sys.modules['torch'].is_inferring)"), 1, 1)
    worlds.act()
    assert worlds.policy.begun[-1] is True
    assert torch.is_inferring is False


def test_records_have_pytorchs_version_device_and_type(torch):
    policy = SimpleNamespace(model=Module(Tensor(np.zeros(1), dtype="torch.bfloat16")))
    expected = {"torch": "2.11.0", "device": "cuda:0 (H200)", "dtype": "bfloat16"}
    assert runs_on(policy) == expected
    assert runs_on(SimpleNamespace(device="cpu")) == {"torch": "2.11.0", "device": "cpu"}
    assert runs_on(SimpleNamespace(table=np.zeros(3))) == {}


def test_pytorch_leaves_a_core_to_each_world_that_simulates_meanwhile(torch, monkeypatch):
    for simulating, threads in ((0, 8), (2, 6), (1, 6), (20, 1)):  # never more than before
        share_cores(simulating)
        assert torch.threads == [threads]
    torch.threads[0] = 8
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    share_cores(2)
    assert torch.threads == [8]
