"""Gymnasium environments as worlds follow their YAML in observations, actions and success."""

import copy
import re
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml

from configs.errors import UsageError
from configs.load import load
from configs.schema import SuiteConfig
from sim_envs.gym_world import GymSuite, GymWorld
from sim_envs.suite import find_suite, open_suite
from sim_envs.world import EpisodeKey, PhysicsError

REACHER = load(SuiteConfig, "gym_reacher")
ENDS_AT = 5


class Counter(gymnasium.Env):
    """Counts steps; its arguments determine observations, rewards and the end."""

    observation_space = gymnasium.spaces.Dict({})  # not used
    action_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)

    def __init__(self, *, ends: str = "", size: int = 8, breaks_at: int = 0) -> None:
        self.ends, self.size, self.breaks_at = ends, size, breaks_at

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
        info = {"solved": np.bool_(over and self.ends == "solved")}
        return self.observe(), float(self.steps), over and bool(self.ends), False, info

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


def opened(environment: dict | None = None, **kwargs: Any) -> GymWorld:
    suite = counter(environment, **kwargs)
    world = suite.open(suite.tasks()[0])
    world.reset(init_id=0, seed=0, settle_steps=0)
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
    for ends, outcomes, progress in (
        ("solved", [(5, True), (1, True)], 1.0),
        ("lost", [(8, False)] * 2, 0.0),
    ):
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
    world = opened({"action": [held]})
    world.reset(init_id=0, seed=0, settle_steps=3)
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
REACH = {"name": "count", "id": "Reacher-v55", "instruction": "reach"}


@pytest.mark.parametrize(
    ("environment", "kwargs", "complaint"),
    [
        ({}, {"size": 9}, "declared with 8 × 8 pixels; the environment gives uint8 [9, 9, 3]"),
        ({"state": [{"name": "all", "key": "robot.arm", "size": 3, "unit": "m"}]}, {}, "with 3 channels"),
        ({"success": {"info": "sloved"}}, {}, "did you mean 'solved'"),
        ({"action": [ACTION]}, {}, "declares 3 action channels"),
        ({"size_arguments": ["size"]}, {"size": 8}, "`kwargs` of task 'count' have size, which the suite"),
        ({"init_id": 3}, {}, "unknown key 'init_id'; did you mean 'init_ids'"),
        ({"state": [{"name": "a", "unit": "m", "slice": [2, 2]}]}, {}, "not [first, last + 1]"),
        ({"grippers": [{"name": "a", "open": 1, "closed": 0}]}, {}, "action channels of a gripper 'a'"),
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
    with pytest.raises(UsageError, match="has only 'benchmark'"):
        suite.instruction(key, "training")


def test_the_description_changes_with_everything_that_determines_an_episode():
    suites = counter(), counter(size=9), counter({"init_ids": 4})
    descriptions = [suite.describe("benchmark") for suite in suites]
    assert descriptions[0]["versions"]["gymnasium"] == gymnasium.__version__
    assert descriptions[0] != descriptions[1]
    assert descriptions[0] != descriptions[2]
