"""A whole training, compiled as users have it: it learns, survives being killed, and can be served."""

import shutil

import numpy as np
import pytest

from oxygen.training import checkpoint
from oxygen.training.run import train
from oxygen.training.run_folder import read_log
from tests.oxygen.training.conftest import (
    MODEL,
    TASKS,
    VOCABULARY,
    answer,
    bits,
    served,
    stop_at,
    training,
)

pytestmark = pytest.mark.slow

OFTEN = {"log_every": 20, "save_every": 40}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, mixture):
    """A finished training's folder, and its last state."""
    folder = tmp_path_factory.mktemp("training")
    return folder, train(folder, training(**OFTEN), mixture, VOCABULARY)


def test_it_learns_eight_samples_by_heart_which_the_policy_then_does_and_says(trained, mixture):
    """The served policy, from the checkpoint alone, gives back the demonstrations' actions and words."""
    folder, _ = trained
    first, *_, last = read_log(folder)
    assert last["flow_loss"] < 0.3 * first["flow_loss"]
    assert last["narration_accuracy"] == last["memory_accuracy"] == 1
    policy = served(checkpoint.newest(folder / "checkpoints"))
    for row in range(3):
        actions, said = answer(policy, mixture, row)
        wanted = mixture.actions[row, : MODEL.horizon]
        assert np.abs(actions - wanted).mean() < 0.25 * np.abs(wanted - wanted.mean()).mean()
        assert said == {task.name: mixture.texts[task.name][row] for task in TASKS}


def test_a_killed_and_resumed_training_equals_the_uninterrupted_one(trained, mixture, tmp_path):
    """Stopped, then killed while it wrote a checkpoint: the one before counts; the log says nothing twice."""
    _, uninterrupted = trained
    for steps in (17, 23):
        train(tmp_path, training(save_every=40), mixture, VOCABULARY, should_stop=stop_at(steps))
    kept = tmp_path / "kept"
    shutil.copytree(checkpoint.newest(tmp_path / "checkpoints"), kept)
    train(tmp_path, training(log_every=20), mixture, VOCABULARY, should_stop=stop_at(33))
    torn = checkpoint.newest(tmp_path / "checkpoints")
    torn.rename(torn.with_name(f"{torn.name}.partial"))
    shutil.rmtree(tmp_path / "checkpoints/step_0000040")
    kept.rename(tmp_path / "checkpoints/step_0000040")
    resumed = train(tmp_path, training(**OFTEN), mixture, VOCABULARY)
    assert bits(resumed) == bits(uninterrupted)
    steps = [line["step"] for line in read_log(tmp_path)]
    assert steps == sorted(set(steps))
