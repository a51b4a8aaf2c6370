"""The Gymnasium environments keep Gymnasium's rules and LIBERO's protocol, and leave nothing behind."""

import json
import subprocess
import sys
from collections.abc import Iterator

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from sim_envs.libero.assets import AssetSet


@pytest.fixture(scope="module")
def env(standins: AssetSet) -> Iterator[gymnasium.Env]:
    made = gymnasium.make(
        "oxygen_eval/libero_object-v0",
        task_id=2,
        assets=str(standins.path),
        max_steps=2,
        render_mode="rgb_array",
        render_camera="image",
    )
    yield made
    made.close()


@pytest.mark.filterwarnings("ignore:.*A Box observation space (minimum|maximum) value is")
@pytest.mark.slow
def test_gymnasium_finds_nothing_to_complain_about(env: gymnasium.Env) -> None:
    check_env(env.unwrapped)


def test_what_is_observed_and_what_is_rendered_may_be_changed_by_whoever_got_it(env: gymnasium.Env) -> None:
    seen, _ = env.reset(seed=0, options={"init_id": 0})
    image = seen["image"].copy()
    seen["image"][:] = 0
    rendered = env.render()
    np.testing.assert_array_equal(rendered, image)
    rendered[:] = 0
    np.testing.assert_array_equal(env.render(), image)


_CYCLES = """
import ctypes, gc, json, sys
import psutil
from sim_envs.libero.assets import find_assets
from sim_envs.libero.sim import LiberoSim
from sim_envs.libero.tasks import get_task

assets, process, counts = find_assets(sys.argv[1]), psutil.Process(), []
for _ in range(8):
    with LiberoSim(get_task("libero_object", 2), assets=assets) as sim:
        sim.reset(init_id=0, seed=7, settle_steps=0)
        sim.observe()
    sim.close()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what the allocator keeps for itself is no leak
    counts.append((process.num_fds(), process.num_threads(), process.memory_info().rss))
print(json.dumps(counts))
"""


@pytest.mark.slow
def test_opening_and_closing_leaves_no_files_threads_or_memory(standins: AssetSet) -> None:
    """In a process of its own, since other tests' garbage would be counted."""
    done = subprocess.run(
        [sys.executable, "-c", _CYCLES, str(standins.path)], capture_output=True, text=True, check=True
    )
    counts = json.loads(done.stdout)
    first, last = counts[1], counts[-1]  # the very first one fills caches
    assert last[0] <= first[0], "files stay open"
    assert last[1] <= first[1], "threads go on"
    assert (last[2] - first[2]) / (len(counts) - 2) < 2**20, "more than 1 MiB stays behind after each close"
