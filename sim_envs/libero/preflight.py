"""LIBERO's checks of a machine: reference control steps, a reference image, and a scene that must settle.

`python -m sim_envs.libero.preflight` records the reference anew, with stand-in assets.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sim_envs.blas import pin_kernels
from sim_envs.libero.assets import STANDINS, AssetSet, find_assets
from sim_envs.libero.replay import (
    IMAGE_TOLERANCE,
    RecordedEpisode,
    RecordingSettings,
    ReplayErrors,
    read_reference,
    replay,
)
from sim_envs.libero.sim import ACTION_SIZE, LiberoSim
from sim_envs.libero.tasks import get_task
from sim_envs.preflight import CheckResult, Status

REFERENCE = Path(__file__).parent / "reference.npz"

_EPISODE = RecordedEpisode(suite="libero_spatial", task_id=5, init_id=0)
"""Its bowl stands on a ramekin. With MuJoCo from 3.4 on it slips off while the scene settles."""
_BOWL_ON_RAMEKIN = ("on", "akita_black_bowl_1", "glazed_rim_porcelain_ramekin_1")
_RECORDING = RecordingSettings(record_every=5, camera=64)
_STEPS = 20
_PINNED = "install the versions that requirements.lock names"


def check_libero(assets: AssetSet) -> Iterator[CheckResult]:
    """Compare this machine with the reference, and let a scene settle.

    Args:
        assets: The assets of the scene that settles. The reference always uses stand-ins.
    """
    reference = read_reference(REFERENCE)
    with _open(find_assets(STANDINS)) as sim:
        errors = replay(sim, _EPISODE, reference.episodes[_EPISODE], reference.recording)
        settled = _settles(sim)
    yield _steps(errors)
    yield _image(errors)
    if assets.name != STANDINS:
        with _open(assets) as sim:
            settled = _settles(sim)
    where = f"{_EPISODE.suite} task {_EPISODE.task_id}"
    detail = f"{where}: the bowl {'rests on' if settled else 'slips off'} its ramekin"
    yield CheckResult.of("settling", detail, ok=settled, remedy=_PINNED)


def _open(assets: AssetSet) -> LiberoSim:
    task = get_task(_EPISODE.suite, _EPISODE.task_id)
    return LiberoSim(task, assets=assets, camera_size=_RECORDING.camera)


def _settles(sim: LiberoSim) -> bool:
    sim.reset(init_id=_EPISODE.init_id, seed=_RECORDING.env_seed, settle_steps=_RECORDING.settle_steps)
    return bool(sim.env._eval_predicate(list(_BOWL_ON_RAMEKIN)))


def _steps(errors: ReplayErrors) -> CheckResult:
    name = f"{_STEPS} reference control steps"
    assert errors.sim_state is not None, "the reference has states"
    if errors.sim_state == 0:
        return CheckResult.of(name, "equal bit for bit")
    detail = f"states differ by up to {errors.sim_state:.2g}"
    if pin_kernels():
        return CheckResult.of(name, detail, ok=False, remedy=_PINNED)
    remedy = "this processor has no AVX-512: runs repeat here, but not bit for bit elsewhere"
    return CheckResult.of(name, detail, ok=False, remedy=remedy, otherwise=Status.WARN)


def _image(errors: ReplayErrors) -> CheckResult:
    assert errors.images is not None, "the reference has an image"
    if errors.images == 0:
        return CheckResult.of("reference image", "equal bit for bit")
    return CheckResult.of(
        "reference image",
        f"differs by {errors.images:.2g} grey levels in the mean",
        ok=False,
        remedy="another renderer: compare only runs that were rendered alike",
        otherwise=Status.WARN if errors.images <= IMAGE_TOLERANCE else Status.FAIL,
    )


def record(path: Path) -> None:
    """Record the reference on this machine."""
    draws = np.random.default_rng(0)
    actions = draws.uniform(-0.5, 0.5, (_STEPS, ACTION_SIZE))
    with _open(find_assets(STANDINS)) as sim:
        sim.reset(init_id=_EPISODE.init_id, seed=_RECORDING.env_seed, settle_steps=_RECORDING.settle_steps)
        image = np.concatenate(list(sim.observe().images.values()), axis=1)
        states = []
        for step, action in enumerate(actions, start=1):
            sim.advance(action[None])
            if step % _RECORDING.record_every == 0:
                states.append(sim.flat_state())
    settings = f'{{"record_every": {_RECORDING.record_every}, "camera": {_RECORDING.camera}}}'
    arrays = {
        "meta": np.array(settings),
        f"{_EPISODE}.actions": actions,
        f"{_EPISODE}.sim_state": np.stack(states),
        f"{_EPISODE}.image_after_settle": image,
    }
    np.savez_compressed(path, allow_pickle=False, **arrays)


if __name__ == "__main__":
    record(REFERENCE)
