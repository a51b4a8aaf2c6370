"""What only shows in a fresh process: silence, no traces, the same numbers whatever BLAS, a clean exit."""

import _ctypes
import functools
import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from contracts.errors import UsageError
from sim_envs import blas, gl
from sim_envs.libero import assets
from tests.commands import ROOT, execute

_EPISODE = """
import json, sys
import numpy as np
from sim_envs.libero.assets import find_assets
from sim_envs.libero.sim import LiberoSim
from sim_envs.libero.tasks import get_task
sim = LiberoSim(get_task("libero_10", 9), assets=find_assets(sys.argv[1]))
for init_id in json.loads(sys.argv[2]):
    sim.reset(init_id=init_id, seed=7, settle_steps=1)
    sim.advance(np.random.default_rng(0).uniform(-1, 1, (3, 7)))
image = sim.observe().images["image"]
np.savez(sys.argv[3], state=sim.flat_state(), image=image)
"""


_run = functools.partial(execute, sys.executable, "-W", "error", "-c", timeout_s=300)


def _episodes(assets: Path, init_ids: list[int], file: Path) -> dict[str, np.ndarray]:
    done = _run(
        _EPISODE, str(assets), json.dumps(init_ids), str(file), HOME=str(file.parent), LIBERO_CONFIG_PATH=""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with np.load(file) as arrays:
        return dict(arrays)


@pytest.mark.slow
def test_processes_agree_stay_silent_and_leave_nothing_in_the_home_folder(originals, tmp_path):
    alone = _episodes(originals.path, [3], tmp_path / "alone.npz")
    after_others = _episodes(originals.path, [8, 1, 3], tmp_path / "after_others.npz")
    np.testing.assert_array_equal(alone["state"], after_others["state"])
    np.testing.assert_array_equal(alone["image"], after_others["image"])
    assert not (tmp_path / ".libero").exists()


@pytest.mark.slow
def test_physics_needs_no_renderer_and_pictures_say_so(originals, tmp_path):
    done = _run(_EPISODE, str(originals.path), "[0]", str(tmp_path / "never.npz"), MUJOCO_GL="disable")
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith("contracts.errors.UsageError: no OpenGL")
    assert said.endswith("MUJOCO_GL is 'disable'; unset it")


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        ({"MUJOCO_GL": "vulkan"}, "unknown rendering backend"),
        ({"MUJOCO_GL": "egl", "PYOPENGL_PLATFORM": "osmesa"}, "contradicts"),
    ],
)
def test_a_backend_that_cannot_be_chosen_is_refused(environment, complaint, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=complaint):
        gl.choose_backend.__wrapped__()


def test_a_backend_that_does_not_work_is_refused():
    code = "from sim_envs.gl import require_backend; require_backend()"
    done = _run(code, MUJOCO_GL="egl", MUJOCO_EGL_DEVICE_ID="99")
    assert done.returncode == 1
    assert "'egl' does not work here (" in done.stderr.splitlines()[-1]


def test_another_mujoco_is_refused(monkeypatch):
    monkeypatch.setattr(assets, "PINNED_VERSIONS", {"mujoco": "3.8.1"})
    said = "mujoco is .*, but LIBERO's scores are valid for 3.8.1 only: run `oxygen-eval setup libero`"
    with pytest.raises(UsageError, match=said):
        assets.load_libero.__wrapped__()


_LOAD = """
import os, sys
sys.modules["torch"] = None
from sim_envs import blas
from sim_envs.libero.assets import load_libero
load_libero()
print(*(library.get_num_threads() for library in blas._openblas() if "opencv" not in library.filepath))
print(os.environ["MUJOCO_EGL_DEVICE_ID"])
"""


def test_libero_is_loaded_without_torch_and_computes_in_one_thread():
    """And with any numbers of EGL's device and of CUDA's, which robosuite compares."""
    done = _run(_LOAD, OPENBLAS_NUM_THREADS="2", CUDA_VISIBLE_DEVICES="GPU-3a,3", MUJOCO_EGL_DEVICE_ID="0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 1\n0\n", "")


_RENDERER_FIRST = """
from sim_envs.gl import require_backend
require_backend()
import mujoco  # opens the renderer's library, with its LLVM
print(*(line.split()[-1] for line in open("/proc/self/maps") if "libtriton" in line))
"""


def test_tritons_library_is_loaded_before_a_software_renderer(tmp_path):
    """Its own code is not run: any library shows the order."""
    (tmp_path / "triton" / "_C").mkdir(parents=True)
    (tmp_path / "triton" / "__init__.py").write_text("raise ImportError")
    library = tmp_path / "triton" / "_C" / "libtriton.so"
    shutil.copy(_ctypes.__file__, library)
    assert str(library) in _run(_RENDERER_FIRST, PYTHONPATH=f"{ROOT}:{tmp_path}").stdout
    library.write_text("of another system")
    assert _run(_RENDERER_FIRST, PYTHONPATH=f"{ROOT}:{tmp_path}").returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_triton_is_imported_after_a_software_renderer():
    done = _run(f"{_RENDERER_FIRST}\nimport triton")
    assert done.returncode == 0, done.stderr


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
def test_opening_and_closing_leaves_no_files_threads_or_memory(standins):
    """In a process of its own, since other tests' garbage would be counted."""
    done = _run(_CYCLES, str(standins.path))
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    first, last = counts[1], counts[-1]  # the very first one fills caches
    assert last[0] <= first[0], "files stay open"
    assert last[1] <= first[1], "threads go on"
    assert (last[2] - first[2]) / (len(counts) - 2) < 2**20, "more than 1 MiB stays behind after each close"


_DIGESTS = """
import hashlib
import numpy as np, scipy.linalg
from sim_envs.blas import pin_kernels
def print_digest():
    random = np.random.default_rng(0)
    matrices = random.standard_normal((200, 7, 7))
    results = [np.dot(scipy.linalg.inv(matrix), random.standard_normal((7, 40))) for matrix in matrices]
    print(hashlib.sha256(np.array(results).tobytes()).hexdigest())
print_digest()
assert pin_kernels()
print_digest()
"""


def _digests(start: str) -> list[str]:
    """Before and after pinning, in a process without other environment: the caller's may choose kernels."""
    done = _run(_DIGESTS, **{**dict.fromkeys(os.environ, ""), "OPENBLAS_CORETYPE": start})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.skipif(not blas._has_avx512(), reason="this CPU has no AVX-512")
@pytest.mark.parametrize("start", [pytest.param("Haswell", marks=pytest.mark.slow), "Nehalem"])
def test_products_and_inverses_do_not_depend_on_the_kernels_a_process_starts_with(start):
    reference, same = _digests(blas.KERNELS)
    other, pinned = _digests(start)
    assert other != reference == same == pinned
