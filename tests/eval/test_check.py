"""`oxygen-eval check`: what is wrong with a suite's tasks, a line each, and their pictures."""

import numpy as np
import pytest
import yaml
from PIL import Image

from eval import check
from sim_envs.fake import FakeSuite, FakeWorld
from sim_envs.preflight import Status
from sim_envs.task_check import check_task
from tests.commands import ROOT


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """Writes the YAML of a fake suite, and returns its name; the test runs in its folder."""
    monkeypatch.chdir(tmp_path)

    def write(name: str = "fake.yaml", **environment) -> str:
        published = FakeSuite.published.model_dump(mode="json") | {"environment": environment}
        (tmp_path / name).write_text(yaml.safe_dump({**published, "name": name.removesuffix(".yaml")}))
        return name

    return write


def test_a_suite_without_faults_is_ok_and_has_pictures(command, suite, tmp_path):
    name = suite(instructions=["lift the bowl", "lift the plate"])
    code, out, _ = command(check.app, name)
    assert code == 0
    lines = out.splitlines()
    expected = "opens, is not solved by chance; no expert plays it"
    assert lines[:2] == [f"ok    {number} task_{number}: {expected}" for number in (0, 1)]
    assert lines[2].startswith("ok    worlds: ")
    assert lines[-1] == "2 of 2 tasks can be played. Pictures: check_fake.png"
    with Image.open(tmp_path / "check_fake.png") as sheet:
        assert sheet.size == (2 * 16, 8 + 18), "two cameras a task, and the instruction"


def test_a_suite_of_another_simulator_is_checked_as_any(command, tmp_path):
    picture = tmp_path / "points.jpg"
    code, out, _ = command(check.app, ROOT / "examples/point_suite.yaml", "--picture", picture)
    assert code == 0
    assert "ok    0 move: opens, is not solved by chance" in out
    assert picture.is_file()


def test_faults_are_named_with_a_remedy_and_fail_the_command(command, suite):
    code, out, _ = command(check.app, suite(success_at=9))
    assert code == 2
    assert "fail  0 task_0: holding still solves it in 9 control steps\n      → make the goal harder" in out
    assert "warn  0 task_0: acting at random solves it in 9 control steps" in out
    assert "\n0 of 1 tasks can be played." in out
    code, out, _ = command(check.app, suite(fails_at=3))
    assert code == 2
    assert "fail  0 task_0: RuntimeError: the fake simulator fails at step 3" in out
    assert command(check.app, suite(fails_at=3), "--no-play")[0] == 0, "it opens"


def test_a_world_that_breaks_the_contract_fails(command, suite, monkeypatch):
    monkeypatch.setattr(FakeWorld, "progress", lambda self: 0.5 + self.steps)
    code, out, _ = command(check.app, suite())
    assert code == 2
    assert "fail  worlds: progress() of the world is" in out


def test_a_goal_that_is_true_at_the_start_or_out_of_reach_is_not_played(monkeypatch):
    monkeypatch.setattr(FakeWorld, "progress", lambda _: 1.0)
    (task,) = (suite := FakeSuite()).tasks()
    (fault,) = check_task(suite, task).results
    assert (fault.status, fault.detail) == (Status.FAIL, "the goal is true at the start")
    monkeypatch.setattr(FakeWorld, "progress", lambda _: 0.0)
    monkeypatch.setattr(FakeWorld, "out_of_reach", lambda _: "the cup is 2 m away", raising=False)
    found = check_task(suite, task)
    assert [each.detail for each in found.results] == ["unreachable: the cup is 2 m away"]
    assert isinstance(found.pictures, np.ndarray)


def test_a_suite_that_cannot_be_opened_is_one_line(refused, suite, tmp_path):
    assert "did you mean 'libero_goal'" in refused(check.app, "libero_gaol")
    assert "no task 7" in refused(check.app, suite(), "--task-ids", 7)
    assert "unknown image format '.gif'" in refused(check.app, suite(), "--picture", tmp_path / "a.gif")
