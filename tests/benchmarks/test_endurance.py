"""Without a meter no energy is recorded; records have all that it takes to come by them again."""

import json
import sys

from benchmarks import endurance
from benchmarks.record import record
from eval.records import provenance


def test_without_the_drivers_package_the_reason_is_recorded(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert endurance.open_energy() == (None, "not measured: it needs the package nvidia-ml-py")


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
