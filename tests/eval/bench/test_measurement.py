"""Configurations run in turns, and nothing is counted before they are warm; rows follow their definitions.

Paired ratios cancel drift, and their intervals cover the true ratio.
"""

import itertools

import numpy as np
import pytest

from eval.bench.experiment import needed_bytes
from eval.bench.measurement import Samples, aggregate, decode_growth, measure, paired_ratio
from eval.bench.workloads import BenchConfiguration
from oxygen.serving.scheduler import Mode
from tests.eval.bench.conftest import JOBS, STAGES, WHOLE_TEXT, WORKLOAD, query, sampled, workload

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
    assert unified.action_over_actions == pytest.approx(140 / 130)
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
    assert (unified.requests_finished, unified.requests_dropped) == (12, 0)
    assert (actions.tokens_per_s, actions.request_ms_p50) == (0, None)
    acting = {"prefill": 150, "denoise": 45, "guided_denoise": 105}
    assert unified.stage_ms == acting | {"fork": 7.5, "decode_30": 15}
    frames = np.array(isolated.samples["frame_ms"])
    assert frames.shape == (isolated.repetitions, isolated.queries)
    assert isolated.frame_ms_p95 == pytest.approx(np.quantile(frames, 0.95))
    assert isolated.request_ms_p50 == pytest.approx(np.median(isolated.samples["request_ms"]))
    assert [times["fork"] for times in isolated.samples["stage_ms"]] == [5, 10, 7.5]


def test_the_growth_of_a_decode_step_is_over_all_configurations(made_up):
    *_, unified, _ = made_up()
    assert unified.decode_growth == pytest.approx(10 / 4)
    assert unified.decode_growth_ci95 == pytest.approx([10 / 4, 10 / 4])
    growth = decode_growth(
        [{f"decode_{size}": slow * (3 + size) for size in (30, 1, 6)} for slow in (1.0, 2.0, 1.5)]
    )
    assert growth.value == pytest.approx(33 / 4)
    assert decode_growth([{"decode_4": 7.0}]) is None


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


def test_needed_memory_is_of_the_largest_program_of_each_process():
    programs = {"prefill": 300, "denoise": 200, "fork": 350, "decode_30": 400}
    assert needed_bytes(programs, in_two_processes=False) == 400
    assert needed_bytes(programs, in_two_processes=True) == 400 + 300


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
