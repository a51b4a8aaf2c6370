"""Built-in worlds pass the conformance checks, and every kind of violation fails them."""

import dataclasses
import time
from typing import Any

import jaxtyping
import numpy as np
import pytest

from contracts.errors import UsageError
from contracts.observation import Observation
from sim_envs.fake import FakeSuite, FakeWorld
from sim_envs.suite import open_suite
from sim_envs.testing import check_suite, check_world
from sim_envs.world import AdvanceResult

SETTINGS = {"success_at": 4, "instructions": ["put the black bowl on the plate", "open the drawer"]}


def fake_suite(kind: type[FakeSuite] = FakeSuite) -> FakeSuite:
    return kind(FakeSuite.published.model_copy(update={"environment": SETTINGS}))


def solve_fake(world: FakeWorld) -> np.ndarray:
    return np.zeros((8, 7))


def solve_reacher(world: Any) -> np.ndarray:
    """Move the target to the fingertip, and hold still."""
    env = world.env.unwrapped
    places = np.concatenate([env.data.qpos[:2], env.get_body_com("fingertip")[:2]])
    env.set_state(places, np.zeros_like(env.data.qvel))
    return np.zeros((3, 2))


def solve_libero(world: Any) -> np.ndarray:
    """Move the object into the basket, and hold still."""
    data = world.env.sim.data
    above = data.get_body_xpos("basket_1_main") + np.array([0, 0, 0.06])
    data.set_joint_qpos("salad_dressing_1_joint0", np.array([*above, 1, 0, 0, 0]))
    return np.tile([0.0, 0, 0, 0, 0, 0, -1], (3, 1))


def solve_droid(world: Any) -> np.ndarray:
    """Put the cube into the bowl as if it had been carried there, and hold still."""
    world.rubric.reached = [True, True, False]
    bowl = world.station.pose("bowl").position
    world.station.data.joint("cube").qpos[:3] = bowl + np.array([0, 0, 0.008])
    at = np.zeros(7) if world.station.control == "joint_velocity" else world.policy_state()[:7]
    return np.tile([*at, 0.0], (3, 1))


def test_the_fake_suite_conforms():
    check_suite(fake_suite(), task_ids=(0, 1), solve=solve_fake, hold_tolerances={"eef_position": 0.0})


def test_a_world_that_has_no_truth_conforms(monkeypatch):
    monkeypatch.setattr(FakeWorld, "truth", lambda self: {}["no noun"])
    check_suite(fake_suite(), task_ids=[0])


def test_a_gymnasium_environment_conforms():
    suite = open_suite("gym_reacher", camera_size=32)
    check_suite(suite, solve=solve_reacher, hold_tolerances={"joint_velocities": 0.01, "joint_sines": 0.001})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task_ids", "solve"),
    [
        ("libero_object", [2], solve_libero),
        ("libero_memory", range(10), None),
        ("libero_memory_short", range(4), None),
        ("droid_tabletop", [0], solve_droid),
        ("droid_tabletop_jointpos", [0], solve_droid),
    ],
)
def test_a_simulator_conforms(standins, name, task_ids, solve):
    assets = {"assets": str(standins.path)} if name.startswith("libero") else {}
    still = {"eef_position": 0.01} if assets else {"joint_position": 1e-3, "gripper_position": 1e-3}
    suite = open_suite(name, camera_size=36, **assets)
    check_suite(suite, task_ids=task_ids, solve=solve, hold_tolerances=still)


@pytest.mark.parametrize("task_id", range(2))
def test_aloha_conforms(task_id):
    pytest.importorskip("gym_aloha", reason="uv pip install -e '.[aloha]'")
    still = {f"{side}_{part}": 0.01 for side in ("left", "right") for part in ("joints", "gripper")}
    check_suite(open_suite("gym_aloha"), task_ids=[task_id], hold_tolerances=still, renders_every_step=True)


@dataclasses.dataclass
class Defective(FakeWorld):
    """A world that violates the contract in one way."""

    defect: str = ""

    def reset(self, **options: int) -> None:
        before = self.steps
        super().reset(**options | ({"init_id": 0} if self.defect == "ignores init ids" else {}))
        if self.defect == "remembers the episode before":
            self._state[0] += before

    def advance(self, actions: np.ndarray) -> AdvanceResult:
        if self.defect == "renders in advance":
            self.observe()
        outcome = super().advance(actions)
        match self.defect:
            case "returns a tuple":
                return outcome.steps, outcome.success  # pyrefly: ignore[bad-return]
            case "ignores success":
                return AdvanceResult(steps=len(actions), success=False)
            case "reports success late":
                return AdvanceResult(steps=len(actions), success=outcome.success)
            case "moves after success":
                self._state[0] += len(actions) - outcome.steps
            case "drifts":
                self._state[2] += 0.01 * outcome.steps
        return outcome

    def observe(self) -> Observation:
        self._state[0] += 1e-9 * (self.defect == "moves on observe")
        seen = super().observe()
        return dataclasses.replace(seen, state=np.zeros(7)) if self.defect == "has another state" else seen

    def render(self, camera: str) -> np.ndarray:
        image = super().render(camera)
        self._state[0] += 1e-9 * (self.defect == "moves on render")
        return image

    def progress(self) -> float:
        share = 0.5 if self.defect == "is never complete" else super().progress()
        return np.nan if self.defect == "is lost" and self.steps != self.success_at else share

    def close(self) -> None:
        if self.closed and self.defect == "closes once":
            raise AssertionError("closed twice")
        super().close()


@pytest.mark.parametrize(
    ("defect", "said"),
    [
        ("remembers the episode before", "the first observation of an episode depends on earlier episodes"),
        ("ignores init ids", "initial states 0 and 1 look the same"),
        ("ignores success", "reports no success"),
        ("moves after success", "the world moved after success"),
        ("reports success late", "does not stop at success"),
        ("renders in advance", "advance renders"),
        ("moves on observe", r"two calls of observe\(\) differ"),
        ("moves on render", r"render\(\) changes the episode"),
        ("has another state", r"state is float64 \[7\], declared float64 \[8\]"),
        ("drifts", "'eef_position' moves by 0.06"),
        ("closes once", "closed twice"),
        ("returns a tuple", "no AdvanceResult"),
        ("is lost", r"progress\(\) of the world is nan"),
        ("is never complete", r"progress\(\) is 0.5 at success"),
    ],
)
def test_a_violation_of_the_world_contract_is_one_line(defect, said):
    world, interface = Defective(success_at=4, defect=defect), fake_suite().interface
    with pytest.raises(AssertionError, match=said) as caught:
        check_world(world, interface, solve=solve_fake, hold_tolerances={"eef_position": 0.0})
    assert "\n" not in str(caught.value)


def test_a_world_reports_success_and_failure_as_bools_or_numbers(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as outside of tests
    result = AdvanceResult(steps=1, success=np.array([True]), failed=0)
    assert (result.success, result.failed) == (True, False)
    assert result == AdvanceResult(steps=1, success=True)
    for wrong in ({"success": {"task": False}}, {"success": True, "failed": None}):
        with pytest.raises(UsageError, match=r"of an AdvanceResult is .* must be True, False, 1 or 0"):
            AdvanceResult(steps=1, **wrong)


@pytest.mark.parametrize(
    ("method", "replacement", "said"),
    [
        ("tasks", lambda suite: fake_suite().tasks()[::-1], "task 0 of fake identifies itself as task 1"),
        ("instruction", lambda *_: "do something", "instruction of task 0 is 'do something'"),
        ("describe", lambda *_: {"now": time.monotonic_ns()}, "describe"),
    ],
)
def test_a_violation_of_the_suite_contract_is_one_line(method, replacement, said):
    with pytest.raises(AssertionError, match=said):
        check_suite(fake_suite(type("Defective", (FakeSuite,), {method: replacement})))
