"""LIBERO's checks of a machine: reference control steps, a reference image, and a scene that must settle."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from configs.paths import read_npz
from sim_envs.blas import pin_kernels
from sim_envs.libero.assets import STANDINS, AssetSet, find_assets
from sim_envs.libero.sim import ACTION_SIZE, LiberoSim
from sim_envs.libero.tasks import get_task
from sim_envs.preflight import CheckResult, Status

REFERENCE = Path(__file__).parent / "reference.npz"
# Its bowl stands on a ramekin; with MuJoCo 3.4 and later it slips off while the scene settles.
_SUITE, _TASK_ID = "libero_spatial", 5
_BOWL_ON_RAMEKIN = ("on", "akita_black_bowl_1", "glazed_rim_porcelain_ramekin_1")
_CAMERA_SIZE = 64
_SEED, _SETTLE_STEPS = 7, 10
_RECORD_EVERY = 5  # control steps between two recorded states
_IMAGE_TOLERANCE = 2.0  # mean difference in grey levels between renderers
_PINNED = "install the versions that requirements.lock names"
_NO_AVX512 = "this processor has no AVX-512: runs repeat here, but not bit for bit elsewhere"


def check_libero(assets: AssetSet) -> Iterator[CheckResult]:
    """Compare this machine with the reference, which uses stand-ins, and let a scene of `assets` settle."""
    reference = read_npz(REFERENCE)
    with _open(find_assets(STANDINS)) as sim:
        sim.reset(init_id=0, seed=_SEED, settle_steps=_SETTLE_STEPS)
        image, states = np.concatenate(list(sim.observe().images.values()), axis=1), []
        for chunk in reference["actions"].reshape(-1, _RECORD_EVERY, ACTION_SIZE):
            sim.advance(chunk)
            states.append(sim.flat_state())
        settled = _settles(sim)
    error = float(np.abs(np.stack(states) - reference["sim_state"]).max())
    pinned = error == 0 or pin_kernels()
    yield CheckResult.of(
        f"{len(reference['actions'])} reference control steps",
        "equal bit for bit" if error == 0 else f"states differ by up to {error:.2g}",
        ok=error == 0,
        remedy=_PINNED if pinned else _NO_AVX512,
        otherwise=Status.FAIL if pinned else Status.WARN,
    )
    error = float(np.abs(image.astype(np.float64) - reference["image_after_settle"]).mean())
    yield CheckResult.of(
        "reference image",
        "equal bit for bit" if error == 0 else f"differs by {error:.2g} grey levels in the mean",
        ok=error == 0,
        remedy="another renderer: compare only runs that were rendered alike",
        otherwise=Status.WARN if error <= _IMAGE_TOLERANCE else Status.FAIL,
    )
    if assets.name != STANDINS:
        with _open(assets) as sim:
            settled = _settles(sim)
    detail = f"{_SUITE} task {_TASK_ID}: the bowl {'rests on' if settled else 'slips off'} its ramekin"
    yield CheckResult.of("settling", detail, ok=settled, remedy=_PINNED)


def _open(assets: AssetSet) -> LiberoSim:
    return LiberoSim(get_task(_SUITE, _TASK_ID), assets=assets, camera_size=_CAMERA_SIZE)


def _settles(sim: LiberoSim) -> bool:
    sim.reset(init_id=0, seed=_SEED, settle_steps=_SETTLE_STEPS)
    return bool(sim.env._eval_predicate(list(_BOWL_ON_RAMEKIN)))
