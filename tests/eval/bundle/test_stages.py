"""A checkpoint that went on from another: both trainings are told, and who was corrected in between."""

import json
import shutil

import pytest

from configs.errors import UsageError
from eval.bundle.__main__ import app
from eval.bundle.bundling import bundle
from eval.bundle.card import render
from eval.bundle.contents import read_contents
from eval.bundle.history import trainings_of
from eval.policies.checkpoints import read_record
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
    bundle(tmp_path / "second", [], tmp_path / "tiny", data=[])
    return tmp_path / "tiny"


def test_the_card_tells_the_trainings_one_after_the_other(second):
    card = render(second)
    first, then = card.split("Stage 2: 7 steps on 12,345 frames of corrections")
    assert "Stage 1: 7 steps on 12,345 frames of demos" in first
    assert "| recipe.seed | 0 |" in first
    assert "| start_from | none |" in first
    assert "| recipe.seed | 1 |" in then
    assert "| start_from | step_0000007 |" in then


def test_no_place_of_the_machine_is_shipped(tmp_path, checkpoint, corrections):
    write_checkpoint(tmp_path / "second", corrections, seed=1, start=checkpoint)
    record = read_record(tmp_path / "second")
    (tmp_path / "second" / "training.json").write_text(json.dumps({**record, "norm_stats": str(checkpoint)}))
    bundle(tmp_path / "second", [], tmp_path / "tiny", data=[])
    assert read_record(tmp_path / "tiny")["norm_stats"] == checkpoint.name
    for place in (tmp_path, checkpoint.parent):
        assert str(place) not in (tmp_path / "tiny" / "training.json").read_text()


def test_the_demonstrations_of_both_count_as_seen(second):
    assert [each.name for each in read_contents(second).data] == ["corrections", "demos"]


def test_the_card_says_in_which_stages_a_dataset_was_used_and_counts_it_once(second, tmp_path, corrections):
    assert "| demos | 1 | expert | 0.0 |" in render(second)
    assert "\n32 frames of demonstrations in simulation, those of all stages" in render(second)
    write_checkpoint(tmp_path / "third", corrections, seed=2, start=tmp_path / "second")
    bundle(tmp_path / "third", [], tmp_path / "tiny", data=[])
    assert "| corrections | 2–3 | expert" in render(tmp_path / "tiny")
    assert "\n32 frames of" in render(tmp_path / "tiny")


def test_a_stage_that_had_other_frames_than_the_table_counts_now_is_told_apart(second):
    assert "12,345 frames of demos (the table has 16 under these names" in render(second)
    record = read_record(second)
    record["before"]["frames"] = 16
    (second / "training.json").write_text(json.dumps(record))
    assert "16 frames of demos:" in render(second)


def test_a_dataset_of_which_nothing_but_its_name_is_known_is_told(second, tmp_path, corrections, capsys):
    what = [str(tmp_path / "second"), "--data", str(corrections), "--output", str(second)]
    app(what, result_action="return_value")
    assert "what is in dataset demos, which training names" in capsys.readouterr().out
    card = render(second)
    assert "| demos | 1 | unknown | unknown | unknown | unknown | 12345 | unknown |" in card
    assert "Not among them are those of demos" in card
    for training in trainings_of(read_record(second)):
        for name in training["data"]:
            assert f"\n| {name} | " in card


def test_a_dataset_that_no_training_names_is_refused(tmp_path, checkpoint, corrections):
    with pytest.raises(UsageError, match=r"unknown dataset of this checkpoint 'corrections'; .*'demos'"):
        bundle(checkpoint, [], tmp_path / "tiny", data=[corrections])


def test_who_was_corrected_is_told_with_its_weights(second):
    alone, corrected = read_contents(second).data[1], read_contents(second).data[0]
    assert alone.learner is None
    assert corrected.learner.policy == "step_0000007"
    assert "| corrections | 2 | expert, by turns with step_0000007 (01234567), which it corrects |" in render(
        second
    )


def test_the_record_of_the_first_is_kept_without_places_and_without_the_same_words_twice(second, tmp_path):
    record = read_record(second)
    assert record["before"]["recipe"]["seed"] == 0
    assert "wordings" in record
    assert "wordings" not in record["before"]
    assert str(tmp_path.parent.parent) not in json.dumps(record)


def test_a_training_that_began_from_a_bundled_checkpoint_tells_what_that_tells(
    tmp_path, second, demonstrations, monkeypatch
):
    monkeypatch.setattr("oxygen.weights.source.bundled", {"tiny": second}.__getitem__)
    write_checkpoint(tmp_path / "third", demonstrations, seed=2, start="bundled://tiny")
    bundle(tmp_path / "third", [], tmp_path / "next", data=[])
    record = read_record(tmp_path / "next")
    assert record["start_from"] == "bundled://tiny"
    assert [each["recipe"]["seed"] for each in trainings_of(record)] == [0, 1, 2]
    assert [each.name for each in read_contents(tmp_path / "next").data] == ["demos", "corrections"]
    again = bundle(tmp_path / "third", [], tmp_path / "next", data=[demonstrations]).contents.data
    assert [each.name for each in again] == ["demos", "corrections"]


@pytest.fixture
def orphan(tmp_path, checkpoint, demonstrations):
    """A checkpoint that began from one which is gone."""
    gone = tmp_path / "step_0000007"
    shutil.copytree(checkpoint, gone)
    write_checkpoint(tmp_path / "orphan", demonstrations, seed=1, start=gone)
    shutil.rmtree(gone)
    return tmp_path / "orphan"


def test_a_beginning_that_is_not_known_is_called_so(tmp_path, orphan, evaluate, capsys):
    app([str(orphan), "--output", str(tmp_path / "tiny")], result_action="return_value")
    assert "how step_0000007, from which training began, was trained" in capsys.readouterr().out
    bundle(None, [evaluate(tmp_path / "tiny")], tmp_path / "tiny", data=[])
    card = render(tmp_path / "tiny")
    assert "It began from the weights of `step_0000007`." in card
    assert "| 1–2 | 1, perhaps more |" in card


def test_initial_states_count_as_unseen_only_where_everything_shown_is_known(tmp_path, orphan, evaluate):
    run, target = evaluate(orphan), tmp_path / "tiny"
    bundle(orphan, [run], target, data=[])
    shown = '"init_ids": [\n      0,\n      1,\n      3\n     ]'
    manifest = (target / "manifest.json").read_text()
    assert shown in manifest
    (target / "manifest.json").write_text(manifest.replace(shown, '"init_ids": [0]'))
    assert "| 1–2 | none known |" in render(target)


def test_a_checkpoint_that_took_the_place_of_the_one_it_began_from_is_not_its_own_beginning(
    tmp_path, checkpoint, demonstrations
):
    place = tmp_path / "place"
    write_checkpoint(place, demonstrations, seed=1, start=place)
    bundle(place, [], tmp_path / "tiny", data=[])
    assert "It began from the weights of `place`." in render(tmp_path / "tiny")
