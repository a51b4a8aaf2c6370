"""Random options, presets, records and arrays: whatever is given, commands keep their rule."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from configs.collection import CollectConfig
from configs.errors import UsageError
from configs.reading import read_npz
from configs.sweep import SweepConfig
from configs.training import TrainConfig
from tests.attack.commands import call
from tests.attack.table import Option, options

OPTIONS = list(options())
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from([*CollectConfig.model_fields, *SweepConfig.model_fields, *TrainConfig.model_fields])
ARGUMENTS = st.text(st.characters(exclude_characters="\0"), max_size=30)
"""What an operating system passes on: anything but NUL."""

one_place = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@one_place
@given(option=st.sampled_from(OPTIONS), value=ARGUMENTS)
def test_any_value_of_any_option(option: Option, value: str, place: Path):
    assert not call(option.command, option.line(value), place).broken_rules()


@pytest.mark.slow
@one_place
@given(
    command=st.sampled_from(["eval.libero", "eval.sweep", "eval.collect", "eval.train"]),
    content=st.dictionaries(KEYS, VALUES, max_size=3) | VALUES,
)
def test_any_preset(command: str, content: object, place: Path):
    (place / "random.yaml").write_text(yaml.safe_dump(content), encoding="utf-8", errors="replace")
    arguments = ["--config", "random.yaml"] + (["--policy", "noop"] if command == "eval.libero" else [])
    assert not call(command, arguments, place).broken_rules()


@pytest.mark.slow
@one_place
@given(data=st.data())
def test_any_value_in_any_field_of_a_record(data: st.DataObject, place: Path):
    name = data.draw(st.sampled_from(["manifest.json", "episodes.jsonl"]))
    file = place / "runs/run_a" / name
    before = file.read_text()
    lines = before.splitlines() if name.endswith("l") else [before]
    record = json.loads(lines[0])
    record[data.draw(st.sampled_from(sorted(record)))] = data.draw(VALUES)
    file.write_text("\n".join([json.dumps(record), *lines[1:]]) + "\n")
    try:
        for command, arguments in {
            "eval.compare": ["runs/run_a", "runs/run_b"],
            "eval.leaderboard": ["runs"],
        }.items():
            assert not call(command, arguments, place).broken_rules()
    finally:
        file.write_text(before)


@given(data=st.data())
def test_any_bytes_of_an_npz(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory):
    stream = io.BytesIO()
    np.savez(stream, a=np.arange(6).reshape(2, 3), meta=np.array("{}"))
    content = bytearray(stream.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file = tmp_path_factory.mktemp("npz") / "damaged.npz"
    file.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        arrays = read_npz(file)
    except UsageError:
        return
    assert all(isinstance(array, np.ndarray) for array in arrays.values())


def test_an_array_that_claims_terabytes_is_refused_before_it_is_allocated(tmp_path):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}
    )
    file = tmp_path / "large.npz"
    np.savez(file, a=np.zeros(1))
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.npy", stream.getvalue())
    with pytest.raises(UsageError, match="claims 8000000000000 bytes"):
        read_npz(file)
