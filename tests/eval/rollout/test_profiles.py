"""The shipped profiles price what they claim to: the published queries, and the floors of the model."""

from pathlib import Path

import pytest

from benchmarks import roofline
from configs.load import load, names
from configs.profile import ProfileConfig
from contracts.mode import Mode
from contracts.text import DecodeWork
from eval.bench.profile import profile
from eval.bench.row import RowFile
from eval.bench.serving import SUFFIX
from eval.rollout.pricing import LatencyModel
from oxygen.model.config import PI05_LIBERO
from oxygen.serving.runner import ProgramSizes

_ROWS = Path(__file__).resolve().parents[3] / "benchmarks/results/bench_small.jsonl"
_CLOCKS = Path(__file__).resolve().parents[3] / "docs/clocks.md"
_REACHED = 1.3
"""realtime-vla reaches 73 to 83 % of the roofline."""
_PEAKS = {
    "jetson-thor-roofline": roofline.Peaks(
        flops_per_s=258e12, bytes_per_s=273e9, source="NVIDIA's data sheet"
    ),
    "h200": roofline.Peaks(flops_per_s=790e12, bytes_per_s=4.3e12, source="as measured, docs/bench.md"),
    "rtx4090-roofline": roofline.published("NVIDIA GeForce RTX 4090", "bfloat16"),
}
_TEXT = DecodeWork(prefills=1, forks=1, steps=30, batch=1)
_FRAME = DecodeWork(prefills=0, forks=1, steps=1, batch=30)


def _needed():
    """One robot, two cameras, 200 tokens of prompt, texts of 30, one begun in every query."""
    sizes = ProgramSizes(slots=30, rows=(1, 30), forks=(1,), suffix=len(SUFFIX), limit=30)
    return roofline.stage_costs(PI05_LIBERO, sizes, 200)


@pytest.mark.parametrize("name", names(ProfileConfig))
def test_every_profile_prices_every_mode_it_supports(name):
    profile = load(ProfileConfig, name)
    claimed = [mode for mode in Mode if mode != "parallel" or profile.parallel is not None]
    assert len(claimed) >= 4
    prices = {mode: LatencyModel(profile, mode) for mode in claimed}
    for latency_model in prices.values():
        assert 0 < latency_model.action_ms < latency_model.busy_ms([_TEXT])
    # What the project is about: a query of `unified` is over earlier, and its actions come no later.
    assert prices["unified"].busy_ms([_FRAME]) < prices["isolated"].busy_ms([_TEXT])
    assert prices["unified"].action_ms == prices["isolated"].action_ms


def _isolated_ms(name, tokens):
    job = DecodeWork(prefills=1, forks=1, steps=tokens, batch=1)
    return LatencyModel(load(ProfileConfig, name), "isolated").busy_ms([job])


def _frame_ms(name, k, batch):
    job = DecodeWork(prefills=0, forks=1, steps=k, batch=batch)
    return LatencyModel(load(ProfileConfig, name), "unified").busy_ms([job])


def _stacked(k, batch):
    """The share of stacking and splitting in a frame, percent."""
    return (
        100
        * load(ProfileConfig, "rtx4090-oxygen-2603").stack[batch].ms
        / _frame_ms("rtx4090-oxygen-2603", k, batch)
    )


def test_the_rtx_4090_profile_reproduces_the_published_figures():
    profile = load(ProfileConfig, "rtx4090-oxygen-2603")
    assert profile.prefill.ms == 47.66
    assert _isolated_ms("rtx4090-oxygen-2603", 30) == pytest.approx(10e3 / 19.1, abs=0.1)
    assert 30e3 / _isolated_ms("rtx4090-oxygen-2603", 30) == pytest.approx(57, abs=0.5)
    assert _frame_ms("rtx4090-oxygen-2603", 1, 30) == pytest.approx(10e3 / 70.5, abs=0.1)
    assert 30e3 / _frame_ms("rtx4090-oxygen-2603", 1, 30) == pytest.approx(213, rel=0.01)
    assert round(_isolated_ms("rtx4090-oxygen-2603", 30) / _frame_ms("rtx4090-oxygen-2603", 1, 30), 1) == 3.7
    assert _stacked(1, 30) == pytest.approx(35.65, abs=0.05)
    assert _stacked(5, 6) == pytest.approx(9.64, abs=0.05)


def test_the_jetson_thor_profile_reproduces_the_published_bounds():
    profile = load(ProfileConfig, "jetson-thor-oxygen-2603")
    assert 30e3 / _frame_ms("jetson-thor-oxygen-2603", 1, 30) == pytest.approx(100, rel=1e-3)
    assert _isolated_ms("jetson-thor-oxygen-2603", 30) / _frame_ms(
        "jetson-thor-oxygen-2603", 1, 30
    ) == pytest.approx(3.3, rel=1e-3)
    roofline = load(ProfileConfig, "jetson-thor-roofline")
    for stage in ("prefill", "denoise", "guided_denoise"):
        share = getattr(profile, stage).ms / getattr(roofline, stage).ms
        assert share == pytest.approx(profile.decode[1].ms / roofline.decode[1].ms, rel=1e-3)


_FIGURES = (
    (
        "isolated, N = 20, no adapter",
        "439.3",
        "rtx4090-oxygen-2603",
        lambda name: [_isolated_ms(name, 20)],
    ),
    ("k = 5, 4 texts, no adapter", "215.6", "rtx4090-oxygen-2603", lambda name: [_frame_ms(name, 5, 4)]),
    ("isolated, N = 20", "461.7", "oxygen-libero", lambda name: [_isolated_ms(name, 20)]),
    ("k = 5, 4 texts", "217.7", "oxygen-libero", lambda name: [_frame_ms(name, 5, 4)]),
    ("k = 5, 5 texts", "238.6", "oxygen-libero", lambda name: [_frame_ms(name, 5, 5)]),
    ("k = 5, 5 texts", "238.6", "rtx4090-oxygen-2603", lambda name: [_frame_ms(name, 5, 5)]),
    ("k = 5, 1 text, resumed", "193.5", "oxygen-libero", lambda name: [_frame_ms(name, 5, 1)]),
    *(
        (
            f"k = {k}, N ≤ 20",
            figures,
            "oxygen-libero",
            lambda name, k=k: [_frame_ms(name, k, 1), _frame_ms(name, k, -(-20 // k))],
        )
        for k, figures in enumerate(("172–191", "187–194", "197–198", "209–212", "219"), start=1)
    ),
    ("isolated, N ≤ 20", "328–376", "oxygen-libero", lambda name: [_isolated_ms(name, n) for n in (5, 20)]),
)
"""Published milliseconds that no profile was derived from: workload, figure, profile, prediction."""


def test_profiles_predict_other_published_figures_as_well_as_the_docs_say():
    """Where one number is predicted; `oxygen-libero` is up to 13 % too fast where it is a range."""
    errors = {"rtx4090-oxygen-2603": [], "oxygen-libero": []}
    for _, figure, name, predict in _FIGURES:
        predicted, published = predict(name), [float(end) for end in figure.split("–")]
        if len(predicted) == len(published) == 1:
            errors[name].append(100 * (predicted[0] / published[0] - 1))
        else:
            assert predicted[-1] > 0.87 * published[-1]
    assert (round(min(errors["rtx4090-oxygen-2603"])), round(max(errors["rtx4090-oxygen-2603"]))) == (
        -34,
        -11,
    )
    assert max(map(abs, errors["oxygen-libero"])) < 8.5


def test_the_docs_have_the_prices_of_every_profile():
    docs = _CLOCKS.read_text(encoding="utf-8")
    for name in names(ProfileConfig):
        assert f"\n{_priced(name)} |" in docs, _priced(name)


def _priced(name):
    """The row of the docs, up to the source."""
    prices = [
        LatencyModel(load(ProfileConfig, name), "actions").action_ms,
        _isolated_ms(name, 30),
        *(_frame_ms(name, k, 30 // k) for k in (1, 5)),
    ]
    return f"| `{name}` | " + " | ".join(f"{ms:.3g}" for ms in prices)


@pytest.mark.parametrize("name", _PEAKS)
def test_roofline_profiles_are_the_floors_times_one_factor(name):
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


def test_the_two_core_profile_is_the_benchmarks_and_predicts_measured_frames():
    """The profile knows single stages; a frame of the whole engine comes out within a tenth."""
    rows = [row for row in RowFile(_ROWS).rows if row.cameras == 2]
    two_core = load(ProfileConfig, "two-core")
    assert two_core == ProfileConfig.model_validate(profile("two-core", rows))
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
