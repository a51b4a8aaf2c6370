"""A row is complete, its fields follow their definitions, and it survives the file."""

import dataclasses
import json

import jsonschema
import pytest
from pydantic import TypeAdapter

from configs.errors import UsageError
from eval.bench.row import Row, RowFile
from tests.eval.bench.conftest import BATCHES, PROVENANCE, WORKLOAD, measured

SCHEMA = TypeAdapter(Row).json_schema()
REQUIRED = """
    mode denoise_steps text_tokens tokens_per_frame robots arrivals
    action_ms_p50 action_ms_p95 action_ms_p99 frame_ms_p50 frame_ms_p95 frame_ms_p99
    chunks_per_s actions_per_s tokens_per_s first_token_ms_p50 request_ms_p50 requests_finished
    requests_dropped peak_memory_bytes peak_memory_of compiles_after_warmup cameras dtype policy device
    actions_equal multi_process_service decode_growth needed_memory_bytes took_s versions
    speedup_over_isolated speedup_ci95 predicted_speedup attained_fraction
    predicted_over_frame
"""


def test_rows_match_the_schema_which_has_all_required_fields(made_up):
    schema = {**SCHEMA, "additionalProperties": False}
    assert set(REQUIRED.split()) <= set(schema["required"])
    for row in made_up():
        jsonschema.validate(json.loads(json.dumps(dataclasses.asdict(row))), schema)


def test_speedups_are_paired_so_that_drift_cancels(made_up):
    actions, isolated, unified, parallel = made_up()
    assert isolated.speedup_over_isolated == 1
    assert unified.speedup_over_isolated == pytest.approx(350 / 140)
    assert unified.speedup_ci95 == pytest.approx((350 / 140, 350 / 140))
    assert unified.predicted_speedup == pytest.approx((2 * 100 + 30 + 30 * 4) / (100 + 30 + 10))
    assert unified.attained_fraction == pytest.approx(1)
    assert unified.frame_ms_predicted == pytest.approx(1.5 * 140)
    assert parallel.speedup_over_isolated == pytest.approx(350 / 300)
    assert parallel.predicted_speedup is None
    assert actions.predicted_speedup == pytest.approx(350 / 130)
    assert unified.action_over_actions == pytest.approx(140 / 130)


def test_rates_are_totals_over_total_time(made_up):
    *_, unified, _ = made_up()
    seconds = 1e-3 * 4 * (1.0 + 2.0 + 1.5) * 140
    assert unified.chunks_per_s == pytest.approx(12 / seconds)
    assert unified.actions_per_s == pytest.approx(10 * 12 / seconds)
    assert unified.tokens_per_s == pytest.approx(12 * 30 / seconds)
    assert (unified.requests_finished, unified.requests_dropped) == (12, 0)
    assert unified.frame_ms_p50 == pytest.approx(1.5 * 140)
    assert unified.decode_batch == 30
    assert unified.stage_ms == {
        "prefill": 150,
        "denoise": 45,
        "guided_denoise": 105,
        "fork": 7.5,
        "decode_30": 15,
    }
    assert unified.decode_growth == pytest.approx(10 / 4)
    assert unified.decode_growth_ci95 == pytest.approx((10 / 4, 10 / 4))


def test_a_configuration_with_other_actions_is_marked(made_up):
    assert [row.actions_equal for row in made_up()] == [True] * 4
    same, other = ["a"] * 46, ["a"] * 45 + ["b"]
    unified, parallel = list(BATCHES)[2:]
    answered = {**dict.fromkeys(BATCHES, same), unified: other}
    rows = made_up(actions=answered)
    assert [row.actions_equal for row in rows] == [True, True, False, True]
    assert len({row.actions_sha256 for row in rows}) == 2
    without_actions = {configuration: answered[configuration] for configuration in (parallel, unified)}
    assert [row.actions_equal for row in made_up(actions=without_actions, runs=runs_of(without_actions))] == [
        True,
        False,
    ]
    alone = {unified: other}
    assert [row.actions_equal for row in made_up(actions=alone, runs=runs_of(alone))] == [None]


def runs_of(configurations):
    runs = measured().runs
    return {configuration: runs[configuration] for configuration in configurations}


def test_nothing_is_predicted_with_too_few_slots_and_rows(made_up):
    few = made_up(dataclasses.replace(WORKLOAD, slots=3, rows=3))
    _, isolated, unified, _ = few
    assert (isolated.slots, isolated.rows) == (3, 3)
    assert isolated.predicted_speedup == 1, "one text at a time has room enough"
    assert unified.speedup_over_isolated == pytest.approx(350 / 140)
    assert (unified.frame_ms_predicted, unified.predicted_speedup, unified.attained_fraction) == (None,) * 3


def test_needed_memory_is_of_the_largest_program_of_each_process(made_up):
    *_, unified, parallel = made_up()
    assert unified.needed_memory_bytes == 400
    assert parallel.needed_memory_bytes == 400 + 300
    assert unified.program_bytes["fork"] == 350


def test_the_stage_share_shows_overhead_common_to_all_modes(made_up):
    """Frames twice as long in every mode attain the same speed-up, but stages account for half of them."""
    slow = {
        configuration: [[dataclasses.replace(one, frame_ms=2 * one.frame_ms) for one in run] for run in runs]
        for configuration, runs in measured().runs.items()
    }
    *_, unified, parallel = made_up()
    assert unified.predicted_over_frame == pytest.approx(1)
    *_, unified, parallel = made_up(runs=slow)
    assert unified.attained_fraction == pytest.approx(1)
    assert unified.predicted_over_frame == pytest.approx(0.5)
    assert unified.predicted_over_frame_ci95 == pytest.approx((0.5, 0.5))
    assert parallel.predicted_over_frame is None


def test_only_parallel_reports_the_multi_process_service(made_up):
    assert [row.multi_process_service for row in made_up()] == [None, None, None, False]


def test_mode_actions_has_no_tokens_and_no_texts(made_up):
    actions, *_ = made_up()
    assert (actions.tokens_per_s, actions.request_ms_p50, actions.decode_batch) == (0, None, None)


def test_rows_survive_the_file(made_up, tmp_path):
    path = tmp_path / "deep" / "rows.jsonl"
    RowFile(path).append(made_up())
    assert RowFile(path).rows == made_up()


def test_a_file_finds_the_latest_row_of_a_configuration(made_up, tmp_path):
    file, rows = RowFile(tmp_path / "rows.jsonl"), made_up()
    identities = [row.identity for row in rows]
    file.append(rows[:2])
    assert file.has(identities[:2])
    assert not file.has(identities)
    file.append([dataclasses.replace(row, commit="newer") for row in rows])
    assert len(file.rows) == 6
    assert [row.commit for row in file.of(identities)] == ["newer"] * 4
    assert file.of([identities[2]]) == [file.rows[4]]
    other = made_up(dataclasses.replace(WORKLOAD, text_tokens=31))
    assert not file.has([other[0].identity])


@pytest.mark.parametrize(
    "other",
    [
        {"versions": {"python": "3.12", "mujoco": None, "jax": "0.1"}},
        {"hardware": {**PROVENANCE["hardware"], "processor": "a slide rule"}},
        {"hardware": {**PROVENANCE["hardware"], "cores": 64}},
        {"cameras": 1},
    ],
)
def test_rows_of_another_machine_jax_or_number_of_cameras_have_another_identity(other, made_up, tmp_path):
    file, row = RowFile(tmp_path / "rows.jsonl"), made_up()[0]
    file.append([dataclasses.replace(row, **other)])
    assert not file.has([row.identity])
    file.append([dataclasses.replace(row, commit="another")])
    assert file.has([row.identity]), "the commit is not part of the identity"


@pytest.mark.parametrize("content", ['{"mode": "unified"}\n', "[]\n", "no rows\n"])
def test_a_file_without_rows_is_refused(content, tmp_path):
    path = tmp_path / "other.jsonl"
    path.write_text(content)
    with pytest.raises(UsageError, match=r"other\.jsonl.*--output"):
        RowFile(path)


def test_rows_of_another_version_are_refused(made_up, tmp_path):
    row = dataclasses.asdict(made_up()[0])
    del row["actions_equal"]
    path = tmp_path / "old.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(UsageError, match="as this version writes them"):
        RowFile(path)


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write"):
        RowFile(tmp_path / "file" / "rows.jsonl")
