"""`python -m eval.collect`: bad input is one line and exit code 2, and nothing is left behind."""

from pathlib import Path

import pytest

from eval.collect.__main__ import app
from tests.eval.conftest import call


@pytest.fixture
def started(monkeypatch) -> list:
    """The configurations, folders and numbers of workers of what would have been collected."""
    calls: list = []
    monkeypatch.setattr(
        "eval.collect.collection.collect_demonstrations", lambda *given, **how: calls.append((*given, how))
    )
    return calls


def test_flags_override_a_preset(started):
    where = ("--output", "here", "--workers", "3")
    assert call(app, "--config", "smoke", "--init-ids", "3", "--task-ids", "3", *where) == 0
    ((config, *rest),) = started
    assert rest == [Path("here"), {"workers": 3}]
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
        (
            f"{DROID} --suite droid_tabletop_jointpos",
            ["droid_tabletop_jointpos has action", "(absolute", "(velocity", "separate datasets"],
        ),
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
