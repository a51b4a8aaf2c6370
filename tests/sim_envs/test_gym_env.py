"""Suites work as Gymnasium environments: with its checker, wrappers and vector environments."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from gymnasium.utils.env_checker import check_env

from configs.errors import UsageError
from configs.load import load, names
from configs.schema import SuiteConfig
from sim_envs import NAMESPACE, register
from sim_envs.fake import FakeSuite
from sim_envs.gym_env import SuiteEnv

REACHER = f"{NAMESPACE}/gym_reacher-v0"
INFINITE = "ignore:.*A Box .* space (minimum|maximum) value is"


@pytest.fixture
def fake(tmp_path: Path) -> str:
    """The YAML file of a suite whose tasks are solved after four steps."""
    protocol = FakeSuite.published.model_dump() | {"environment": {"success_at": 4}}
    path = tmp_path / "fake.yaml"
    path.write_text(yaml.safe_dump(protocol))
    return str(path)


@pytest.mark.filterwarnings(INFINITE)
@pytest.mark.filterwarnings("ignore:.*For Box action spaces, we recommend")
@pytest.mark.parametrize(
    ("suite", "options"),
    [
        ("gym_reacher", {"camera_size": 32, "render_mode": "rgb_array"}),
        pytest.param(
            "libero_object",
            {"assets": "standins", "max_steps": 2, "render_mode": "rgb_array"},
            marks=pytest.mark.slow,
        ),
        pytest.param("droid_tabletop", {"camera_size": 36}, marks=pytest.mark.slow),
        pytest.param("droid_tabletop_jointpos", {"camera_size": 36}, marks=pytest.mark.slow),
    ],
)
def test_gymnasiums_environment_checker_passes(suite, options):
    with gymnasium.make(f"{NAMESPACE}/{suite}-v0", **options) as env:
        check_env(env.unwrapped, skip_render_check="render_mode" not in options)


def test_what_is_observed_and_what_is_rendered_may_be_changed_by_whoever_got_it():
    with gymnasium.make(REACHER, camera_size=32, render_mode="rgb_array") as env:
        seen, _ = env.reset(seed=0)
        image = next(value for value in seen.values() if value.ndim == 3)
        original = image.copy()
        for picture in (image, env.render(), env.render()):
            np.testing.assert_array_equal(picture, original)
            picture[:] = 0


def test_every_built_in_suite_has_its_step_limit_which_can_be_lowered_and_gymnasiums_changed(fake):
    register()
    specs = {name: spec for name, spec in gymnasium.registry.items() if name.startswith(f"{NAMESPACE}/")}
    assert {name: spec.max_episode_steps for name, spec in specs.items()} == {
        f"{NAMESPACE}/{suite}-v0": load(SuiteConfig, suite).max_steps for suite in names(SuiteConfig)
    }
    with gymnasium.make(REACHER, camera_size=32, max_episode_steps=150) as env:
        env.reset(seed=0)
        ends = [env.step(np.zeros(2, np.float32))[3] for _ in range(150)]
        assert ends == [False] * 149 + [True]
        assert env.get_wrapper_attr("_max_episode_steps") == 150
        assert env.unwrapped._max_episode_steps == 100
        assert env.metadata["render_fps"] == 50
    env = SuiteEnv(fake, max_steps=3)
    env.reset(seed=0)
    assert [env.step(np.zeros(7))[3] for _ in range(3)] == [False, False, True]


def test_an_episode_terminates_with_success(fake):
    env = SuiteEnv(fake)
    env.reset(seed=0)
    steps = [env.step(np.zeros(7)) for _ in range(4)]
    outcomes = [(reward, ends, info["is_success"], info["steps"]) for _, reward, ends, _, info in steps]
    assert outcomes == [*((0.0, False, False, step) for step in (1, 2, 3)), (1.0, True, True, 4)]


def shapes(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: shapes(value) for key, value in observation.items()}
    return observation.shape


IMAGES = {"image": (16, 16, 3), "wrist_image": (16, 16, 3)}


@pytest.mark.parametrize(
    ("obs_type", "expected"),
    [
        ("flat", {**IMAGES, "state": (8,)}),
        ("pixels", {"pixels": IMAGES}),
        ("state", (8,)),
        ("pixels_agent_pos", {"pixels": IMAGES, "agent_pos": (8,)}),
    ],
)
def test_observations_have_the_requested_type(fake, obs_type, expected):
    env = SuiteEnv(fake, obs_type=obs_type, camera_size=16)
    for observation in (env.reset(seed=0)[0], env.step(np.zeros(7))[0]):
        assert shapes(observation) == expected
        assert observation in env.observation_space


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"task_id": 1}, "fake has no task 1: its task ids are 0 to 0"),
        ({"init_id": 10}, "give ids from 0 to 9"),
        ({"max_steps": 30}, r"gymnasium.make\(…, max_episode_steps=30\)"),
        ({"obs_type": "pixel"}, "unknown obs_type 'pixel'; did you mean 'pixels'"),
    ],
)
def test_wrong_arguments_are_one_line(fake, arguments, complaint):
    with pytest.raises(UsageError, match=complaint) as caught:
        SuiteEnv(fake, **arguments)
    assert "\n" not in str(caught.value)


def test_the_initial_state_comes_from_options_or_argument_or_seed(fake):
    env = SuiteEnv(fake, init_id=4)
    assert env.reset(seed=3)[1]["init_id"] == 4
    assert env.reset(options={"init_id": 5})[1]["init_id"] == 5
    env = SuiteEnv(fake)
    assert [env.reset(seed=seed)[1]["init_id"] for seed in (3, 13, 14)] == [3, 3, 4]
    assert len({env.reset()[1]["init_id"] for _ in range(50)}) == 10


@pytest.mark.parametrize("mode", ["sync", pytest.param("async", marks=pytest.mark.slow)])
def test_vector_environments_use_different_initial_states(mode):
    kwargs = {"context": "spawn"} if mode == "async" else {}
    envs = gymnasium.make_vec(
        REACHER, num_envs=2, vectorization_mode=mode, vector_kwargs=kwargs, camera_size=32
    )
    try:
        observed, info = envs.reset(seed=8)
        assert info["init_id"].tolist() == [8, 9]
        assert observed["image"].shape == (2, 32, 32, 3)
        assert envs.call("task_description") == ("reach the red ball with the fingertip",) * 2
        assert envs.call("_max_episode_steps") == (100, 100)
        ended = [envs.step(np.zeros((2, 2), np.float32))[3].tolist() for _ in range(100)]
        assert ended[-2:] == [[False, False], [True, True]]
        *_, info = envs.step(np.zeros((2, 2), np.float32))  # the next episodes begin
        assert info["steps"].tolist() == [0, 0]
    finally:
        envs.close()
