"""`make train-tiny`: every stage's options are what the command lines take, and each follows on another."""

import shlex
import subprocess
from pathlib import Path

import pytest

from configs.collection import CollectConfig
from eval.collect.__main__ import app as collect_app
from eval.train.__main__ import app as train_app
from eval.train.training import Assignment

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def printed(tmp_path_factory) -> list[list[str]]:
    """The commands that make would run for a policy of which nothing is there yet, in words."""
    nowhere = tmp_path_factory.mktemp("make") / "tiny"
    done = subprocess.run(
        ["make", "-n", "train-tiny", f"TINY={nowhere}", "PYTHON=python"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return [shlex.split(line) for line in done.stdout.replace("\\\n", " ").splitlines()]


def options_of(printed: list[list[str]], module: str) -> list[list[str]]:
    return [words[words.index(module) + 1 :] for words in printed if module in words]


def taken(app, options: list[str]) -> None:
    app(options, exit_on_error=False, print_error=False, result_action="return_value")


@pytest.fixture
def trainings(printed, monkeypatch) -> list[Assignment]:
    """What the lines that train ask for."""
    asked: list[Assignment] = []
    monkeypatch.setattr("eval.train.training.run_training", asked.append)
    for options in options_of(printed, "eval.train"):
        taken(train_app, options)
    return asked


@pytest.fixture
def collections(printed, monkeypatch) -> list[tuple[CollectConfig, Path]]:
    """What the lines that collect ask for, and where it goes."""
    asked: list[tuple[CollectConfig, Path]] = []
    monkeypatch.setattr(
        "eval.collect.collection.collect_demonstrations",
        lambda config, output, *, workers: asked.append((config, output)),
    )
    for options in options_of(printed, "eval.collect"):
        taken(collect_app, options)
    return asked


def saved_by(training: Assignment) -> str:
    return str(training.folder / f"checkpoints/step_{training.recipe.steps:07d}")


def test_every_stage_begins_with_what_the_one_before_ends_with(trainings):
    assert len(trainings) > 1
    assert [each.start_from for each in trainings] == [None, *map(saved_by, trainings[:-1])]
    assert {(each.model, each.embodiment) for each in trainings} == {("tiny", "libero_compact")}


def test_every_stage_learns_from_what_was_collected(trainings, collections):
    outputs = {str(output) for _, output in collections}
    assert {folder for each in trainings for folder in each.data} == outputs


def test_corrections_are_of_policies_that_were_trained(trainings, collections):
    learners = {config.learner for config, _ in collections} - {None}
    assert learners
    assert learners <= set(map(saved_by, trainings[:-1]))


def test_the_last_stage_learns_texts_alone_from_what_the_one_before_does_by_itself(trainings, collections):
    assert [each.recipe.texts_only for each in trainings] == [False] * (len(trainings) - 1) + [True]
    played = [(config, str(output)) for config, output in collections if config.policy != "expert"]
    assert {output for _, output in played} == set(trainings[-1].data)
    assert {config.policy for config, _ in played} == {saved_by(trainings[-2])}
    assert all(config.keep_failures for config, _ in played)


def test_no_stage_is_shown_the_initial_states_that_stay_unseen(collections):
    assert not {init_id for config, _ in collections for init_id in config.init_ids} & set(range(30, 50))
