"""`oxygen-eval preflight`: one line per check, the remedy where something is missing."""

from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest

from configs.schema import RunConfig
from contracts.errors import UsageError
from eval import preflight
from eval.rollout import machine
from eval.rollout import readiness as checks
from eval.rollout.machine import require_quick_checks
from sim_envs.fake import FakeSuite, FakeWorld
from sim_envs.gym_world import GymWorld
from sim_envs.libero import assets as libero_assets
from sim_envs.libero import preflight as libero_checks
from sim_envs.libero.assets import ENVIRONMENT_VARIABLE, find_assets
from sim_envs.preflight import Status, check_machine
from tests.commands import call


def test_a_ready_machine_has_no_failures(tmp_path, capsys):
    suite = ("--suite", "gym_reacher", "--output-dir", tmp_path)
    assert call(preflight.app, *suite, "--policy", "noop") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Half a minute or more: ")
    for name in ("versions", "renderer", "disk", "memory", "JAX", "policy", "gym_reacher: determinism"):
        assert f"  {name}: " in printed
    assert "ok    gym_reacher: determinism: " in printed
    assert "\nfail" not in printed
    assert call(preflight.app, *suite) == 0
    assert "  policy: " not in capsys.readouterr().out


def test_missing_parts_fail_with_a_remedy(tmp_path, capsys, monkeypatch, refused):
    monkeypatch.setattr(machine, "_NO_DISK_GB", float("inf"))
    monkeypatch.setattr(machine, "_LOW_DISK_GB", float("inf"))
    blocked = tmp_path / "a file"
    blocked.write_text("")
    options = ("--suite", "gym_reacher", "--policy", "expert", "--num-envs", "4096")
    assert call(preflight.app, *options, "--output-dir", blocked / "runs") == 1
    lines = capsys.readouterr().out.splitlines()
    failed = {line.split(":")[0].removeprefix("fail  ") for line in lines if line.startswith("fail")}
    assert failed == {"output folder", "disk", "memory", "policy"}
    assert any(line.strip().startswith("→") and "--output-dir" in line for line in lines)
    assert "num_envs is 4097: input should be less than" in refused(preflight.app, "--num-envs", 4097)


@pytest.mark.parametrize(
    ("package", "installed", "warned"),
    [
        ("mujoco", "3.2.3", ""),
        ("mujoco", "3.3.3", "floor is darker"),
        ("mujoco", "3.3.7", "floor is darker"),
        ("mujoco", "3.4.0", "98 → 12 %"),
        ("mujoco", "3.8.1", "98 → 12 %"),
        ("lerobot", "0.6.0", "initial states"),
        ("lerobot", "0.6.1", ""),
        ("scipy", "1.0", ""),
    ],
)
def test_versions_that_are_known_to_change_scores_are_warned_of(package, installed, warned, monkeypatch):
    def version(name):
        if name != package:
            raise PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(checks, "version", version)
    told = [f"{each.status} {each.detail}" for each in checks._versions_that_change_scores()]
    assert len(told) == bool(warned)
    assert all(each.startswith(f"warn {package} {installed}: ") and warned in each for each in told)


def test_an_evaluation_stops_before_it_fills_the_disk(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(machine, "_LOW_DISK_GB", float("inf"))
    require_quick_checks(tmp_path, num_envs=1, videos=True, notify=said.append)
    assert len(said) == 1
    assert said[0].startswith("warning: disk")
    monkeypatch.setattr(machine, "_NO_DISK_GB", float("inf"))
    with pytest.raises(UsageError, match=r"disk: .* GB free"):
        require_quick_checks(tmp_path, num_envs=1, videos=True, notify=said.append)


@pytest.mark.parametrize(
    ("moved", "darker", "expected"),
    [
        (0, 0, [Status.OK, Status.OK]),
        pytest.param(1e-6, 50, [Status.FAIL, Status.FAIL], marks=pytest.mark.slow),
    ],
)
def test_libero_is_compared_with_its_reference(tmp_path, monkeypatch, moved, darker, expected):
    monkeypatch.setattr(libero_checks, "pin_kernels", lambda: True)
    arrays = dict(np.load(libero_checks.REFERENCE))
    for name, array in arrays.items():
        if name.endswith("sim_state"):
            arrays[name] = array + moved
        if name.endswith("image_after_settle"):
            arrays[name] = np.clip(array.astype(int) - darker, 0, 255).astype(np.uint8)
    changed = tmp_path / "reference.npz"
    np.savez(changed, **arrays)
    monkeypatch.setattr(libero_checks, "REFERENCE", changed)
    steps, image, settled = libero_checks.check_libero(find_assets("standins"))
    assert settled.status is Status.OK
    assert [steps.status, image.status] == expected


def test_stand_ins_and_missing_originals_are_warnings_and_what_cannot_be_played_fails(tmp_path, monkeypatch):
    def checked(assets: str) -> dict[str, tuple[Status, str]]:
        config = RunConfig(assets=assets, suites=("libero_object",))
        results = checks.all_checks(config, tmp_path, num_envs=1)
        shown = [next(each for each in results if each.name == name) for name in ("LIBERO", "suites")]
        return {each.name: (each.status, f"{each.detail}; {each.remedy}") for each in shown}

    status, said = checked("standins")["suites"]
    assert status is Status.WARN
    assert "standins [stand-ins]; results on stand-ins do not compare" in said
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setattr(libero_assets, "installed_assets", lambda: find_assets("no-such-source"))
    found = checked("auto")
    assert found["LIBERO"][0] is Status.WARN
    assert found["suites"][0] is Status.FAIL
    assert checked("standins")["LIBERO"][0] is Status.WARN


class Restless(FakeWorld):
    """Moves while it is observed."""

    def observe(self):
        self.advance(np.full((1, 7), 0.5))
        return super().observe()


def test_a_world_that_breaks_its_contract_is_reported(monkeypatch):
    suite = FakeSuite()
    monkeypatch.setattr(suite, "open", lambda task: Restless(image_size=suite.protocol.camera_size))
    statuses = {result.name: result.status for result in check_machine(suite)}
    assert statuses["determinism"] is Status.FAIL


def test_a_world_that_raises_is_reported_with_its_error(tmp_path, monkeypatch):
    monkeypatch.setattr(GymWorld, "advance", lambda self, actions: 1 / 0)
    (failed,) = (
        result
        for result in checks.all_checks(RunConfig(suites=("gym_reacher",)), tmp_path, num_envs=1)
        if result.status is Status.FAIL
    )
    assert (failed.name, failed.detail[:18]) == ("gym_reacher", "ZeroDivisionError:")
