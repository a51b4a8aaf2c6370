"""On a Ray cluster records are those of one world after the other, whatever becomes of actors and nodes."""

import contextlib
import json
import threading
import time

import psutil
import pytest

from configs.schema import ExecutionConfig, RunConfig
from contracts.episode import Outcome
from contracts.errors import UsageError
from eval.policies.resolved import resolve_policy
from eval.rollout.executors.choice import choose_executor
from eval.rollout.executors.executor import SERIAL
from sim_envs.fake import FakeSuite
from tests.eval.rollout.scaled import played, suite_file, timeless
from tests.eval.rollout.test_executors import POLICY, libero
from tests.eval.rollout.worker_worlds import DEADLY, HANGING, ONCE, ErrantSuite, UnhurriedSuite

ray = pytest.importorskip("ray", reason="uv pip install -e '.[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200), pytest.mark.filterwarnings("default")]

WORLDS = 3


@pytest.fixture
def executor(tmp_path, monkeypatch, request):
    """Episodes may take minutes, unless one is to hang: this machine may be busy."""
    monkeypatch.setenv("ERRANT_MARK", str(tmp_path / "mark"))
    seconds = getattr(request, "param", 300.0)
    yield choose_executor(
        ExecutionConfig(num_envs=WORLDS, executor="ray", ray_address="local", episode_timeout=seconds)
    )
    ray.shutdown()


def fake(tmp_path, suite, **changes):
    words = {"init_ids": 12, "success_at": 12, "instructions": ["put it there", "take it back"]}
    file = suite_file(tmp_path, "fake", suite, environment=words, camera_size=256)
    policy = tmp_path / "mine.py"
    policy.write_text(POLICY)
    return RunConfig(suites=(file,), policy=f"{policy}:Mine", video="none").model_copy(update=changes)


def test_records_equal_those_of_serial_execution(tmp_path, executor):
    """On LIBERO, with a policy that has weights, in two modes while time passes. No world imports JAX."""
    more = {"init_ids": (30, 31, 32), "video": "all"}
    variants = [libero(tmp_path, mode=mode, **more) for mode in ("shared", "unified")]
    alone = played(tmp_path / "alone", *variants, executor=SERIAL)
    together = played(tmp_path / "together", *variants, executor=executor)
    assert list(map(timeless, alone)) == list(map(timeless, together))
    files, expected = (
        [{path.relative_to(run.folder.path) for path in run.folder.path.rglob("*.*")} for run in runs]
        for runs in (together, alone)
    )
    assert files == expected


def test_the_driver_learns_whether_a_class_writes_texts(tmp_path, executor):
    config = fake(tmp_path, ErrantSuite)
    (policy,) = executor.open_policies(resolve_policy(config), [config], print)
    assert not policy.writes_texts
    policy.close()


BATCHED = """
import pathlib
import numpy as np

class Mine:
    embodiment = "libero"

    def __init__(self):
        with pathlib.Path(__file__).with_name("made.txt").open("a") as file:
            file.write("made\\n")

    def reset(self, rows, keys):
        pass

    def infer_batch(self, observations):
        rows = [seen["row"] for seen in observations]
        FAULT
        with pathlib.Path(__file__).with_name("batches.txt").open("a") as file:
            file.write(f"{rows}\\n")
        return [{"actions": np.full((10, 7), 0.01)} for _ in rows]
"""


def test_one_object_with_infer_batch_serves_the_worlds_of_all_actors(tmp_path, executor):
    config = fake(tmp_path, UnhurriedSuite, batch_size=2)
    (tmp_path / "mine.py").write_text(BATCHED.replace("FAULT", "pass"))
    (run,) = played(tmp_path / "runs", config, executor=executor)
    assert {each.outcome for each in run.folder.episodes().values()} == {Outcome.SUCCESS}
    assert (tmp_path / "made.txt").read_text() == "made\n"
    batches = [json.loads(line) for line in (tmp_path / "batches.txt").read_text().splitlines()]
    assert {row for rows in batches for row in rows} == set(range(WORLDS))
    assert max(map(len, batches)) <= 2


def test_a_policy_out_of_memory_ends_the_run_with_the_remedy(tmp_path, executor):
    config = fake(tmp_path, UnhurriedSuite, batch_size=2)
    full = BATCHED.replace("FAULT", "raise MemoryError").replace(
        "embodiment", "pad_batches = True\n    embodiment"
    )
    (tmp_path / "mine.py").write_text(full)
    with pytest.raises(UsageError, match=r"out of memory in a batch of 2 .* --resume --batch-size 1"):
        played(tmp_path / "runs", config, executor=executor)


@pytest.mark.parametrize("executor", [20.0], indirect=True)
def test_an_actor_that_dies_or_hangs_is_replaced_and_its_episode_retried(tmp_path, executor):
    config = fake(tmp_path, ErrantSuite, task_ids=(0,), init_ids=(0, 1, DEADLY, HANGING, ONCE, 6))
    (alone,) = played(tmp_path / "alone", config.model_copy(update={"init_ids": (0, 1, 6)}), executor=SERIAL)
    (run,) = played(tmp_path / "runs", config, executor=executor)
    outcomes = {key.init_id: result.outcome for key, result in run.folder.episodes().items()}
    lost = {init_id for init_id, outcome in outcomes.items() if outcome is Outcome.ERROR}
    assert lost == {DEADLY, HANGING}
    assert outcomes[ONCE] is Outcome.SUCCESS
    assert timeless(alone).items() <= timeless(run).items(), "the others have not noticed"


@contextlib.contextmanager
def once_begun(folder, strike):
    """Strike as soon as some episodes have ended; in a thread, while a run goes on."""

    def wait_and_strike():
        while not any(path.read_text().count("\n") > 2 for path in folder.glob("*/episodes.jsonl")):
            time.sleep(0.1)
        strike()

    striking = threading.Thread(target=wait_and_strike, daemon=True)
    striking.start()
    yield
    striking.join()


@pytest.mark.parametrize("victim", ["ray::WorldActor", "ray::PolicyService"])
def test_a_killed_process_costs_no_episode(tmp_path, executor, victim):
    (alone,) = played(tmp_path / "alone", fake(tmp_path, FakeSuite), executor=SERIAL)
    killed = []

    def strike():
        own = psutil.Process().children(recursive=True)  # others may run Ray on this machine
        process = next(each for each in own if any(victim in part for part in each.cmdline()))
        process.kill()
        killed.append(process.pid)

    with once_begun(tmp_path / "runs", strike):
        (run,) = played(tmp_path / "runs", fake(tmp_path, UnhurriedSuite), executor=executor)
    assert killed
    assert timeless(run) == timeless(alone)


def test_a_lost_node_costs_no_episode(tmp_path):
    from ray.cluster_utils import Cluster

    (alone,) = played(tmp_path / "alone", fake(tmp_path, FakeSuite), executor=SERIAL)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        node = cluster.add_node(num_cpus=1)
        executor = choose_executor(ExecutionConfig(num_envs=2, executor="ray", ray_address=cluster.address))
        with once_begun(tmp_path / "runs", lambda: cluster.remove_node(node, allow_graceful=False)):
            (run,) = played(tmp_path / "runs", fake(tmp_path, UnhurriedSuite), executor=executor)
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert timeless(run) == timeless(alone)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:9", "no answer from --ray-address 127.0.0.1:9 .*Connection refused.* or give local"),
        ("here", "--ray-address is 'here': give auto, local or host:port"),
    ],
)
def test_an_unreachable_cluster_is_refused_in_one_line(address, said):
    began = time.monotonic()
    with pytest.raises(UsageError, match=said):
        choose_executor(ExecutionConfig(num_envs=2, executor="ray", ray_address=address))
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("local", "Ray does not start here .*timed out during startup.*leave out --executor ray"),
        ("auto", "no Ray cluster found at --ray-address auto .*timed out during startup.* or give local"),
    ],
)
def test_a_start_that_takes_too_long_is_one_line(monkeypatch, address, said):
    def late(*_, **__):
        raise Exception("The current node timed out during startup. This could happen because\nof GCS")

    monkeypatch.setattr(ray, "init", late)
    with pytest.raises(UsageError, match=said) as refused:
        choose_executor(ExecutionConfig(num_envs=2, executor="ray", ray_address=address))
    assert "\n" not in str(refused.value)
