"""A benchmark's figures are kept with all that it takes to come by them again."""

import json

from benchmarks.record import record
from eval.records import provenance


def test_records_have_code_machine_and_command(tmp_path, capsys):
    path = tmp_path / "deep" / "figures.json"
    record({"figure": 7}, path)
    kept = json.loads(path.read_text())
    assert json.loads(capsys.readouterr().out) == kept
    assert kept["figure"] == 7
    assert {name: kept[name] for name in ("commit", "dirty")} == provenance.git_state()
    assert kept["hardware"]["cores"] >= 1
    assert kept["versions"]["jax"]
    assert kept["command"] == provenance.command()
