"""Energy is the integral of power over time."""

import sys

import pytest

from benchmarks import endurance
from benchmarks.endurance import PowerMeter


def test_energy_is_the_integral_of_power_by_the_trapezoidal_rule():
    seconds, watts = iter([0.0, 1.0, 3.0]), iter([100.0, 200.0, 400.0])
    meter = PowerMeter(lambda: next(watts), clock=lambda: next(seconds))
    for _ in range(3):
        meter.sample()
    assert meter.joules == pytest.approx(150 + 600)


def test_without_the_drivers_package_the_reason_is_recorded(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert endurance.open_power() == (None, "not measured: it needs the package nvidia-ml-py")
