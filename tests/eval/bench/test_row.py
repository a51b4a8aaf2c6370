"""Rows survive their file, which finds them by configuration and machine; a profile is made of them."""

import dataclasses
import json
from pathlib import Path

import pytest

from configs.errors import UsageError
from configs.load import check, load
from configs.profile import ProfileConfig
from eval.bench import experiment
from eval.bench.row import RowFile
from eval.rollout.clock import LatencyModel
from oxygen.serving.requests import DecodeWork
from oxygen.serving.scheduler import Mode
from tests.eval.bench.conftest import HARDWARE, MODEL, WORKLOAD, options

_RECORDS = Path(__file__).parents[3] / "benchmarks/results"


@pytest.mark.parametrize("record", ["bench_small.jsonl", "two_cores/adapter.jsonl"])
def test_recorded_rows_are_read_and_written_again_as_they_are(record, tmp_path):
    text = (_RECORDS / record).read_text(encoding="utf-8")
    (tmp_path / "rows.jsonl").write_text(text, encoding="utf-8")
    for line, row in zip(text.splitlines(), RowFile(tmp_path / "rows.jsonl").rows, strict=True):
        fields = json.loads(line)
        assert {name: getattr(row, name) for name in fields} == fields


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
    return check(ProfileConfig, experiment.profile(name, rows), source=name)


def test_a_saved_profile_holds_the_medians_of_rows(rows, tmp_path):
    experiment.save_profile(tmp_path / "abacus.yaml", rows)
    found = load(ProfileConfig, str(tmp_path / "abacus.yaml"))
    assert (found.host.ms, found.prefill.ms, found.denoise.ms, found.fork.ms) == (7, 100, 20, 4)
    assert found.guided_denoise.ms == 45
    assert {batch: time.ms for batch, time in found.decode.items()} == {1: 6, 30: 15}
    assert (found.device, found.model, found.dtype) == ("an abacus, 2 cores", "small", "float32")
    assert found.parallel is None
    for said in ("python -m eval.bench", "no commit", "jax 0.0", "load average 0.1"):
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
    rows, path = tmp_path / "rows.jsonl", tmp_path / "mine.yaml"
    asked = options(rows, "--modes", "isolated", "unified", "parallel", "--save-profile", str(path))
    assert experiment.run_experiment(asked, MODEL) == 0
    assert f"Profile: {path}" in capsys.readouterr().out
    found = load(ProfileConfig, str(path))
    assert sorted(found.decode) == [1, 2, 6]
    assert found.parallel is not None
    isolated = RowFile(rows).rows[0]
    text = DecodeWork(prefills=1, forks=1, steps=6, batch=1)
    # Host time is never negative, even if the stages alone take longer than the actions.
    action_ms = max(isolated.action_ms_p50, isolated.stage_ms["prefill"] + isolated.stage_ms["denoise"])
    assert LatencyModel(found, "isolated").action_ms == pytest.approx(action_ms, rel=0.1)
    # The stages by themselves are most of a frame.
    assert 0.2 < LatencyModel(found, "isolated").busy_ms([text]) / isolated.frame_ms_p50 < 2
