"""Runs the benchmark on a policy of a few thousand parameters, in every mode."""

import dataclasses
import itertools
import os
import signal
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest

from contracts.mode import Mode
from eval.bench.experiment import mps_is_active, run_experiment
from eval.bench.row import RowFile
from eval.bench.serving import Bench, find_model
from eval.bench.workloads import BenchConfiguration, Workload
from eval.records.json_files import read_json_lines
from tests.eval.bench.conftest import MODEL, measured, options


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Every mode, one robot, a text in every query."""
    return measured(tmp_path_factory.mktemp("bench"))


@pytest.mark.slow
def test_every_mode_and_every_k_has_a_row_with_the_same_actions_and_whole_texts(rows):
    """Once warm, `unified` finishes as many texts as are requested."""
    by_k = [f"{mode}, k = {k}" for mode in ("interleaved", "unified") for k in (1, 3)]
    labels = ["actions", "isolated", *by_k[:2], "shared", *by_k[2:], "parallel"]
    assert [row.label for row in rows] == labels
    assert [(row.compiles_after_warmup, row.actions_equal) for row in rows] == [(0, True)] * len(rows)
    assert len({row.actions_sha256 for row in rows}) == 1
    assert all(0 < row.action_ms_p50 <= row.frame_ms_p99 for row in rows)
    for row in rows[1:]:
        assert 0 < row.first_token_ms_p50 <= row.request_ms_p50
        assert row.requests_submitted == row.requests_finished == row.repetitions * row.queries
        seconds = 1e-3 * row.frame_ms_mean * row.repetitions * row.queries
        assert row.tokens_per_s * seconds == pytest.approx(6 * row.requests_submitted)
    unified = rows[5]
    assert unified.request_ms_p50 > 4 * unified.frame_ms_p50, "six frames for six tokens"
    assert set(unified.stage_ms) == {"prefill", "denoise", "guided_denoise", "fork", "decode_6"}


@pytest.mark.slow
def test_memory_is_reported_for_each_configuration_by_itself(rows):
    """Every program counts the weights, and each process of `parallel` its own."""
    actions, isolated, _, _, shared, _, _, parallel = rows
    assert 0 < actions.needed_memory_bytes <= shared.needed_memory_bytes
    assert parallel.needed_memory_bytes > isolated.needed_memory_bytes


@pytest.mark.slow
def test_only_the_configuration_that_compiles_is_flagged(tmp_path, monkeypatch):
    """`shared` compiles something in its last query but one."""
    ordinary = Bench._observations

    def with_a_new_shape(self, policy):
        for query, observations in enumerate(ordinary(self, policy)):
            if policy.engine.mode is Mode.SHARED and query == 9:
                jax.jit(lambda x: x + 1)(np.zeros(9)).block_until_ready()
            yield observations

    monkeypatch.setattr(Bench, "_observations", with_a_new_shape)
    actions, shared, *unified = measured(tmp_path, "--modes", "actions", "shared", "unified")
    assert shared.compiles_after_warmup > 0
    assert [row.compiles_after_warmup for row in (actions, *unified)] == [0] * 3


def test_modes_that_differ_in_their_actions_are_flagged_and_fail_the_run(tmp_path, capsys, monkeypatch):
    """`shared` gets the observations of the other modes' next queries."""
    ordinary = Bench._observations

    def ahead(self, policy):
        return itertools.islice(ordinary(self, policy), policy.engine.mode is Mode.SHARED, None)

    monkeypatch.setattr(Bench, "_observations", ahead)
    rows = measured(tmp_path, "--modes", "actions", "shared", "unified", code=1)
    assert [row.actions_equal for row in rows] == [True, False, True, True]
    assert "gave other actions" in capsys.readouterr().out


@pytest.mark.slow
def test_text_latencies_do_not_count_the_runs_of_other_configurations():
    workload = Workload(denoise_steps=1, text_tokens=6, queries=12)
    unified = BenchConfiguration(mode=Mode.UNIFIED, tokens_per_frame=1)
    with Bench(MODEL).prepare(workload, [unified]) as (runner,):
        before = runner.run(8)
        time.sleep(1 + 2e-3 * sum(query.frame_ms for query in before))
        after = runner.run(4)
    ran_ms = sum(query.frame_ms for query in [*before, *after])
    first, last = (
        [ms for query in after for ms in getattr(query, f"{of}_ms")] for of in ("first_token", "request")
    )
    assert len(first) == len(last) == 4
    assert all(0 < a < b <= ran_ms for a, b in zip(first, last, strict=True))
    assert len({query.actions_sha256 for query in after}) == 4, "each query has other actions"


@pytest.mark.slow
def test_robots_and_bursts_are_served_and_resuming_skips_existing_rows(tmp_path, capsys):
    asked = ("--robots", "2", "--arrivals", "burst:2:2", "--modes", "isolated", "unified")
    first = measured(tmp_path, *asked)
    submitted = [row.requests_submitted for row in first]
    assert submitted == [16] * 3, "two robots, two texts in two of three queries"
    capsys.readouterr()
    assert measured(tmp_path, *asked, "--resume") == first
    assert "Skipping 3 configurations that the file already has." in capsys.readouterr().out
    older = tmp_path / "older.jsonl"
    RowFile(older).append(dataclasses.replace(row, commit="0123456789abcdef") for row in first)
    run_experiment(options(older, *asked, "--resume"), MODEL)
    assert "of other code (0123456789)" in capsys.readouterr().out


@pytest.mark.slow
def test_a_deadline_sets_the_tokens_per_frame(tmp_path):
    actions, hurried, leisurely = measured(
        tmp_path, "--modes", "actions", "unified", "--deadline-ms", "0.001", "60000"
    )
    assert actions.prefix_tokens == 4 * actions.cameras + 24
    assert (hurried.deadline_ms, hurried.decode_steps_per_frame) == (0.001, 1)
    assert (leisurely.deadline_ms, leisurely.decode_steps_per_frame) == (60000, 6)
    assert (hurried.deadline_missed_fraction, leisurely.deadline_missed_fraction) == (1, 0)
    assert hurried.frame_ms_predicted is not None


def test_ctrl_c_keeps_the_rows_that_are_there_and_says_so(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"

    def interrupt_when_there_is_a_row():
        while not (path.exists() and path.stat().st_size):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=interrupt_when_there_is_a_row)
    watcher.start()
    asked = options(path, "--modes", "isolated", "--arrivals", "every:1", "every:2", "every:3", "every:4")
    with pytest.raises(KeyboardInterrupt):
        run_experiment(asked, MODEL)
    watcher.join()
    assert 1 <= len(list(read_json_lines(path))) < 4
    assert "--resume" in capsys.readouterr().out


def test_random_weights_need_no_preset_file_and_one_bucket_is_compiled():
    model = find_model("pi05_libero", random_weights=True, dtype="float32")
    assert (model.weights_from, model.config.dtype, model.config.image_tokens) == ("random", "float32", 512)
    assert (model.config.prompt_buckets, model.bucket) == ((32,), 32)
    model = find_model("pi05_libero", random_weights=True, prompt_tokens=120)
    assert (model.config.dtype, model.config.prompt_buckets, model.bucket) == ("bfloat16", (128,), 128)


def test_the_multi_process_service_is_active_while_its_daemon_runs(tmp_path):
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    for content, active in {f"{os.getpid()}\n": True, str(ended.pid): False, "": False}.items():
        (tmp_path / "nvidia-cuda-mps-control.pid").write_text(content)
        assert mps_is_active({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}) == active
    assert not mps_is_active({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "elsewhere")})
