"""Costs equal those computed by hand for π0.5 and XLA's counts; stages are compared with their floors."""

import dataclasses
import functools
import io
import json

import jax
import jax.numpy as jnp
import pytest
from rich.console import Console

from benchmarks import roofline
from benchmarks.roofline import Cost, Peaks, print_roofline, report_roofline
from contracts.errors import UsageError
from oxygen.model import pi05
from oxygen.model.config import PI05_LIBERO, TINY
from oxygen.model.params import random_params, shapes
from oxygen.serving import runner
from oxygen.serving.runner import ProgramSizes, Runner
from tests.eval.bench.conftest import MODEL

RTX_4090 = Peaks(flops_per_s=165.2e12, bytes_per_s=1008e9, source="published")
H200 = Peaks(flops_per_s=790e12, bytes_per_s=4.3e12, source="what one was seen to do")
PREFIX = 712


@pytest.mark.parametrize(
    ("cost", "rtx_4090", "h200"),
    [
        (roofline.siglip(PI05_LIBERO, images=2), 2.67, 0.56),
        (roofline.trunk_prefill(PI05_LIBERO, tokens=PREFIX, robots=1), 16.6, 3.47),
        (roofline.denoise(PI05_LIBERO, prefix=PREFIX, robots=1), 6.3, 1.48),
        (roofline.decode(PI05_LIBERO, context=PREFIX, rows=1), 5.0, 1.17),
        (roofline.decode(PI05_LIBERO, context=PREFIX, rows=30), 5.4, 1.26),
    ],
    ids=["siglip", "prefill", "denoise", "decode 1", "decode 30"],
)
def test_the_floors_of_the_published_size_are_those_worked_out_by_hand(cost, rtx_4090, h200):
    assert RTX_4090.floor_ms(cost) == pytest.approx(rtx_4090, rel=0.01)
    assert H200.floor_ms(cost) == pytest.approx(h200, rel=0.01)
    device = Peaks(flops_per_s=1e9, bytes_per_s=1e6, source="")
    assert device.floor_ms(Cost(flops=2e9, bytes=1e6)) == pytest.approx(2000)
    assert device.floor_ms(Cost(flops=2e9, bytes=3e6)) == pytest.approx(3000)


SIZES = ProgramSizes(robots=2, slots=4, rows=(1,), forks=(1,), suffix=5, limit=8, guided=True)
"""One text: texts are attended to in a loop, and XLA counts the body of a loop once."""


@pytest.fixture(scope="module")
def programs():
    """The programs of `tiny` with one Euler step and one layer of the tower, which are loops too."""
    config = dataclasses.replace(TINY, denoise_steps=1, siglip=dataclasses.replace(TINY.siglip, depth=1))
    weights = pi05.prepare(random_params(config, 0), config)
    served = Runner(config, weights, SIZES)
    tower = jax.jit(functools.partial(_tower, config)).lower(weights, jnp.asarray(served.blank(32).images))
    return config, served.programs, tower.compile()


def _tower(config, weights, images):
    flat = images.reshape(-1, *images.shape[2:])
    return runner.pi05.tower(config).apply({"params": weights.tower}, flat)


def counted_flops(program) -> float:
    return program.cost_analysis()["flops"]


@pytest.mark.slow
def test_operations_are_those_that_xla_counts(programs):
    """XLA counts norms, softmax and the like too: hence more, by little."""
    config, compiled, tower = programs
    prefix = config.image_tokens + 32
    siglip = roofline.siglip(config, images=4)
    trunk = roofline.trunk_prefill(config, tokens=prefix, robots=2)
    slot = prefix + SIZES.suffix + SIZES.limit
    for ours, theirs in [
        (siglip, counted_flops(tower)),
        (siglip + trunk, counted_flops(compiled.prefill[32])),
        (roofline.denoise(config, prefix=prefix, robots=2), counted_flops(compiled.denoise[32, False])),
        (roofline.decode(config, context=slot, rows=1), counted_flops(compiled.decode[1])),
        (roofline.fork(config, prefix=prefix, suffix=4, requests=1), counted_flops(compiled.fork[32, 1])),
    ]:
        assert 1 < theirs / ours.flops < 1.07


@pytest.mark.slow
def test_xla_adds_unused_gradients_of_the_prefix_to_guidance(programs):
    """Of keys and values it works out all, and keeps the actions' own: as many products as attention has."""
    config, compiled, _ = programs
    prefix = config.image_tokens + 32
    expert, queries = config.expert, 2 * config.horizon
    unwanted = 4 * queries * prefix * expert.num_heads * expert.head_dim * expert.depth
    ours = roofline.stage_costs(config, SIZES, prompt=32)["guided denoise"].flops + unwanted
    assert 1 < counted_flops(compiled.denoise[32, True]) / ours < 1.1


def test_bytes_count_every_weight_once():
    """The matrices' sizes, summed up from the parameters themselves."""
    sizes = {path: functools.reduce(lambda a, b: a * b, shape) for path, shape in shapes(TINY).items()}

    def weights(*parts):
        return sum(
            size
            for path, size in sizes.items()
            if any(part in path for part in parts) and not path.endswith(("scale", "bias"))
        )

    trunk = weights("attn/q_einsum/", "attn/kv_einsum/", "attn/attn_vec_einsum/", "mlp/")
    assert roofline.decode(TINY, context=0, rows=1).bytes == 4 * (trunk + weights("input_embedding"))
    tower_weights = weights("PaliGemma/img/") - weights("pos_embedding")
    assert roofline.siglip(TINY, images=1).bytes == 4 * tower_weights


def test_well_known_gpus_have_published_peaks_and_others_and_float32_none():
    for device, tera, giga in (("NVIDIA H100 80GB HBM3", 989.4, 3350), ("NVIDIA H100 PCIe", 756, 2000)):
        found = roofline.published(device, "bfloat16")
        assert (found.flops_per_s, found.bytes_per_s) == (1e12 * tera, 1e9 * giga)
    assert roofline.published("cpu", "bfloat16") is None
    assert roofline.published("NVIDIA H200", "float32") is None
    with pytest.raises(UsageError, match=r"'cpu'.*--peaks measured"):
        roofline.find_peaks("published", "float32")


@pytest.mark.slow
def test_every_stage_is_compared_with_its_floor_for_each_number_of_robots(tmp_path, capsys):
    path = tmp_path / "roofline.json"
    given = f"--robots 1 2 --text-tokens 6 --repetitions 2 --output {path}"
    report_roofline(roofline.read(given.split()), MODEL)
    out = capsys.readouterr().out
    record = json.loads(path.read_text())
    assert [one["robots"] for one in record["rooflines"]] == [1, 2]
    for one in record["rooflines"]:
        assert all(stage["name"] in out and "measured_over_floor" in stage for stage in one["stages"])
        assert [stage["name"] for stage in one["stages"] if stage["measured_ms"] is None] == ["trunk"]
    assert record["peaks"]["source"].startswith("measured")
    assert 1e8 < record["peaks"]["flops_per_s"] < 1e14
    assert 1e8 < record["peaks"]["bytes_per_s"] < 1e13


def test_a_roofline_shows_measured_by_minimum_time():
    cost = {"flops": 2e9, "bytes": 1e6, "floor_ms": 2.0, "bound": "compute"}
    stages = [
        cost | {"name": "prefill", "measured_ms": 3.0, "measured_over_floor": 1.5},
        cost | {"name": "trunk", "measured_ms": None, "measured_over_floor": None},
    ]
    found = {"denoise_steps": 10, "text_tokens": 6, "robots": 1, "cameras": 2, "stages": stages}
    console = Console(file=io.StringIO(), width=110)
    print_roofline(found, Peaks(flops_per_s=1e12, bytes_per_s=1e9, source="a guess"), "tiny", console)
    text = console.file.getvalue()
    (prefill,) = (line.split() for line in text.splitlines() if "prefill" in line)
    assert prefill == ["prefill", "2.00", "1.0", "compute", "2.00", "3.00", "1.50"]
    assert "1 TFLOP/s, 1 GB/s; a guess" in text
    assert "tiny: 10 denoise steps, N = 6, 1 robot of 2 cameras" in text
