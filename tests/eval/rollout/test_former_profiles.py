"""Profiles of OxyGen's code are named after it; what former versions called them is understood everywhere."""

import pytest

from configs.load import load
from configs.profile import ProfileConfig
from configs.schema import GridConfig, RunConfig
from contracts.clock import FORMER_PROFILES, parse_clock
from eval.records.reader import read_identity
from eval.records.run_folders import find_unfinished
from eval.rollout.executors.executor import SERIAL
from eval.rollout.pricing import open_pricing
from tests.eval.conftest import CONFIG
from tests.eval.rollout.scaled import played

HASHED = {"rtx4090": "NVIDIA GeForce RTX 4090, as published", "jetson-thor": "Jetson AGX Thor, as published"}
"""The device as hashed by former versions, whose runs have to pair."""


@pytest.mark.parametrize("former", FORMER_PROFILES)
def test_a_former_name_is_that_of_today(former):
    now = FORMER_PROFILES[former]
    config = RunConfig(clock=f"profile:{former}")
    grid = GridConfig(clock=(f"profile:{former}",))
    assert str(config.clock) == str(grid.clock[0]) == f"profile:{now}"
    assert load(ProfileConfig, now).name == now
    described = open_pricing(config, ()).describe()["profile"]
    assert described["device"] == HASHED[former]
    assert "name" not in described


def test_a_run_of_former_versions_is_read_compared_and_resumed(tmp_path, policy):
    config = CONFIG.model_copy(update={"clock": parse_clock("fixed:100"), "num_trials_per_task": 2})
    (run,) = played(tmp_path, config, executor=SERIAL)
    manifest = run.folder.read_manifest()
    old = {**manifest["config"], "clock": "profile:rtx4090"}
    run.folder.write_manifest({**manifest, "config": old})
    assert str(read_identity(run.folder).clock) == "profile:rtx4090-oxygen-2603"
    run.folder.write_manifest({**manifest, "config": old, "status": "interrupted"})
    (found,) = find_unfinished(tmp_path, {"clock": "profile:rtx4090-oxygen-2603"})
    assert found.folder.path == run.folder.path
    (found,) = find_unfinished(tmp_path, {"clock": "profile:rtx4090"})  # as it was begun
    assert found.config.clock == parse_clock("profile:rtx4090")
