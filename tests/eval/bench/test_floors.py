"""Stages are held against their floors for real, on a policy of a few thousand parameters."""

import json

import pytest

from configs.errors import UsageError
from eval.bench.floors import report_floors
from eval.bench.options import read
from tests.eval.bench.small import SUBJECT, options


@pytest.mark.slow
def test_every_stage_is_held_against_its_floor(tmp_path, capsys):
    path = tmp_path / "roofline.json"
    assert report_floors(options(path), SUBJECT) == 0
    out = capsys.readouterr().out
    for stage in ("siglip", "prefill", "denoise", "guided denoise", "fork", "decode 1", "decode 6"):
        assert stage in out
    (record,) = json.loads(path.read_text())["rooflines"]
    assert all("measured_over_floor" in stage for stage in record["stages"])
    assert record["decode_growth"]["rows"] == [1, 6]
    assert record["decode_growth"]["value"] > 0
    assert "decode 6 takes" in out
    assert report_floors(options(path), SUBJECT) == 0, "a roofline may take the place of another"


@pytest.mark.parametrize(
    "content", ['{"mode": "unified"}\n{"mode": "shared"}\n', "[]", '{"mode": "unified"}\n']
)
def test_a_roofline_does_not_take_the_place_of_something_else(content, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    with pytest.raises(UsageError, match=r"rows\.jsonl.* else than a roofline"):
        report_floors(options(path), SUBJECT)
    assert path.read_text() == content


def test_peaks_that_nobody_has_published_are_refused(tmp_path):
    with pytest.raises(UsageError, match="--peaks measured"):
        report_floors(read(["--roofline", "--peaks", "published"]), SUBJECT)


def test_more_than_two_robots_cameras_are_refused():
    with pytest.raises(UsageError, match="cameras: 5"):
        report_floors(read(["--roofline", "--cameras", "5"]), SUBJECT)
