"""Gymnasium environments are worlds that follow their YAML, and suites are environments of Gymnasium."""

import copy
import re
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from gymnasium.utils.env_checker import check_env

from configs.load import load, names
from configs.schema import SuiteConfig
from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from sim_envs.fake import FakeSuite
from sim_envs.gym_env import SuiteEnv
from sim_envs.gym_world import GymSuite, GymWorld
from sim_envs.suite import find_suite, open_suite
from sim_envs.world import PhysicsError

ENDS_AT = 5


class Counter(gymnasium.Env):
    """Counts steps; its arguments determine observations, rewards and the end."""

    observation_space = gymnasium.spaces.Dict({})  # not used
    action_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)

    def __init__(
        self, *, ends: str = "", size: int = 8, breaks_at: int = 0, info: Any = None, **step: Any
    ) -> None:
        """`info` and `step` (`reward`, `terminated`, `truncated`) replace what a step reports, if given."""
        self.ends, self.size, self.breaks_at = ends, size, breaks_at
        self.info, self.reported = info, step

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.steps, self.command = 0, np.zeros(2)
        self.start = self.np_random.uniform()
        return self.observe(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        assert self.steps < ENDS_AT or not self.ends, "stepped after its end"
        self.steps += 1
        self.command = action
        if self.steps == self.breaks_at:
            raise FloatingPointError("diverged")
        over = self.steps >= ENDS_AT
        info = self.info or {"solved": np.bool_(over and self.ends == "solved")}
        reported = {"reward": float(self.steps), "terminated": over and bool(self.ends), "truncated": False}
        return self.observe(), *(reported | self.reported).values(), info

    def observe(self) -> Any:
        picture = np.zeros((self.size, self.size, 3), np.uint8)
        picture[0, 0] = 255
        return {"seen": {"front": picture}, "robot.arm": np.array([self.start, self.steps, *self.command])}


gymnasium.register("tests/Counter-v0", entry_point=Counter)

COUNTER = {
    "name": "counter",
    "world": "sim_envs.gym_world:GymSuite",
    "max_steps": 20,
    "settle_steps": 0,
    "trials_per_task": 3,
    "control_hz": 10,
    "camera_size": 8,
    "replan_steps": 2,
    "environment": {
        "tasks": [{"name": "count", "id": "tests/Counter-v0", "instruction": "count to five"}],
        "init_ids": 3,
        "cameras": [{"name": "front", "key": "seen/front", "rotated_deg": 180}],
        "state": [
            {"name": "place", "key": "robot.arm", "slice": [0, 2], "unit": "m"},
            {"name": "command", "key": "robot.arm", "slice": [2, 4], "unit": "m"},
        ],
        "action": [{"name": "command", "size": 2, "unit": "m", "motion": "absolute", "hold": "zero"}],
        "limits": None,
        "success": {"info": "solved"},
    },
}


ENVIRONMENT: dict[str, Any] = COUNTER["environment"]


def counter(environment: dict | None = None, **kwargs: Any) -> GymSuite:
    protocol = copy.deepcopy(COUNTER)
    protocol["environment"] |= environment or {}
    protocol["environment"]["tasks"][0]["kwargs"] = kwargs
    return GymSuite(SuiteConfig.model_validate(protocol))


def opened(environment: dict | None = None, settle_steps: int = 0, **kwargs: Any) -> GymWorld:
    suite = counter(environment, **kwargs)
    world = suite.open(suite.tasks()[0])
    world.reset(init_id=0, seed=0, settle_steps=settle_steps)
    return world


@pytest.mark.parametrize(
    ("written", "given", "said"),
    [
        ({"variation": 1.0}, {}, "variation 1.0: counter does not vary its .*; leave `variation` out of "),
        ({"motion": "none"}, {"motion": "shuttle:3"}, r"motion shuttle:3.*; leave out --motion"),
        ({}, {"max_steps": 0}, "max_steps is 0"),
        ({}, {"assets": "standins"}, "brings its own"),
    ],
)
def test_what_the_suite_cannot_do_is_refused(tmp_path, written, given, said):
    file = tmp_path / "counter.yaml"
    file.write_text(yaml.safe_dump({**COUNTER, **written}))
    with pytest.raises(UsageError, match=said):
        open_suite(str(file), **given)


def test_a_world_that_has_ended_is_no_longer_stepped_and_time_passes_in_it():
    for ends, outcomes, progress in (("solved", [(5, True), (1, True)], 1), ("lost", [(8, False)] * 2, 0)):
        world = opened(ends=ends)
        ended = [world.advance(np.zeros((8, 2))) for _ in range(2)]
        assert [(outcome.steps, outcome.success) for outcome in ended] == outcomes
        assert (world.observe().state[1], world.progress()) == (5, progress)
        world.reset(init_id=0, seed=0, settle_steps=0)
        assert world.observe().state[1] == 0


@pytest.mark.parametrize(
    ("success", "solved_at"), [({"terminated": True}, 5), ({"reward": 3.0}, 3), ({"info": "solved"}, 5)]
)
def test_success_is_an_info_key_a_termination_or_a_reward(success, solved_at):
    outcome = opened({"success": success}, ends="solved").advance(np.zeros((8, 2)))
    assert (outcome.steps, outcome.success) == (solved_at, True)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("kind", [bool, np.bool_, int, float, np.float32])
@pytest.mark.parametrize("solved", [True, False])
def test_success_is_a_bool_or_one_or_zero_or_an_array_of_one_of_these(solved, kind, shape):
    values = [np.full(shape, solved, kind)] if shape else [kind(solved), np.array(solved, kind)]
    for value in values:
        assert opened(info={"solved": value}).advance(np.zeros((1, 2))).success is solved


TRUE_IN_PYTHON = [{"task": False}, [False], (False,), "False", np.nan, 0.3, 2, np.array(["False"])]


@pytest.mark.parametrize("value", [*TRUE_IN_PYTHON, None, np.inf, np.array([]), np.array([False, False])])
@pytest.mark.parametrize("kind", ["info", "terminated", "truncated"])
def test_what_is_neither_true_nor_false_is_refused_with_key_value_and_type(kind, value):
    """Truthiness would grade an environment that reports `{"task": False}` as solved."""
    reported = {"info": {"solved": value}} if kind == "info" else {kind: value}
    with pytest.raises(UsageError) as refused:
        opened(**reported).advance(np.zeros((1, 2)))
    message = str(refused.value)
    assert message.startswith("info['solved']" if kind == "info" else f"`{kind}` of step()")
    assert message.endswith(", but must be True, False, 1 or 0, or an array of one")
    assert type(value).__name__ in message or isinstance(value, int | float)


@pytest.mark.parametrize("reward", [np.nan, None, "1", [1.0], np.ones(2)])
def test_a_reward_that_decides_success_is_a_finite_number(reward):
    assert opened(reward=reward).advance(np.zeros((8, 2))).steps == 8  # not looked at
    with pytest.raises(UsageError, match=r"the reward of counter is .*, but must be a finite number"):
        opened({"success": {"reward": 0.0}}, reward=reward).advance(np.zeros((1, 2)))


@pytest.mark.parametrize(("limits", "executed"), [([-1, 1], [1.0, -1.0]), (None, [3.0, -4.0])])
def test_actions_are_clipped_images_rotated_and_states_sliced_as_configured(limits, executed):
    world = opened({"limits": limits})
    world.advance(np.array([[3.0, -4.0]]))
    observation = world.observe()
    assert observation.images["front"][7, 7].tolist() == [255, 255, 255]
    assert observation.state[1:].tolist() == [1.0, *executed]
    assert observation.language == "count to five"


@pytest.mark.parametrize(("hold", "last"), [("state", 2), ("last_command", 0)])
def test_settling_executes_the_hold_action(hold, last):
    held = {"name": "command", "size": 2, "unit": "m", "motion": "absolute", "state": "place", "hold": hold}
    world = opened({"action": [held]}, settle_steps=3)
    start, *rest = world.observe().state.tolist()
    assert rest == [3, np.float32(start), last]


def test_only_the_configured_exception_is_a_physics_error():
    named = {"physics_error": "builtins:FloatingPointError"}
    with pytest.raises(PhysicsError, match="diverged"):
        opened(named, breaks_at=2).advance(np.zeros((3, 2)))
    with pytest.raises(FloatingPointError):
        opened(breaks_at=2).advance(np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("actions", "said"), [(np.zeros((2, 3)), "have shape"), (np.array([[0.0, np.nan]]), "not finite")]
)
def test_invalid_actions_are_not_run(actions, said):
    world = opened()
    with pytest.raises(ValueError, match=said):
        world.advance(actions)
    assert world.observe().state[1] == 0


ACTION = {"name": "a", "size": 3, "unit": "m", "motion": "effort", "hold": "zero"}
JAW = {"name": "jaw", "size": 2, "unit": "1", "motion": "absolute", "hold": "last_command"}
REACH = {"name": "count", "id": "Reacher-v55", "instruction": "reach"}


@pytest.mark.parametrize(
    ("environment", "kwargs", "complaint"),
    [
        ({}, {"size": 9}, "uint8 [8, 8, 3]; the environment gives ndarray of uint8 [9, 9, 3]: give `"),
        ({"state": [{"name": "all", "key": "robot.arm", "size": 3, "unit": "m"}]}, {}, "with 3 channels"),
        ({"success": {"info": "sloved"}}, {}, "did you mean 'solved'"),
        ({"action": [ACTION]}, {}, "declares 3 action channels"),
        ({"size_arguments": ["size"]}, {"size": 8}, "`kwargs` of task 'count' have size, which the suite"),
        ({"init_id": 3}, {}, "unknown key 'init_id'; did you mean 'init_ids'"),
        ({"state": [{"name": "a", "unit": "m", "slice": [2, 2]}]}, {}, "not [first, last + 1]"),
        ({"grippers": [{"name": "a", "open": 1, "closed": 0}]}, {}, "action channels of a gripper 'a'"),
        ({"action": [JAW]}, {}, "name it in section `grippers`, with its values `open` and `closed`"),
        ({"packages": ["no-such-package"], "extra": "aloha"}, {}, "run uv pip install -e '.[aloha]'"),
        ({"packages": ["gymnasium", "no-such", "nor-this"]}, {}, "run uv pip install 'no-such' 'nor-this'"),
        ({"tasks": [REACH]}, {}, "did you mean 'Reacher-v5'"),
        ({"tasks": ENVIRONMENT["tasks"] * 2}, {}, "counter has two tasks 'count'"),
    ],
)
def test_an_environment_that_is_invalid_or_missing_or_differs_is_one_line(environment, kwargs, complaint):
    def play() -> None:
        suite = counter(environment, **kwargs)
        suite.check(suite.tasks())
        world = opened(environment, **kwargs)
        world.observe()
        world.advance(np.zeros((1, 2)))

    with pytest.raises(UsageError, match=re.escape(complaint)):
        play()


def odd(environment: dict | None = None, **methods: Any) -> GymWorld:
    """The world of an environment with other methods."""
    suite = counter(environment)
    world = suite.open(suite.tasks()[0])
    for name, method in methods.items():
        setattr(world.env.unwrapped, name, method)
    return world


IMAGE, STILL = np.zeros((8, 8, 3), np.uint8), np.zeros(4)


def seen(picture: Any, arm: Any = STILL) -> Any:
    return {"seen": {"front": picture}, "robot.arm": arm}


NAN, NEITHER = np.array([0, 0, np.nan, 0]), {"solved": False}


@pytest.mark.parametrize(
    ("image", "remedy"),
    [
        (np.zeros((3, 8, 8), np.uint8), "`np.moveaxis(image, 0, -1)`"),
        (np.zeros((8, 8, 4), np.uint8), "`image[..., :3]`"),
        (np.zeros((8, 8)), "`np.repeat(image.reshape(*image.shape[:2], 1), 3, axis=2)`"),
        (IMAGE[None], "`image[0]`"),
        (IMAGE / 255, "`(255 * image).astype(np.uint8)`"),
        (IMAGE.astype(int), "`(image).astype(np.uint8)`"),
        ([IMAGE], "`images[-1]`"),
        (None, "the `key` of an image in its observation"),
        (np.zeros((6, 9, 3), np.uint8), "give `camera_size: 6` and the camera `size: [6, 9]`"),
    ],
)
def test_an_image_of_another_form_names_its_remedy(image, remedy):
    world = odd(reset=lambda **_: (seen(image), {}))
    world.reset(init_id=0, seed=0, settle_steps=0)
    with pytest.raises(UsageError, match=re.escape(remedy)):
        world.observe()


@pytest.mark.parametrize(
    ("method", "given", "complaint"),
    [
        ("reset", seen(IMAGE), "reset() of counter returns dict, not (observation, info): it has"),
        ("reset", (seen(IMAGE), 0), "reset() of counter returns tuple, not (observation, info)"),
        ("reset", (seen(IMAGE, NAN), {}), "state 'command' of counter is [nan, 0.0], not finite"),
        ("reset", (seen(IMAGE, np.array([None] * 4, object)), {}), "state 'place' of counter is ["),
        ("reset", (seen(IMAGE, "far away"), {}), "robot.arm is str, which is not numbers"),
        ("reset", (seen(IMAGE, {"x": np.zeros(4)}), {}), "give the key of one of x"),
        ("reset", ((IMAGE, np.zeros(4)), {}), "did you mean '0'? Allowed: 0, 1"),
        ("reset", (None, {}), "counter gives no observation, but None"),
        ("step", (seen(IMAGE), 0.0, False, NEITHER), "step() of counter returns 4 values, not 5"),
        ("step", (seen(IMAGE, NAN), 0.0, False, False, NEITHER), "not finite: if its physics can diverge"),
        ("step", (seen(IMAGE), 0.0, False, False, None), "info of step() of counter is NoneType"),
        ("step", (seen(IMAGE), 0.0, False, False, {}), "It has to be there after every step"),
        ("step", (seen(IMAGE), 0.0, True, False, NEITHER | {"final_info": {}}), "begins the next episode"),
    ],
)
def test_an_environment_that_breaks_gymnasiums_contract_is_one_line_and_no_failure_of_the_policy(
    method, given, complaint
):
    world = odd({"physics_error": "builtins:FloatingPointError"}, **{method: lambda *_, **__: given})

    def play() -> None:
        world.reset(init_id=0, seed=0, settle_steps=0)
        world.advance(np.zeros((1, 2)))

    with pytest.raises(UsageError, match=re.escape(complaint)):
        play()


@pytest.mark.parametrize(
    ("space", "limits", "remedy"),
    [
        (gymnasium.spaces.Discrete(4), None, "as one that takes 2 real numbers"),
        (gymnasium.spaces.MultiDiscrete([3, 3]), None, "as one that takes 2 real numbers"),
        (gymnasium.spaces.Box(-1, 1, (2,), np.int64), None, "`np.rint(action)`"),
        (gymnasium.spaces.Box(-1, 1, (1, 2)), None, "`action.reshape(1, 2)`"),
        (gymnasium.spaces.Box(-1, 1, (5,)), None, "give `action` channels of 5 numbers in all"),
        (gymnasium.spaces.Box(-1, 1, (2,)), [-2, 2], "`limits` are [-2.0, 2.0]; give some within"),
    ],
)
def test_an_action_space_that_does_not_take_the_declared_actions_names_its_remedy(
    monkeypatch, space, limits, remedy
):
    monkeypatch.setattr(Counter, "action_space", space)
    with pytest.raises(UsageError, match=re.escape(remedy)):
        opened({"limits": limits})


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"cameras": [{"name": "front", "key": "render"}]}, "let it take `render_mode`, or give the cameras"),
        ({"size_arguments": ["width"]}, "`kwargs` and `size_arguments` have to be arguments of the env"),
    ],
)
def test_an_argument_that_an_environment_does_not_take_is_one_line(changes, complaint, monkeypatch):
    monkeypatch.setattr(Counter, "metadata", {"render_modes": ["rgb_array"]})
    monkeypatch.setattr(Counter, "__init__", lambda self, size=8: None)
    with pytest.raises(UsageError, match=complaint):
        opened(changes)


def test_an_id_may_name_the_module_that_registers_it_and_an_observation_be_a_tuple(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "envs_in_id.py").write_text(
        "import gymnasium\n"
        "import tests.sim_envs.test_gym_world as tests\n"
        "class Pair(tests.Counter):\n"
        "    def observe(self):\n"
        "        return tuple(super().observe().values())\n"
        "gymnasium.register('tests/Pair-v0', entry_point=Pair)\n"
    )
    suite = counter(
        {
            "tasks": [{"name": "count", "id": "envs_in_id:tests/Pair-v0", "instruction": "count"}],
            "cameras": [{"name": "front", "key": "0/front"}],
            "state": [{"name": "all", "key": "1", "size": 4, "unit": "m"}],
        }
    )
    suite.check(suite.tasks())
    with closing(suite.open(suite.tasks()[0])) as world:
        world.reset(init_id=0, seed=0, settle_steps=0)
        assert world.observe().images["front"][0, 0].tolist() == [255, 255, 255]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (None, "put its folder on PYTHONPATH, run from it, or install the module"),
        ("import no_such_library", "No module named 'no_such_library'; install what provides it"),
        ("from json import no_such_name", r"ImportError: cannot import name .* \(their_envs.py, line 1\)"),
        ("\n1 / 0", r"ZeroDivisionError: division by zero \(their_envs.py, line 2\)"),
    ],
)
def test_a_module_of_ones_own_that_cannot_be_imported_is_one_line(code, said, tmp_path, monkeypatch):
    """What is installed is not to be installed once more."""
    if code is not None:
        (tmp_path / "their_envs.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    suite = counter({"module": "their_envs", "packages": ["gymnasium"]})
    with pytest.raises(UsageError, match=f"suite counter: cannot import module 'their_envs': .*{said}$"):
        suite.check(suite.tasks())


def test_a_suite_file_is_opened_by_its_path_and_a_module_found_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "envs_beside.py").touch()
    path = tmp_path / "counter.yaml"
    path.write_text(yaml.safe_dump(COUNTER | {"environment": ENVIRONMENT | {"module": "envs_beside"}}))
    protocol, factory = find_suite(str(path))
    assert (protocol.name, factory) == ("counter", GymSuite)
    suite = open_suite(str(path), max_steps=4)
    assert suite.protocol.max_steps == 4
    suite.check(suite.tasks())
    key = EpisodeKey(suite="counter", task_id=0, init_id=0, seed=0)
    assert suite.instruction(key, "benchmark") == "count to five"
    with pytest.raises(UsageError, match="counter has no training wordings"):
        suite.instruction(key, "training")


def test_the_description_changes_with_everything_that_determines_an_episode():
    suites = counter(), counter(size=9), counter({"init_ids": 4})
    plain, larger, more = (suite.describe("benchmark") for suite in suites)
    assert plain["versions"]["gymnasium"] == gymnasium.__version__
    assert plain not in (larger, more)


REACHER = "oxygen_eval/gym_reacher-v0"
INFINITE = "ignore:.*A Box .* space (minimum|maximum) value is"


@pytest.fixture
def fake(tmp_path: Path) -> str:
    """The YAML file of a suite whose tasks are solved after four steps."""
    path = tmp_path / "fake.yaml"
    path.write_text(yaml.safe_dump(FakeSuite.published.model_dump() | {"environment": {"success_at": 4}}))
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
    with gymnasium.make(f"oxygen_eval/{suite}-v0", **options) as env:
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
    specs = {name: spec for name, spec in gymnasium.registry.items() if name.startswith("oxygen_eval/")}
    assert {name: spec.max_episode_steps for name, spec in specs.items()} == {
        f"oxygen_eval/{suite}-v0": load(SuiteConfig, suite).max_steps for suite in names(SuiteConfig)
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
def test_wrong_arguments_are_refused(fake, arguments, complaint):
    with pytest.raises(UsageError, match=complaint):
        SuiteEnv(fake, **arguments)


def test_the_initial_state_comes_from_options_or_argument_or_seed(fake):
    env = SuiteEnv(fake, init_id=4)
    assert env.reset(seed=3)[1]["init_id"] == 4
    assert env.reset(options={"init_id": 5})[1]["init_id"] == 5
    env = SuiteEnv(fake)
    assert [env.reset(seed=seed)[1]["init_id"] for seed in (3, 13, 14)] == [3, 3, 4]
    assert len({env.reset()[1]["init_id"] for _ in range(50)}) == 10


def test_options_of_other_environments_are_ignored_with_a_warning(fake):
    """`lerobot-eval` passes its own to every environment."""
    with pytest.warns(UserWarning, match="ignored reset options: task, variation; known is init_id"):
        _, info = SuiteEnv(fake).reset(seed=0, options={"task": "x", "init_id": 5, "variation": 1})
    assert info["init_id"] == 5


@pytest.mark.parametrize("mode", ["sync", pytest.param("async", marks=pytest.mark.slow)])
def test_vector_environments_use_different_initial_states(mode):
    how = {"vectorization_mode": mode, "vector_kwargs": {"context": "spawn"} if mode == "async" else {}}
    with closing(gymnasium.make_vec(REACHER, num_envs=2, camera_size=32, **how)) as envs:
        observed, info = envs.reset(seed=8)
        assert info["init_id"].tolist() == [8, 9]
        assert observed["image"].shape == (2, 32, 32, 3)
        assert envs.call("task_description") == ("reach the red ball with the fingertip",) * 2
        assert envs.call("_max_episode_steps") == (100, 100)
        ended = [envs.step(np.zeros((2, 2), np.float32))[3].tolist() for _ in range(100)]
        assert ended[-2:] == [[False, False], [True, True]]
        *_, info = envs.step(np.zeros((2, 2), np.float32))  # the next episodes begin
        assert info["steps"].tolist() == [0, 0]
