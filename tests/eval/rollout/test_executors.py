"""The records are the same, however many worlds are played at once and whatever becomes of processes."""

import dataclasses
import sys

import pytest

from configs.errors import check
from configs.exits import INPUT_ERROR, exit_code_of
from configs.schema import ExecutionConfig, RunConfig
from contracts.episode import Outcome
from contracts.errors import UsageError
from eval.policies.resolved import resolve_policy
from eval.rollout.executors.choice import batch_size_for, choose_executor
from eval.rollout.executors.executor import SERIAL, Processes
from tests.eval.policies.servers import OpenpiServer
from tests.eval.rollout.scaled import played, suite_file, timeless
from tests.eval.rollout.worker_worlds import DEADLY, HANGING, ONCE, ErrantSuite, LiberoWithoutJax

CLOCKS = ("paused", "fixed:100,200", "profile:jetson-thor-oxygen-2603")
MODES = ("isolated", "shared", "unified")

POLICY = """
import numpy as np

class Mine:
    embodiment = "libero"
    horizon = 10

    def reset(self):
        self.queries = 0

    def infer(self, obs):
        self.queries += 1
        mean = float(obs["observation/image"].mean()) / 255
        return {"actions": np.full((10, 7), 0.01 * self.queries + mean)}
"""


def libero(tmp_path, clock="fixed:100,200", mode="unified", **changes):
    config = RunConfig(
        suites=(suite_file(tmp_path, "libero_object", LiberoWithoutJax),),
        task_ids=(0,),
        init_ids=(30, 31),
        max_steps=12,
        num_steps_wait=2,
        assets="standins",
        clock=clock,
        mode=mode,
        batch_size=2,
        video="none",
    )
    return config.model_copy(update=changes)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("clock", CLOCKS)
def test_records_are_the_same_from_one_two_and_three_worlds_in_every_mode(tmp_path, clock):
    """Three worlds are two groups of different sizes, at different moments of their episodes."""
    variants = [libero(tmp_path, clock, mode, init_ids=(30, 31, 32), max_steps=25) for mode in MODES]
    expected = list(map(timeless, played(tmp_path / "0", *variants, executor=SERIAL)))
    for worlds in (1, 2, 3):
        runs = played(tmp_path / str(worlds), *variants, executor=Processes(num_envs=worlds))
        assert list(map(timeless, runs)) == expected


def same_together(tmp_path, config, worlds=2):
    """The records of a run, which are the same from one world and from several."""
    (alone,) = played(tmp_path / "alone", config, executor=SERIAL)
    (together,) = played(tmp_path / "together", config, executor=Processes(num_envs=worlds))
    assert timeless(alone) == timeless(together)
    return timeless(alone)


@pytest.mark.slow
def test_two_worlds_by_default_equal_one_bit_for_bit(tmp_path):
    config = libero(tmp_path, batch_size=batch_size_for(2), init_ids=(30, 31, 32), max_steps=40)
    assert config.batch_size == RunConfig().batch_size == 1
    same_together(tmp_path, config)


def errands(tmp_path, policy="noop", init_ids=(0, 1, 2, 6), **changes):
    words = {"instructions": ["put it there", "take it back"]}
    suite = suite_file(tmp_path, "fake", ErrantSuite, environment=words, camera_size=256)
    return RunConfig(suites=(suite,), init_ids=init_ids, policy=policy, video="none", **changes)


def test_records_of_two_worlds_equal_those_of_one(tmp_path):
    """With a policy that has weights, while time passes. No worker imports JAX."""
    config = errands(
        tmp_path, policy="tiny", clock="fixed:100,200", batch_size=2, task_ids=(0,), init_ids=(0, 6)
    )
    records = same_together(tmp_path, config)
    assert {line["outcome"] for line, _ in records.values()} == {"success"}
    assert sum(line["requests"]["finished"] for line, _ in records.values())


@pytest.mark.slow
def test_a_class_is_instantiated_for_every_world(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(POLICY)
    config = errands(tmp_path, policy=f"{file}:Mine")
    assert len(same_together(tmp_path, config, worlds=3)) == 8


@pytest.mark.slow
def test_every_worker_has_its_own_connection_to_a_server(tmp_path):
    with OpenpiServer() as server:
        config = errands(tmp_path, policy=server.url, policy_kwargs={"embodiment": "libero"}, init_ids=(0, 6))
        (alone,) = played(tmp_path / "alone", config, executor=SERIAL)
        before = len(server.connections)
        (together,) = played(tmp_path / "together", config, executor=Processes(num_envs=2))
        assert len(server.connections) - before > 2, "one to be greeted, and one for every worker"
    records = timeless(alone)
    assert records == timeless(together)
    assert {line["outcome"] for line, _ in records.values()} == {"success"}


@pytest.mark.slow
def test_in_mode_parallel_every_group_of_worlds_has_a_second_process(tmp_path):
    config = errands(tmp_path, policy="tiny", mode="parallel", batch_size=2, init_ids=(0, 6))
    records = same_together(tmp_path, config, worlds=3)
    assert sum(line["requests"]["finished"] for line, _ in records.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "reasons",
    [{DEADLY: "exited with code 3"}, {DEADLY: "exited with code 3", HANGING: "had not finished after 10 s"}],
)
def test_a_lost_process_is_replaced_and_its_episode_retried(tmp_path, monkeypatch, reasons):
    monkeypatch.setenv("ERRANT_MARK", str(tmp_path / "mark"))
    config = errands(tmp_path, init_ids=(0, *reasons, ONCE, 6), task_ids=(0,))
    expected = errands(tmp_path, init_ids=(0, 6), task_ids=(0,))
    (alone,) = played(tmp_path / "alone", expected, executor=SERIAL)
    (run,) = played(tmp_path / "runs", config, executor=Processes(num_envs=2, timeout_s=10.0))
    episodes = {key.init_id: result for key, result in run.folder.episodes().items()}
    errors = {init_id: each.error for init_id, each in episodes.items() if each.outcome is Outcome.ERROR}
    assert errors.keys() == reasons.keys()
    assert all(reason in errors[init_id] for init_id, reason in reasons.items())
    assert episodes[ONCE].outcome is Outcome.SUCCESS
    assert timeless(alone).items() <= timeless(run).items(), "the others have not noticed"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num_envs": 0}, "num_envs is 0"),
        ({"num_envs": 4096}, "--num-envs 4096: worlds take about 500 MB each, .* or less"),
        ({"executor": "serial", "num_envs": 2}, "--num-envs 2 needs worker processes"),
        ({"executor": "ray", "query_timeout": 5.0}, "--query-timeout 5 .* executor ray; .*--episode-timeout"),
        ({"num_envs": 2, "episode_timeout": 0.0}, "episode_timeout is 0.0"),
    ],
)
def test_invalid_executor_options_are_refused_in_one_line(given, said):
    with pytest.raises(UsageError, match=said):
        choose_executor(check(ExecutionConfig, given, source="the command line"))


def test_executor_ray_says_what_to_install(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "eval.rollout.executors.ray", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert exit_code_of(lambda: choose_executor(ExecutionConfig(num_envs=2, executor="ray"))) == INPUT_ERROR
    said = capsys.readouterr().err
    assert "the package ray, which is not installed: run uv pip install -e '.[ray]'" in said


@pytest.mark.parametrize(
    "changes", [{"clock": "measured"}, {"deadline_ms": 90.0}, {"clock": "measured", "batch_size": 2}]
)
def test_several_robots_on_one_machine_refuse_measured_time(tmp_path, changes):
    executor = SERIAL if "batch_size" in changes else Processes(num_envs=2)
    config = errands(tmp_path, policy="tiny", **changes)
    with pytest.raises(UsageError, match="share this machine; give --num-envs 1 and --batch-size 1"):
        played(tmp_path / "runs", config, executor=executor)
    assert not (tmp_path / "runs").exists()


def test_a_lasting_executor_loads_a_named_policy_once_unless_something_differs(monkeypatch):
    loaded = []

    def load(resolved, variants, *, worlds, notify):
        loaded.append((resolved.policy.name, variants[0].mode, worlds))
        return [object()]

    def opened(executor, **options):
        config = RunConfig(**{"policy": "tiny", "mode": "actions", **options})
        return executor.open_policies(resolve_policy(config), [config], print)

    monkeypatch.setattr("eval.rollout.executors.executor.open_policies", load)
    lasting = dataclasses.replace(SERIAL, lasting=True)
    assert opened(lasting) is opened(lasting)
    assert loaded == [("tiny", "actions", 1)]
    for changed in ({"mode": "unified"}, {"batch_size": 2}, {}):
        opened(lasting, **changed)
    assert len(loaded) == 4
    assert opened(SERIAL) is not opened(SERIAL)
    assert opened(lasting, policy="noop") is not opened(lasting, policy="noop")
