"""The shipped profiles price what they claim to: the published queries, and the floors of the model."""

from pathlib import Path
from typing import get_args

import pytest

from configs.load import load, names
from configs.profile import ProfileConfig
from configs.schema import Mode
from eval.bench import roofline
from eval.bench.costs import Peaks
from eval.bench.peaks import published
from eval.bench.profile import profile
from eval.bench.row_file import RowFile
from eval.bench.serving import SUFFIX
from eval.rollout.latency_model import LatencyModel
from oxygen.model.config import PI05_LIBERO
from oxygen.serving.requests import DecodeWork
from oxygen.serving.runner import ProgramSizes

_ROWS = Path(__file__).resolve().parents[3] / "benchmarks/results/bench_small.jsonl"
_REACHED = 1.3
"""realtime-vla reaches 73 to 83 % of the roofline."""
_PEAKS = {
    "jetson-thor": Peaks(flops_per_s=258e12, bytes_per_s=273e9, source="NVIDIA's data sheet"),
    "h200": Peaks(flops_per_s=790e12, bytes_per_s=4.3e12, source="as measured, docs/bench.md"),
    "rtx4090-roofline": published("NVIDIA GeForce RTX 4090", "bfloat16"),
}
_TEXT = DecodeWork(prefills=1, forks=1, steps=30, batch=1)
_FRAME = DecodeWork(prefills=0, forks=1, steps=1, batch=30)


def _needed():
    """One robot, two cameras, 200 tokens of prompt, texts of 30, one begun in every query."""
    sizes = ProgramSizes(slots=30, rows=(1, 30), forks=(1,), suffix=len(SUFFIX), limit=30)
    return roofline.stage_costs(PI05_LIBERO, sizes, 200)


@pytest.mark.parametrize("name", names(ProfileConfig))
def test_every_shipped_profile_prices_every_mode_it_claims(name):
    profile = load(ProfileConfig, name)
    claimed = [mode for mode in get_args(Mode) if mode != "parallel" or profile.parallel is not None]
    assert len(claimed) >= 4
    prices = {mode: LatencyModel(profile, mode) for mode in claimed}
    for latency_model in prices.values():
        assert 0 < latency_model.action_ms < latency_model.busy_ms([_TEXT])
    # What the project is about: a query of `unified` is over earlier, and its actions come no later.
    assert prices["unified"].busy_ms([_FRAME]) < prices["isolated"].busy_ms([_TEXT])
    assert prices["unified"].action_ms == prices["isolated"].action_ms


def test_the_rtx_4090_prices_the_published_queries_as_they_were_published():
    profile = load(ProfileConfig, "rtx4090")
    isolated = LatencyModel(profile, "isolated").busy_ms([_TEXT])
    unified = LatencyModel(profile, "unified").busy_ms([_FRAME])
    assert isolated == pytest.approx(523, abs=1e-9)
    assert unified == pytest.approx(142, abs=1e-9)
    assert round(isolated / unified, 1) == 3.7
    assert {profile.decode[1].kind, profile.prefill.kind, profile.denoise.kind} == {"derived"}


def test_its_prefill_and_denoising_are_split_as_their_floors_are():
    profile, needed = load(ProfileConfig, "rtx4090"), _needed()
    floors = {stage: _PEAKS["rtx4090-roofline"].floor_ms(needed[stage]) for stage in ("prefill", "denoise")}
    share = profile.prefill.ms / (profile.prefill.ms + profile.denoise.ms)
    assert share == pytest.approx(floors["prefill"] / sum(floors.values()), rel=0.02)


@pytest.mark.parametrize("name", _PEAKS)
def test_profiles_of_floors_are_the_floors_times_what_is_reached(name):
    profile, needed, peaks = load(ProfileConfig, name), _needed(), _PEAKS[name]
    times = {
        "prefill": profile.prefill,
        "denoise": profile.denoise,
        "guided denoise": profile.guided_denoise,
        "fork": profile.fork,
        **{f"decode {batch}": time for batch, time in profile.decode.items()},
    }
    for stage, time in times.items():
        assert time.ms == pytest.approx(_REACHED * peaks.floor_ms(needed[stage]), rel=0.02), stage
        assert time.kind == "computed"
    assert (profile.dtype, profile.model, profile.parallel) == ("bfloat16", PI05_LIBERO.name, None)


def _small_rows():
    return [row for row in RowFile(_ROWS).rows if row.cameras == 2]


def test_two_cores_are_as_the_rows_of_the_benchmark_have_it():
    assert load(ProfileConfig, "two-core") == ProfileConfig.model_validate(profile("two-core", _small_rows()))


def test_two_cores_price_the_frames_that_were_measured():
    """The profile knows single stages; a frame of the whole engine comes out within a tenth."""
    two_core, rows = load(ProfileConfig, "two-core"), _small_rows()
    alive = {1: 30, 2: 15, 5: 6, 10: 3}
    for row in rows:
        if row.mode == "actions":
            work = []
        elif row.tokens_per_frame is None:
            work = [DecodeWork(prefills=int(row.mode != "shared"), forks=1, steps=30, batch=1)]
        else:
            batch = alive[row.tokens_per_frame]
            work = [DecodeWork(prefills=0, forks=1, steps=row.tokens_per_frame, batch=batch)]
        assert LatencyModel(two_core, row.mode).busy_ms(work) == pytest.approx(row.frame_ms_p50, rel=0.1)
