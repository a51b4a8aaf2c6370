"""Stages are compared with their floors, on a policy of a few thousand parameters."""

import json

import pytest

from configs.errors import UsageError
from eval.bench.options import read
from eval.bench.roofline import report_roofline
from tests.eval.bench.conftest import MODEL, options


@pytest.mark.slow
def test_every_stage_is_compared_with_its_floor(tmp_path, capsys):
    path = tmp_path / "roofline.json"
    assert report_roofline(options(path), MODEL) == 0
    out = capsys.readouterr().out
    for stage in ("siglip", "prefill", "denoise", "guided denoise", "fork", "decode 1", "decode 6"):
        assert stage in out
    (record,) = json.loads(path.read_text())["rooflines"]
    assert all("measured_over_floor" in stage for stage in record["stages"])
    assert record["decode_growth"]["rows"] == [1, 6]
    assert record["decode_growth"]["value"] > 0
    assert "decode 6 takes" in out
    assert report_roofline(options(path), MODEL) == 0, "a roofline may replace another"


@pytest.mark.parametrize(
    "content", ['{"mode": "unified"}\n{"mode": "shared"}\n', "[]", '{"mode": "unified"}\n']
)
def test_a_roofline_does_not_replace_another_kind_of_file(content, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    with pytest.raises(UsageError, match=r"rows\.jsonl.* is not a roofline"):
        report_roofline(options(path), MODEL)
    assert path.read_text() == content


def test_more_than_two_robots_cameras_are_refused():
    with pytest.raises(UsageError, match="cameras: 5"):
        report_roofline(read(["--roofline", "--cameras", "5"]), MODEL)
