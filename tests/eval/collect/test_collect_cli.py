"""`python -m eval.collect`: bad input is one line and exit code 2, and nothing is left behind."""

import pytest

from configs.collection import CollectConfig
from eval.collect.__main__ import app
from tests.eval.conftest import call


@pytest.fixture
def started(monkeypatch) -> list:
    """Configuration, folder and number of workers of what would have been collected."""
    calls: list = []
    monkeypatch.setattr(
        "eval.collect.collection.collect_demonstrations",
        lambda config, dataset, workers: calls.append((config, str(dataset), workers)),
    )
    return calls


def test_every_option_is_passed_on(started):
    line = (
        "--policy expert --suite libero_object libero_spatial --task-ids 0-2 --init-ids 4 6 --seeds 7,8 "
        "--assets standins --expert-noise 0.3 --workers 3 --output here --image-size 128 --replan-steps 2 "
        "--images video --horizon 16 --num-steps-wait 12 --max-steps 99 --variation 0.5 --motion shuttle:3 "
        "--random-weights --dtype bfloat16 --learner tiny"
    )
    assert call(app, *line.split()) == 0
    expected = CollectConfig(
        policy="expert",
        suites=("libero_object", "libero_spatial"),
        task_ids=(0, 1, 2),
        init_ids=(4, 6),
        seeds=(7, 8),
        assets="standins",
        expert_noise=0.3,
        image_size=128,
        replan_steps=2,
        images="video",
        horizon=16,
        num_steps_wait=12,
        max_steps=99,
        variation=0.5,
        motion="shuttle:3",
        random_weights=True,
        dtype="bfloat16",
        learner="tiny",
    )
    assert started == [(expected, "here", 3)]


def test_flags_override_a_preset(started):
    assert call(app, "--config", "smoke", "--init-ids", "3", "--task-ids", "3") == 0
    config = started[0][0]
    assert (config.num_trials_per_task, config.init_ids, config.task_ids) == (None, (3,), (3,))
    assert (config.suites, config.assets) == (("libero_object",), "standins")


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("--policy exprt", ["'exprt'", "did you mean 'expert'"]),
        ("--suite libero_goal --task-ids 12", ["12", "0 to 9"]),
        ("--suite libero_goal --init-ids 50", ["init id 50", "0 to 49"]),
        ("--suite libero_goal --init-ids 9,500007", ["init id 500007", "500000 to 599999", "of policies"]),
        ("--images video --image-size 225", ["225", "even"]),
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
