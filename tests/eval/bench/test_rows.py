"""Configurations run in turns, and nothing is counted before they are warm; rows follow their definitions.

Paired ratios cancel drift, and their intervals cover the true ratio. A profile is made of rows.
"""

import dataclasses
import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from configs.errors import check
from configs.load import load
from configs.profile import ProfileConfig
from contracts.errors import UsageError
from contracts.mode import Mode
from contracts.text import DecodeWork
from eval.bench import profile as profiles
from eval.bench.measurement import Samples, aggregate, measure, needed_bytes, paired_ratio
from eval.bench.row import RowFile
from eval.bench.workloads import BenchConfiguration
from eval.rollout.pricing import LatencyModel
from tests.eval.bench.conftest import (
    HARDWARE,
    JOBS,
    STAGES,
    WHOLE_TEXT,
    WORKLOAD,
    measured,
    query,
    sampled,
    workload,
)

FEW = workload(repetitions=3, queries=2, warm_up_queries=5)


class LoggedRunner:
    """A runner that logs its runs, and answers each query with its index."""

    def __init__(self, name, log):
        self.configuration = BenchConfiguration(mode=Mode(name))
        self._log, self._stream = log, itertools.count()

    def run(self, queries):
        self._log.append((self.configuration.mode.value, queries))
        return [query(float(n), actions=str(n)) for n in itertools.islice(self._stream, queries)]


def test_modes_are_interleaved_run_by_run_and_only_queries_after_warm_up_are_counted():
    log = []
    a, b, c = "actions", "isolated", "unified"
    runners = [LoggedRunner(mode, log) for mode in (a, b, c)]

    def stages():
        log.append(("stages", 0))
        return {runner.configuration: STAGES for runner in runners}

    measured = measure(runners, stages, FEW)
    assert log[:3] == [(a, 5), (b, 5), (c, 5)]
    runs = [name for name, _ in log[3:]]
    assert runs == [a, b, c, "stages", c, b, a, "stages", a, b, c, "stages"]
    assert len(measured) == 3
    for samples in measured.values():
        assert samples.stages == [STAGES] * 3
        # After five queries of warm-up, and an uncounted one before every run.
        assert [[one.frame_ms for one in run] for run in samples.runs] == [[6, 7], [9, 10], [12, 13]]
        assert samples.actions == [str(n) for n in range(FEW.total_queries)]


def test_an_interrupt_ends_the_measurement_after_the_current_run():
    log = []

    def interrupted():
        if len(log) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure([LoggedRunner("actions", log)], dict, FEW, interrupted)
    assert len(log) == 3


def test_speedups_are_paired_so_that_drift_cancels(made_up):
    actions, isolated, unified, parallel = made_up()
    assert isolated.speedup_over_isolated == 1
    assert unified.speedup_over_isolated == pytest.approx(350 / 140)
    assert unified.speedup_ci95 == pytest.approx([350 / 140, 350 / 140])
    assert unified.predicted_speedup == pytest.approx((2 * 100 + 30 + 30 * 4) / (100 + 30 + 10))
    assert unified.attained_fraction == pytest.approx(1)
    assert unified.frame_ms_predicted == pytest.approx(1.5 * 140)
    assert parallel.speedup_over_isolated == pytest.approx(350 / 300)
    assert (parallel.predicted_speedup, parallel.predicted_over_frame) == (None, None)
    assert actions.predicted_speedup == pytest.approx(350 / 130)


def test_the_speedup_with_an_adapter_is_over_isolated_with_it():
    frames_ms = {("isolated", "off"): 300.0, ("shared", "off"): 200.0}
    frames_ms |= {("isolated", "exact"): 400.0, ("shared", "exact"): 200.0}
    samples = {
        BenchConfiguration(mode=Mode(mode), adapter=adapter): Samples(
            runs=[[query(frame_ms, [WHOLE_TEXT])] * 4] * 3,
            stages=[dict.fromkeys(("prefill", "denoise", "decode_1"), 10.0)] * 3,
            actions=["the same"] * 46,
        )
        for (mode, adapter), frame_ms in frames_ms.items()
    }
    fields = aggregate(WORKLOAD, samples, horizon=10)
    assert [row["speedup_over_isolated"] for row in fields.values()] == pytest.approx([1, 1.5, 1, 2])


def test_rates_are_totals_over_total_time_and_stage_times_are_medians(made_up):
    actions, isolated, unified, _ = made_up()
    seconds = 1e-3 * 4 * (1.0 + 2.0 + 1.5) * 140
    assert unified.chunks_per_s == pytest.approx(12 / seconds)
    assert unified.actions_per_s == pytest.approx(10 * 12 / seconds)
    assert unified.tokens_per_s == pytest.approx(12 * 30 / seconds)
    assert unified.requests_finished == 12
    assert (actions.tokens_per_s, actions.request_ms_p50) == (0, None)
    acting = {"prefill": 150, "denoise": 45, "guided_denoise": 105}
    assert unified.stage_ms == acting | {"fork": 7.5, "decode_30": 15}
    frames = np.array(isolated.samples["frame_ms"])
    assert frames.shape == (isolated.repetitions, isolated.queries)
    assert isolated.frame_ms_p95 == pytest.approx(np.quantile(frames, 0.95))
    assert isolated.request_ms_p50 == pytest.approx(np.median(isolated.samples["request_ms"]))
    assert [times["fork"] for times in isolated.samples["stage_ms"]] == [5, 10, 7.5]


def test_a_configuration_with_other_actions_is_marked(made_up):
    *_, unified, parallel = JOBS
    other = sampled(unified, actions=["the same"] * 45 + ["another"])
    rows = made_up(samples={each: sampled(each) for each in JOBS} | {unified: other})
    assert [row.actions_equal for row in rows] == [True, True, False, True]
    assert len({row.actions_sha256 for row in rows}) == 2
    without_actions = {parallel: sampled(parallel), unified: other}
    assert [row.actions_equal for row in made_up(samples=without_actions)] == [True, False]
    assert [row.actions_equal for row in made_up(samples={unified: other})] == [None]


def test_the_stage_share_shows_overhead_common_to_all_modes(made_up):
    """Frames twice as long in every mode attain the same speed-up, but stages account for half of them."""
    unified = made_up(samples={each: sampled(each, slower=2) for each in JOBS})[2]
    assert unified.attained_fraction == pytest.approx(1)
    assert unified.predicted_over_frame == pytest.approx(0.5)
    assert unified.predicted_over_frame_ci95 == pytest.approx([0.5, 0.5])


def program(size):
    """A compiled program that takes `size` bytes; 50 of its results are arguments."""
    analysis = SimpleNamespace(
        argument_size_in_bytes=size - 100,
        temp_size_in_bytes=50,
        output_size_in_bytes=100,
        alias_size_in_bytes=50,
    )
    return SimpleNamespace(memory_analysis=lambda: analysis)


@pytest.mark.parametrize(
    ("mode", "size"), [("actions", 350), ("unified", 450), ("isolated", 450), ("parallel", 350 + 450)]
)
def test_needed_memory_is_of_the_largest_program_of_each_process(mode, size):
    programs = SimpleNamespace(
        prefill={32: program(300)},
        denoise={(32, False): program(350)},
        fork={(32, 1): program(400)},
        decode={30: program(450)},
    )
    runner = SimpleNamespace(programs=programs, sizes=SimpleNamespace(forks=(1,), rows=(30,)))
    assert needed_bytes(runner, Mode(mode), bucket=32) == size


@pytest.mark.parametrize(("repetitions", "least"), [(3, 0.70), (5, 0.91), (6, 0.92), (12, 0.92)])
def test_intervals_have_their_nominal_coverage(repetitions, least):
    """95 % from six repetitions on, 94 % of five and 75 % of three, less the sampling error of 400 tries.

    The true ratio is 3, under common drift, and long-tailed noise of 2 % on either side.
    """
    covered = []
    for seed in range(400):
        random = np.random.default_rng(seed)
        drift = np.exp(np.cumsum(random.normal(0, 0.3, repetitions)))
        noise = np.exp(0.02 * random.standard_t(3, (2, repetitions)))
        interval = paired_ratio(3 * drift * noise[0], drift * noise[1]).ci95
        covered.append(interval.low <= 3 <= interval.high)
    assert least < np.mean(covered) < 0.98


def test_a_disturbed_repetition_of_many_changes_neither_the_ratio_nor_its_interval():
    quiet = [1.0 + 0.01 * n for n in range(12)]
    assert paired_ratio([*quiet, 50.0], [1.0] * 13).ci95.high < 1.12
    assert paired_ratio([2.0] * 8 + [50.0], [1.0] * 9).value == 2
    few = paired_ratio([5.0, 1.0, 2.0, 4.0, 3.0], [1.0] * 5)
    assert (few.value, few.ci95.low, few.ci95.high) == (3, 1, 5), "the interval of few is their range"
    assert paired_ratio([4.0], [2.0]).ci95 is None
    with pytest.raises(ValueError, match="2 repetitions to 1"):
        paired_ratio([1.0, 2.0], [1.0])


_RECORDS = Path(__file__).parents[3] / "benchmarks/results"


@pytest.mark.parametrize("record", sorted(_RECORDS.rglob("*.jsonl")), ids=lambda record: record.stem)
def test_recorded_rows_are_read_without_what_is_no_longer_recorded(record):
    lines = record.read_text(encoding="utf-8").splitlines()
    for line, row in zip(lines, RowFile(record).rows, strict=True):
        fields, kept = json.loads(line), dataclasses.asdict(row)
        assert fields["frame_ms_p50"] == row.frame_ms_p50
        assert {name: kept[name] for name in fields.keys() & kept.keys()} == {
            name: fields[name] for name in fields.keys() & kept.keys()
        }


def test_rows_of_fewer_slots_or_growing_prompts_are_refused_instead_of_shown_as_ordinary_ones(
    made_up, tmp_path
):
    path = tmp_path / "rows.jsonl"
    for limit in ("slots", "rows", "shortest_prompt"):
        path.write_text(json.dumps(dataclasses.asdict(made_up()[0]) | {limit: 2}) + "\n")
        with pytest.raises(UsageError, match=r"rows\.jsonl.*--output"):
            RowFile(path)


def test_rows_survive_their_file_which_finds_the_latest_of_a_configuration(made_up, tmp_path):
    path = tmp_path / "deep" / "rows.jsonl"
    file, rows = RowFile(path), made_up()
    identities = [row.identity for row in rows]
    file.append(rows[:2])
    assert file.of(identities) == rows[:2]
    file.append([dataclasses.replace(row, commit="newer") for row in rows])
    assert [row.commit for row in file.of(identities)] == ["newer"] * 4
    assert file.of([identities[2]]) == [file.rows[4]]
    assert not file.of([made_up(dataclasses.replace(WORKLOAD, text_tokens=31))[0].identity])
    assert RowFile(path).rows == file.rows


def test_rows_of_another_machine_jax_or_number_of_cameras_have_another_identity(made_up):
    row = made_up()[0]
    for other in (
        {"versions": {"python": "3.12", "mujoco": None, "jax": "0.1"}},
        {"hardware": {**HARDWARE, "processor": "a slide rule"}},
        {"hardware": {**HARDWARE, "cores": 64}},
        {"cameras": 1},
    ):
        assert dataclasses.replace(row, **other).identity != row.identity
    assert dataclasses.replace(row, commit="another").identity == row.identity


@pytest.mark.parametrize("content", ['{"mode": "unified"}\n', "[]\n", "no rows\n"])
def test_a_file_without_rows_is_refused(content, tmp_path):
    path = tmp_path / "other.jsonl"
    path.write_text(content)
    with pytest.raises(UsageError, match=r"other\.jsonl.*--output"):
        RowFile(path)
    with pytest.raises(UsageError, match="cannot write"):
        RowFile(path / "rows.jsonl")


@pytest.fixture
def rows(made_up):
    """Rows of `isolated`, `unified` and `shared`, of which a profile takes the stages."""
    _, isolated, unified, _ = made_up()
    acting = {"prefill": 100.0, "denoise": 20.0, "guided_denoise": 45.0}
    isolated = dataclasses.replace(isolated, action_ms_p50=127.0)
    return [
        dataclasses.replace(isolated, stage_ms=acting | {"fork": 3.0, "decode_1": 5.0}),
        dataclasses.replace(unified, stage_ms=acting | {"fork": 5.0, "decode_30": 15.0}),
        dataclasses.replace(isolated, mode=Mode.SHARED, stage_ms=acting | {"fork": 4.0, "decode_1": 7.0}),
    ]


def profile(name, rows):
    return check(ProfileConfig, profiles.profile(name, rows), source=name)


def test_a_saved_profile_holds_the_medians_of_rows(rows, tmp_path):
    profiles.save_profile(tmp_path / "abacus.yaml", rows)
    found = load(ProfileConfig, str(tmp_path / "abacus.yaml"))
    assert (found.host.ms, found.prefill.ms, found.denoise.ms, found.fork.ms) == (7, 100, 20, 4)
    assert found.guided_denoise.ms == 45
    assert {batch: time.ms for batch, time in found.decode.items()} == {1: 6, 30: 15}
    assert (found.device, found.model, found.dtype) == ("an abacus, 2 cores", "small", "float32")
    assert found.parallel is None
    for said in ("oxygen-eval bench", "no commit", "jax 0.0", "load average 0.1"):
        assert said in found.source


def test_the_slowdown_of_parallel_is_relative_to_isolated_and_to_the_stages_of_a_text(rows):
    isolated, *others = rows
    times = {"stage_ms": {}, "action_ms_p50": 254.0, "request_ms_p50": 3 * (100 + 4 + 30 * 6)}
    parallel = dataclasses.replace(isolated, mode=Mode.PARALLEL, **times)
    found = profile("abacus", [*rows, parallel])
    assert (found.parallel.action, found.parallel.decode) == (2, 3)
    quick = dataclasses.replace(parallel, action_ms_p50=1.0, request_ms_p50=1.0)  # by noise
    found = profile("abacus", [dataclasses.replace(isolated, action_ms_p50=100.0), *others, quick])
    assert (found.host.ms, found.parallel.action, found.parallel.decode) == (0, 1, 1)


@pytest.mark.slow
def test_a_measured_profile_predicts_the_measured_frames(tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    modes = ("--modes", "isolated", "unified", "parallel")
    isolated, *_ = measured(tmp_path, *modes, "--save-profile", str(path))
    assert f"Profile: {path}" in capsys.readouterr().out
    found = load(ProfileConfig, str(path))
    assert sorted(found.decode) == [1, 2, 6]
    assert found.parallel is not None
    text = DecodeWork(prefills=1, forks=1, steps=6, batch=1)
    # Host time is never negative, even if the stages alone take longer than the actions.
    action_ms = max(isolated.action_ms_p50, isolated.stage_ms["prefill"] + isolated.stage_ms["denoise"])
    assert LatencyModel(found, "isolated").action_ms == pytest.approx(action_ms, rel=0.1)
    # The stages by themselves are most of a frame.
    assert 0.2 < LatencyModel(found, "isolated").busy_ms([text]) / isolated.frame_ms_p50 < 2
