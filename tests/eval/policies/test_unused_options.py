"""Options that were given and can have no effect are refused, with what they are for and the way out."""

import pytest

from configs.errors import UsageError
from configs.schema import Mode, VariantsConfig
from eval.policies.unused_options import refuse_unused_options, unused_in


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        ({"policy": "expert", "random_weights": True}, ["--random-weights is", "expert is scripted", "tiny"]),
        ({"policy": "ws://host:8000", "batch_size": 4}, ["--batch-size 4 is", "ws://host:8000 is a server"]),
        ({"policy": "mine:Mine", "dtype": "bfloat16"}, ["mine:Mine is a Python class"]),
        (
            {"policy": "ws://host:8000", "policy_kwargs": {"charge": "server"}, "clock": "fixed:100,200"},
            ["charge=server is for clock measured, and this is fixed:100,200", "--clock measured"],
        ),
        ({"policy": "noop", "language_tasks": ("memory",)}, ["--language-tasks memory", "generates no text"]),
        (
            {"mode": "actions", "language_tasks": ("narration", "memory")},
            [
                "--language-tasks narration memory is for mode isolated, interleaved, shared, unified",
                "this is actions;",
            ],
        ),
        (
            {"mode": ("shared", "parallel"), "tokens_per_frame": 2},
            ["--tokens-per-frame 2 is for mode interleaved, unified", "--mode shared parallel unified"],
        ),
        ({"tokens_per_frame": 2, "language_tasks": ()}, ["--tokens-per-frame 2 is for texts", "no language"]),
        ({"video": "none", "video_every": 2}, ["--video-every 2 is for videos", "--video failures or all"]),
    ],
)
def test_options_without_effect_are_refused(asked, parts):
    with pytest.raises(UsageError) as refused:
        refuse_unused_options(asked, VariantsConfig(**asked).variants())
    for part in parts:
        assert part in str(refused.value)


def test_a_text_without_ground_truth_is_refused_for_policies_that_write_the_truth(tmp_path):
    file = tmp_path / "plan.yaml"
    file.write_text("{name: plan, prompt: 'Plan: ', max_tokens: 9}")
    asked = {"policy": "expert", "language_tasks": ("memory", str(file))}
    with pytest.raises(UsageError, match=r"the ground truth, which has no plan; .* narration, memory"):
        refuse_unused_options(asked, VariantsConfig(**asked).variants())


@pytest.mark.parametrize(
    "asked",
    [
        {"video": "failures", "video_every": 2},
        {"mode": ("isolated", "unified"), "tokens_per_frame": 2, "deadline_ms": 90.0},
        {"mode": ("actions", "isolated"), "language_tasks": ("memory",)},
        {"mode": "actions", "language_tasks": ()},
        {"policy": "ws://host:8000", "policy_kwargs": {"charge": "server"}, "clock": "measured"},
        {"policy": "mine:Mine", "policy_kwargs": {"charge": "server"}},
        {"policy": "small", "random_weights": True, "dtype": "bfloat16", "tokens_per_frame": 2},
    ],
)
def test_an_option_needs_an_effect_in_one_variant(asked):
    refuse_unused_options(asked, VariantsConfig(**asked).variants())


def test_presets_may_have_options_without_effect():
    """A preset is written once, for many policies and modes."""
    preset = VariantsConfig(policy="noop", mode="actions", random_weights=True, language_tasks=("memory",))
    refuse_unused_options({}, preset.variants())


@pytest.mark.parametrize(
    ("mode", "count"), [("unified", 0), ("interleaved", 1), ("shared", 2), ("actions", 7)]
)
def test_options_without_effect_in_a_mode(mode: Mode, count):
    assert len(unused_in(mode)) == count
