"""A checkpoint that went on from another has the records and the demonstrations of both trainings."""

import json
import shutil

import pytest

from eval.bundle.__main__ import app
from eval.bundle.bundling import bundle, read_bundle_manifest, render, trainings_of
from oxygen.presets.checkpoints import read_record
from oxygen.training import layout
from tests.eval.bundle.conftest import write_checkpoint


@pytest.fixture
def corrections(tmp_path, demonstrations):
    """Other demonstrations, in which somebody was corrected."""
    folder = tmp_path / "corrections"
    shutil.copytree(demonstrations, folder)
    manifest = json.loads((folder / layout.MANIFEST).read_text())
    learner = {"policy": "step_0000007", "weights_sha256": "0123456789abcdef"}
    (folder / layout.MANIFEST).write_text(json.dumps({**manifest, "learner": learner}))
    return folder


@pytest.fixture
def second(tmp_path, checkpoint, corrections):
    """The bundled checkpoint of a training on the corrections that began from `checkpoint`."""
    write_checkpoint(tmp_path / "second", corrections, seed=1, start=checkpoint)
    bundle(tmp_path / "second", [], tmp_path / "tiny")
    return tmp_path / "tiny"


def names_of(folder):
    return sorted(each.name for each in read_bundle_manifest(folder).data)


def test_both_trainings_are_kept_and_counted(second):
    record = read_record(second)
    assert [each["recipe"]["seed"] for each in trainings_of(record)] == [0, 1]
    assert [each["start_from"] for each in trainings_of(record)] == [None, "step_0000007"]
    assert names_of(second) == ["corrections", "demos"]
    card = render(second)
    assert "2 trainings, each from the weights of the one before: 14 steps in all." in card
    assert "| demos | expert | " in card
    assert "| corrections | expert, correcting step_0000007 | " in card
    assert "Not known" not in card


def test_datasets_of_one_name_are_both_kept_and_names_of_suites_may_have_dots(
    tmp_path, checkpoint, corrections
):
    namesake = corrections.rename(tmp_path / "demos")
    file = namesake / layout.MANIFEST
    keys = ("mine.v2.0.5.7.0123456789ab.0", "mine.v2.1.1000.7..0.5", "mine.v2.0.6.7.012345678901.0.5")
    file.write_text(json.dumps({**json.loads(file.read_text()), "demonstrations": keys, "failed": []}))
    write_checkpoint(tmp_path / "second", namesake, seed=1, start=checkpoint)
    bundle(tmp_path / "second", [], tmp_path / "tiny")
    first, second = read_bundle_manifest(tmp_path / "tiny").data
    assert (first.name, second.name) == ("demos", "demos")
    assert second.init_ids == {"mine.v2": (5, 6, 1000)}


def test_no_local_path_and_no_wordings_are_bundled_twice(tmp_path, checkpoint, corrections):
    write_checkpoint(tmp_path / "second", corrections, seed=1, start=checkpoint)
    record = read_record(tmp_path / "second")
    (tmp_path / "second" / "training.json").write_text(json.dumps({**record, "norm_stats": str(checkpoint)}))
    bundle(tmp_path / "second", [], tmp_path / "tiny")
    record = read_record(tmp_path / "tiny")
    assert record["norm_stats"] == checkpoint.name
    assert ["wordings" in each for each in trainings_of(record)] == [False, True]
    assert str(tmp_path.parent.parent) not in json.dumps(record)


def test_a_training_from_a_bundled_checkpoint_has_its_provenance(
    tmp_path, second, demonstrations, monkeypatch
):
    monkeypatch.setattr("oxygen.weights.source.bundled", {"tiny": second}.__getitem__)
    write_checkpoint(tmp_path / "third", demonstrations, seed=2, start="bundled://tiny")
    bundle(tmp_path / "third", [], tmp_path / "next")
    record = read_record(tmp_path / "next")
    assert record["start_from"] == "bundled://tiny"
    assert [each["recipe"]["seed"] for each in trainings_of(record)] == [0, 1, 2]
    assert names_of(tmp_path / "next") == ["corrections", "demos"]


def test_unknown_provenance_is_reported(tmp_path, checkpoint, demonstrations, corrections, capsys):
    gone = tmp_path / "step_0000007"
    shutil.copytree(checkpoint, gone)
    write_checkpoint(tmp_path / "orphan", corrections, seed=1, start=gone)
    record = read_record(tmp_path / "orphan")
    record["data"] = [*record["data"], str(tmp_path / "lost")]
    (tmp_path / "orphan" / "training.json").write_text(json.dumps(record))
    shutil.rmtree(gone)
    app([str(tmp_path / "orphan"), "--output", str(tmp_path / "tiny")], result_action="return_value")
    printed, card = capsys.readouterr().out, render(tmp_path / "tiny")
    for unknown in (
        "how step_0000007, from which training began, was trained",
        "what is in dataset lost",
    ):
        assert f"Not known, and the card says so: {unknown}" in printed
        assert f"- {unknown}\n" in card


def test_a_checkpoint_that_replaced_its_start_is_not_its_own_start(tmp_path, demonstrations):
    place = tmp_path / "place"
    write_checkpoint(place, demonstrations, seed=1, start=place)
    bundle(place, [], tmp_path / "tiny")
    assert "- how place, from which training began, was trained" in render(tmp_path / "tiny")
