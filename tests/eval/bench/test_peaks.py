"""Peaks are published ones where the device is known, and measured ones elsewhere."""

import jax
import pytest

from configs.errors import UsageError
from eval.bench import peaks


@pytest.mark.parametrize(
    ("device", "tera", "giga"),
    [
        ("NVIDIA H200", 989.4, 4800),
        ("NVIDIA H100 80GB HBM3", 989.4, 3350),
        ("NVIDIA H100 PCIe", 756, 2000),
        ("NVIDIA A100-SXM4-80GB", 312, 2039),
        ("NVIDIA GeForce RTX 4090", 165.2, 1008),
    ],
)
def test_well_known_gpus_have_published_peaks(device, tera, giga):
    found = peaks.published(device, "bfloat16")
    assert (found.flops_per_s, found.bytes_per_s) == (1e12 * tera, 1e9 * giga)


def test_other_devices_and_float32_have_no_published_peaks():
    assert peaks.published("cpu", "bfloat16") is None
    assert peaks.published("NVIDIA H200", "float32") is None
    with pytest.raises(UsageError, match=r"'cpu'.*--peaks measured"):
        peaks.find_peaks("published", "float32")


@pytest.mark.slow
def test_the_measured_peaks_of_this_machine_are_within_reason():
    assert jax.devices()[0].platform == "cpu"
    found = peaks.find_peaks("auto", "float32")
    assert found.source.startswith("measured")
    assert 1e8 < found.flops_per_s < 1e14
    assert 1e8 < found.bytes_per_s < 1e13
