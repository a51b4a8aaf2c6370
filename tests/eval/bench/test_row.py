"""Rows survive their file, which finds them by configuration and machine; recorded rows stay readable."""

import dataclasses
import json
from pathlib import Path

import pytest

from configs.errors import UsageError
from eval.bench.row import RowFile
from tests.eval.bench.conftest import HARDWARE, WORKLOAD

_RECORDS = Path(__file__).parents[3] / "benchmarks/results"


def test_rows_survive_the_file(made_up, tmp_path):
    path = tmp_path / "deep" / "rows.jsonl"
    RowFile(path).append(made_up())
    assert RowFile(path).rows == made_up()


@pytest.mark.parametrize("record", ["bench_small.jsonl", "two_cores/adapter.jsonl"])
def test_recorded_rows_are_read_and_written_again_as_they_are(record, tmp_path):
    text = (_RECORDS / record).read_text(encoding="utf-8")
    (tmp_path / "rows.jsonl").write_text(text, encoding="utf-8")
    for line, row in zip(text.splitlines(), RowFile(tmp_path / "rows.jsonl").rows, strict=True):
        fields = json.loads(line)
        assert {name: getattr(row, name) for name in fields} == fields


def test_a_file_finds_the_latest_row_of_a_configuration(made_up, tmp_path):
    file, rows = RowFile(tmp_path / "rows.jsonl"), made_up()
    identities = [row.identity for row in rows]
    file.append(rows[:2])
    assert file.of(identities) == rows[:2]
    file.append([dataclasses.replace(row, commit="newer") for row in rows])
    assert [row.commit for row in file.of(identities)] == ["newer"] * 4
    assert file.of([identities[2]]) == [file.rows[4]]
    assert not file.of([made_up(dataclasses.replace(WORKLOAD, text_tokens=31))[0].identity])


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
