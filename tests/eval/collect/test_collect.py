"""`oxygen-eval collect`: what is kept, resuming, any number of workers, physics, and bad input."""

import dataclasses
import itertools
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from configs.load import load
from configs.schema import SuiteConfig
from configs.training import CollectConfig
from contracts.errors import UsageError
from contracts.truth import Fact
from eval.collect.__main__ import app
from eval.collect.collection import INCOMPLETE, collect_demonstrations
from eval.collect.store import EpisodeStore
from eval.policies.resolved import read_policy
from eval.records import provenance
from oxygen.presets.policies import weights_sha256
from oxygen.training import layout
from oxygen.training.demonstrations import Demonstrations
from sim_envs.truth.textual_memory import parse_textual_memory
from sim_envs.truth.wording import parse_memory, parse_narration
from tests.commands import call
from tests.eval.collect.collecting import BROKEN, DIVERGING, FATAL, NEVER, Errand, collect, contents


def manifest(dataset: Path) -> dict:
    return json.loads((dataset / layout.MANIFEST).read_text())


def test_demonstrations_are_the_successes_in_the_order_of_their_keys(tmp_path, capsys):
    assert collect(tmp_path, init_ids=(1, NEVER, 0), task_ids=(1, 0)) == 0
    found = Demonstrations(tmp_path)
    keys = zip(*(found.columns[f"oxygen.{part}"] for part in ("suite", "task_id", "init_id")), strict=True)
    assert [key for key, _ in itertools.groupby(keys)] == [
        (suite, task, init)
        for suite in ("libero_goal", "libero_object")
        for task in (0, 1)
        for init in (0, 1)
    ]
    about = manifest(tmp_path)
    assert about["counts"] == {"demonstrations": 8, "frames": 16, "failures": 4}
    assert [f".{NEVER}.7." in key for key in about["failed"]] == [True] * 4
    assert {"commit", "dirty"} == set(about["git"])
    assert about["versions"]["mujoco"] == "3.2.3"
    assert about["assets"] == [["a", "a00000000000"]]
    assert "4 episodes failed" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_the_dataset_does_not_depend_on_the_number_of_workers(tmp_path):
    for workers in (1, 2):
        collect(tmp_path / str(workers), workers=workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


_IN_A_PROCESS = """
from pathlib import Path
from tests.eval.collect.collecting import collect
if __name__ == "__main__":
    collect(Path({path!r}), pause_s=0.5, workers=2)
"""


@pytest.mark.slow
def test_the_same_command_completes_a_killed_collection(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = subprocess.Popen(
        [sys.executable, "-c", _IN_A_PROCESS.format(path=str(killed))], stdout=subprocess.DEVNULL
    )  # its workers outlive it by an episode at most, which hurts nobody
    while not list(killed.glob(".episodes/*.parquet")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = set(killed.glob(".episodes/*.parquet"))
    assert 0 < len(kept) < 8
    assert not (killed / "meta").exists()
    (killed / ".episodes" / "half.written.parquet.1.partial").write_bytes(b"half")
    stamps = {path: path.stat().st_mtime_ns for path in kept}
    assert collect(killed) == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == stamps
    collect(whole)
    assert contents(killed) == contents(whole)


def test_demonstrations_are_added_but_never_twice(tmp_path):
    grown, whole = tmp_path / "grown", tmp_path / "whole"
    collect(grown, init_ids=(0,))
    collect(grown, init_ids=(0, 1), seeds=(7, 8))
    collect(grown, init_ids=(1,), seeds=(7,), assets="b")
    before = contents(grown)
    collect(grown, init_ids=(0, 1), seeds=(8,))
    assert contents(grown) == before
    assert len(Demonstrations(grown).episodes) == 4 * (2 * 2 + 1)
    collect(whole, init_ids=(1,), assets="b")
    collect(whole, init_ids=(0, 1), seeds=(7, 8))
    assert contents(whole) == before


@pytest.mark.parametrize(
    ("init_id", "workers", "said"),
    [
        (BROKEN, 1, "the fake simulator fails"),
        pytest.param(FATAL, 2, "it exited with code 3", marks=pytest.mark.slow),
    ],
)
def test_errors_are_reported_and_retried_while_others_go_on(init_id, workers, said, tmp_path, capsys):
    assert collect(tmp_path, init_ids=(0, init_id), workers=workers) == INCOMPLETE
    assert len(Demonstrations(tmp_path).episodes) == 4
    assert manifest(tmp_path)["errors"] == 4
    assert said in " ".join(capsys.readouterr().out.split())
    assert collect(tmp_path, init_ids=(0, init_id), mended=True) == 0
    assert len(Demonstrations(tmp_path).episodes) == 8


def test_diverging_physics_is_not_retried_and_without_a_success_there_is_no_dataset(tmp_path, capsys):
    few = {"suites": ("libero_goal",)}
    assert collect(tmp_path, init_ids=(DIVERGING,), **few) == INCOMPLETE
    assert not (tmp_path / "meta").exists()
    assert "No episode succeeded" in capsys.readouterr().out
    assert collect(tmp_path, init_ids=(0, DIVERGING), **few) == 0
    assert manifest(tmp_path)["counts"]["failures"] == 2
    assert "Played before: 2 of 4 episodes" in capsys.readouterr().out


def test_kept_failures_have_no_target_actions(tmp_path, capsys):
    both = {"init_ids": (0, NEVER), "suites": ("libero_goal",), "task_ids": (0,), "keep_failures": True}
    assert collect(tmp_path, **both) == 0
    found = Demonstrations(tmp_path)
    failed, padded = found.columns["oxygen.init_id"] == NEVER, found.columns[layout.PADDED]
    assert failed.sum() == 8  # a query every five of forty steps
    assert padded[failed].all()
    assert not padded[~failed].all()
    about = manifest(tmp_path)
    assert about["counts"] == {"demonstrations": 2, "frames": len(failed), "failures": 1}
    assert [f".{NEVER}.7." in key for key in about["failed"]] == [True]
    before = contents(tmp_path)
    assert collect(tmp_path, **both) == 0
    assert "Played before: 2 of 2 episodes." in " ".join(capsys.readouterr().out.split())
    assert contents(tmp_path) == before
    with pytest.raises(UsageError, match="keep_failures True, not False"):
        collect(tmp_path, **{**both, "keep_failures": False})


def test_a_dataset_is_extended_under_the_protocol_of_its_suites_alone(tmp_path):
    mine, dataset = tmp_path / "mine.yaml", tmp_path / "dataset"
    protocol = load(SuiteConfig, "libero_goal").model_dump(mode="json")
    mine.write_text(yaml.safe_dump(protocol))
    collect(dataset, suites=(str(mine),), init_ids=(0,))
    shutil.rmtree(dataset / "meta")  # as a kill in mid assembly leaves it
    collect(dataset, suites=("libero_object",), init_ids=(0,))
    assert sorted(manifest(dataset)["suites"]) == ["libero_goal", "libero_object"]
    assert manifest(dataset)["command"] == provenance.command()
    mine.write_text(yaml.safe_dump({**protocol, "settle_steps": 3}))
    for suites in ((str(mine),), ("libero_object", str(mine))):
        with pytest.raises(UsageError, match=r"begun with protocol of libero_goal '\w+', not '\w+'.*--out"):
            collect(dataset, suites=suites)
    collect(dataset, suites=("libero_goal",), assets="b")
    assert len(Demonstrations(dataset).episodes) == 8


def test_a_dataset_with_other_options_or_without_its_episodes_is_left_as_it_is(tmp_path):
    collect(tmp_path, suites=("libero_goal",))
    before = contents(tmp_path)
    with pytest.raises(UsageError, match="replan_steps 5, not 2"):
        collect(tmp_path, replan_steps=2)
    with pytest.raises(UsageError, match="image_size 8, not 16"):
        collect(tmp_path, image_size=16)
    with pytest.raises(UsageError, match=r"begun with action .*eef_position.*, not \['joint_position"):
        EpisodeStore(tmp_path).check({"action": ["joint_position[7] in rad"]})
    shutil.rmtree(tmp_path / ".episodes")
    with pytest.raises(UsageError, match=r"without its \.episodes"):
        collect(tmp_path, init_ids=(0,))
    assert contents(tmp_path) == before


EPISODE, FAILURE = ".episodes/*.parquet", ".episodes/*.failed.json"


@pytest.mark.parametrize(
    ("pattern", "content", "said"),
    [
        (layout.MANIFEST, '{"suites": 5}', "oxygen.json: suites: .* is 5"),
        (layout.MANIFEST, "[", "oxygen.json: not JSON"),
        (EPISODE, {"language": 5}, "parquet: language is 5: input should be"),
        (EPISODE, {"histograms": {"image": [[1]]}}, "parquet: histograms.image"),
        (EPISODE, {"key": {"suite": 5}}, r"parquet: key\.suite is 5"),
        (EPISODE, "PAR1", "cannot be read as Parq"),
        (FAILURE, '{"key": 5}', r"failed\.json: the whole is 5"),
        (FAILURE, '{"key": {"suite": "libero_goal"}}', "task_id is missing"),
    ],
)
def test_forged_records_of_a_dataset_are_one_line(one, tmp_path, pattern, content, said):
    """A mapping changes what an episode's file says about it."""
    both = {"suites": ("libero_goal",), "task_ids": (0,), "init_ids": (2, NEVER), "replan_steps": 4}
    forged = Path(shutil.copytree(one, tmp_path / "forged"))
    collect(forged, **both)
    file = min(forged.glob(pattern))
    if isinstance(content, dict):
        table = pq.read_table(file)
        about = json.loads(table.schema.metadata[b"about"]) | content
        pq.write_table(table.replace_schema_metadata({"about": json.dumps(about)}), file)
    else:
        file.write_text(content)
    with pytest.raises(UsageError, match=said):
        collect(forged, **both)


@pytest.mark.parametrize("player", ["policy", "learner"])
def test_a_dataset_is_not_extended_with_other_weights(player, tmp_path, monkeypatch):
    few = {"suites": ("libero_goal",), "task_ids": (0,), player: "tiny"}
    monkeypatch.setattr("eval.collect.collection.weights_sha256", lambda policy: "first")
    collect(tmp_path, **few, init_ids=(0,))
    before = manifest(tmp_path)
    monkeypatch.setattr("eval.collect.collection.weights_sha256", lambda policy: "retrained")
    with pytest.raises(UsageError, match=f"begun with {player}_weights_sha256 'first', not 'retrained'"):
        collect(tmp_path, **few, init_ids=(0, 1))
    assert manifest(tmp_path) == before


@pytest.fixture(scope="module")
def one(tmp_path_factory) -> Path:
    """One episode, a query every four steps."""
    folder = tmp_path_factory.mktemp("one")
    collect(folder, suites=("libero_goal",), task_ids=(0,), init_ids=(2,), replan_steps=4)
    return folder


def test_every_frame_is_a_query_and_has_ground_truth_texts(one):
    found = Demonstrations(one)
    first, _, last = found
    for frame, world in ((first, Errand(steps=0)), (last, Errand(steps=8))):
        truth = world.truth()
        assert parse_narration(frame["oxygen.narration"]) == truth.narration
        assert parse_memory(frame["oxygen.memory"]) == truth.memory
        assert parse_textual_memory(frame["oxygen.textual_memory"]) == truth.textual_memory
        facts = json.loads(frame["oxygen.truth"])
        assert facts["narration"] == dataclasses.asdict(truth.narration)
        assert [Fact(**fact) for fact in facts["memory"]["facts"]] == sorted(truth.memory.facts)
    assert first["oxygen.narration"] != last["oxygen.narration"]
    assert found.fps == 5.0
    assert found.columns[layout.STEP].tolist() == [0, 4, 8]
    assert first[layout.LANGUAGE] == "open the middle drawer of the cabinet"
    assert np.array_equal(first["observation.images.wrist_image"], np.full((8, 8, 3), 2 * 16 + 7))
    assert np.array_equal(last["observation.images.image"], np.full((8, 8, 3), 2 * 16 + 7 + 8))
    assert first[layout.CHUNK][:, 0] == pytest.approx(
        [0.0, 0.0001, 0.0002, 0.0003, 0.01, 0.0101, 0.0102, 0.0103, 0.02, 0.0201]
    )
    assert not first[layout.PADDED].any()
    assert last[layout.PADDED].tolist() == [False] * 4 + [True] * 6
    assert last[layout.CHUNK][4:].tolist() == [[0, 0, 0, 0, 0, 0, 1]] * 6


LIBERO = {"assets": "standins", "replan_steps": 5, "image_size": 64}


def played(folder: Path, suite: str, task_id: int, init_id: int, **options: object) -> Demonstrations:
    """The demonstration of an episode of a suite's own physics."""
    config = CollectConfig(suites=(suite,), task_ids=(task_id,), init_ids=(init_id,), **options)
    assert collect_demonstrations(config, folder, workers=1) == 0
    return Demonstrations(folder)


@pytest.mark.slow
def test_an_expert_corrects_a_learner_and_only_its_own_turns_are_learnable(tmp_path):
    # The learner's first turn is short.
    columns = played(tmp_path, "libero_object", 3, 6, **LIBERO, learner="tiny", max_steps=500).columns
    weights = weights_sha256(read_policy("tiny"))
    assert manifest(tmp_path)["learner"] == {"policy": "tiny", "weights_sha256": weights}
    taught = ~columns[layout.PADDED]
    assert not taught[0].any()  # the learner's turn is first,
    assert (taught.sum(axis=1) == 10).any()  # then the expert's, for longer than a chunk
    assert all(parse_narration(text) for text in columns["oxygen.narration"])  # what to say is known in both


@pytest.mark.slow
def test_an_expert_catches_a_moving_object_and_ground_truth_narrates_it(tmp_path):
    found = played(tmp_path, "libero_spatial", 2, 0, **LIBERO, motion="shuttle:3", expert_noise=0.2)
    assert manifest(tmp_path)["suites"]["libero_spatial"]["motion"] == "shuttle:3,4"
    columns = found.columns
    assert set(columns["oxygen.assets"]) == {"standins"}
    assert set(columns["oxygen.noise"]) == {np.float32(0.2)}
    chunks = columns[layout.CHUNK]
    assert np.abs(chunks).max() <= 1
    assert chunks[0, 0, 6] == -1  # the gripper is open at first,
    assert chunks[:, :, 6].max() == 1  # and closes on the way
    assert all(parse_narration(text) for text in columns["oxygen.narration"])
    assert all(parse_memory(text) for text in columns["oxygen.memory"])
    first, *_, last = (frame["observation.images.image"] for frame in found)
    assert first.shape == (64, 64, 3)
    assert not np.array_equal(first, last)
    assert columns["oxygen.narration"][0] != columns["oxygen.narration"][-1]


@pytest.mark.slow
def test_a_demonstration_of_the_expert_has_droids_shapes(tmp_path):
    found = played(tmp_path, "droid_tabletop", 7, 0, replan_steps=10)
    info = json.loads((tmp_path / layout.INFO).read_text())
    assert info["fps"] == 15 / 10
    features = info["features"]
    for camera in ("exterior_image_1_left", "wrist_image_left"):
        assert features[layout.IMAGES + camera]["shape"] == [180, 320, 3]
    positions = [f"joint_position_{number}" for number in range(7)]
    assert features[layout.STATE]["names"] == [*positions, "gripper_position"]
    velocities = [f"joint_velocity_{number}" for number in range(7)]
    assert features[layout.ACTION]["names"] == [*velocities, "gripper"]
    assert found[0]["observation.images.wrist_image_left"].shape == (180, 320, 3)
    chunks, memory = found.columns[layout.CHUNK], found.columns["oxygen.memory"]
    assert np.abs(chunks).max() <= 1
    assert chunks[0, 0, 7] == 0
    assert chunks[:, :, 7].max() == 1
    assert found.columns["oxygen.narration"][0] == "Reaching for the can."
    assert memory[-1] != memory[0]


def test_flags_override_a_preset(monkeypatch):
    started: list = []
    collection = "eval.collect.collection.collect_demonstrations"
    monkeypatch.setattr(collection, lambda *given, **how: started.append((*given, how)))
    where = ("--output", "here", "--workers", "3")
    assert call(app, "--config", "smoke", "--init-ids", "3", "--task-ids", "3", *where) == 0
    ((config, *rest),) = started
    assert rest == [Path("here").absolute(), {"workers": 3}]
    assert (config.num_trials_per_task, config.init_ids, config.task_ids) == (None, (3,), (3,))
    assert (config.suites, config.assets) == (("libero_object",), "standins")


DROID = "--assets auto --policy noop --suite droid_tabletop"


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("--policy exprt", ["'exprt'", "did you mean 'expert'"]),
        ("--suite libero_goal --task-ids 12", ["12", "0 to 9"]),
        ("--suite libero_goal --init-ids 50", ["init id 50", "0 to 49"]),
        ("--suite libero_goal --init-ids 9,500007", ["init id 500007", "500000 to 599999", "of policies"]),
        ("--suite libero_goal --images video --image-size 225", ["225 × 225", "even", "--image-size"]),
        (f"{DROID} --images video --image-size 240", ["240 × 427", "even", "--images png"]),
        (f"{DROID} --suite droid_tabletop_jointpos", ["has action", "(absolute", "(velocity", "separate"]),
        ("--policy ws://localhost:9", ["--policy ws://localhost:9", "a class or a server", "give expert"]),
        ("--policy mine.py:Mine", ["--policy mine.py:Mine", "a class or a server", "give expert"]),
        ("--expert-noise -1", ["expert_noise", "-1"]),
        ("--policy tiny --expert-noise 0.1", ["--expert-noise 0.1", "--policy expert", "tiny"]),
        ("--learner noop", ["--learner", "noop", "weights"]),
        ("--policy tiny --learner tiny", ["--learner tiny", "--policy expert", "tiny"]),
        ("--workers 0", ["--workers", "0"]),
        ("--seeds 4294967296", ["seeds", "4294967296"]),
        ("--suite libero_90 --task-ids 88", ["libero_90 task 88 needs", "no stand-ins", "--assets"]),
        ("--policy noop --dtype bfloat16", ["--dtype bfloat16", "noop is scripted"]),
        ("--num-trials-per-task 2 --init-ids 5,6", ["is 2 and", "(5, 6)", "--init-ids"]),
    ],
)
def test_bad_input_is_one_line_on_stderr(line, parts, tmp_path, refused):
    assets = () if "--assets" in line else ("--assets", "standins")
    said = refused(app, *line.split(), *assets, "--output", tmp_path / "out")
    assert [part for part in parts if part not in said] == []
    assert not (tmp_path / "out").exists()
