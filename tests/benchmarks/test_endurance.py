"""Energy is the integral of power over time; records have all that it takes to come by them again."""

import json
import sys

import pytest

from benchmarks import endurance
from benchmarks.endurance import PowerMeter
from benchmarks.record import record
from eval.records import provenance


def test_energy_is_the_integral_of_power_by_the_trapezoidal_rule():
    seconds, watts = iter([0.0, 1.0, 3.0]), iter([100.0, 200.0, 400.0])
    meter = PowerMeter(lambda: next(watts), clock=lambda: next(seconds))
    for _ in range(3):
        meter.sample()
    assert meter.joules == pytest.approx(150 + 600)


def test_without_the_drivers_package_the_reason_is_recorded(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert endurance.open_power() == (None, "not measured: it needs the package nvidia-ml-py")


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
