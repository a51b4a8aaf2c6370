"""`python -m benchmarks.loading`: time and host memory of loading a checkpoint, each way in its own process.

Writes the checkpoint first, in a scratch folder: random float32 parameters, one chunk per array, as Orbax
does on one process. `--size pi05_libero` has π0.5's 3.35 B parameters, and takes 20 GB of disk and 10 GB of
memory; it skips Orbax itself, which would take 15 GB.
"""

import argparse
import concurrent.futures
import dataclasses
import importlib
import importlib.util
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.record import record
from oxygen.model import params
from oxygen.model.config import PI05_LIBERO, PRESETS, Pi05Config

RESULTS = Path(__file__).parent / "results"
DTYPE = "bfloat16"

MID = dataclasses.replace(
    PI05_LIBERO,
    name="mid",
    trunk=dataclasses.replace(PI05_LIBERO.trunk, width=1024, depth=9, mlp_dim=8192),
    expert=dataclasses.replace(PI05_LIBERO.expert, width=512, depth=9, mlp_dim=2048),
    siglip=dataclasses.replace(PI05_LIBERO.siglip, width=576, num_heads=8, mlp_dim=2152, depth=14),
    vocab_size=65_536,
)
"""A sixth of π0.5 with similar proportions: the largest stack of layers is a third of all parameters."""

_BY_ORBAX = "orbax float32 to bfloat16, by Orbax itself"

SIZES: Mapping[str, Pi05Config] = {"mid": MID, **PRESETS}


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        result = _compare(options.size, Path(scratch))
    record("loading", result, options.output or RESULTS / f"loading_{options.size}.json")


def _compare(size: str, scratch: Path) -> dict[str, Any]:
    config = SIZES[size]
    count = sum(int(np.prod(shape)) for shape in params.shapes(config).values())
    ours, published = scratch / "ours.safetensors", scratch / "published"
    _apart(_write, published, config)
    _apart(_convert, published, ours, config)
    ways = [way for way in _ways(published, ours, config) if way != _BY_ORBAX or config != PI05_LIBERO]
    measured = {way: _apart(_measure, way, published, ours, config) for way in ways}
    for figures in measured.values():
        figures["peak_over_bf16_size"] = round(figures["peak_bytes"] / (2 * count), 3)
    return {
        "size": size,
        "parameters": count,
        "bf16_bytes": 2 * count,
        "loaded_to": DTYPE,
        "ways": measured,
        "page_cache": "warm",
        "codecs": {name: version(name) for name in ("ml_dtypes", "orbax-checkpoint", "tensorstore")},
        "streams_large_chunks": importlib.util.find_spec("zstandard") is not None,
    }


def _apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in its own process."""
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def _measure(way: str, published: Path, ours: Path, config: Pi05Config) -> dict[str, Any]:
    """Seconds, and peak resident memory of this process above that after imports."""
    for library in ("orbax.checkpoint", "tensorstore"):
        importlib.import_module(library)
    load = _ways(published, ours, config)[way]
    jnp.zeros(1).block_until_ready()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = _memory("VmRSS")
    start = time.perf_counter()
    tree = load()
    seconds = time.perf_counter() - start
    assert all(leaf.dtype == jnp.dtype(DTYPE) for leaf in jax.tree.leaves(tree))
    return {
        "seconds": round(seconds, 2),
        "peak_bytes": _memory("VmHWM") - before,
        "peak_bytes_with_the_interpreter": _memory("VmHWM"),
    }


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _ways(published: Path, ours: Path, config: Pi05Config) -> Mapping[str, Callable[[], Any]]:
    """Functions that load a checkpoint in Orbax's or our own format, or random weights."""
    from oxygen.weights import load
    from oxygen.weights.weights_source import load_weights

    def by_orbax() -> Any:
        import orbax.checkpoint as ocp

        with ocp.PyTreeCheckpointer() as checkpointer:
            folder = (published / "params").resolve()
            item = {"params": checkpointer.metadata(folder).item_metadata["params"]}
            wanted = ocp.ArrayRestoreArgs(restore_type=np.ndarray, dtype=jnp.dtype(DTYPE))
            restore_args = jax.tree.map(lambda _: wanted, item)
            return checkpointer.restore(folder, ocp.args.PyTreeRestore(item=item, restore_args=restore_args))

    def loaded(source: Path, *, on_device: bool = False) -> Any:
        return load(source, config, dtype=DTYPE, device=jax.devices()[0] if on_device else None)

    served = dataclasses.replace(config, dtype=DTYPE)
    return {
        "orbax float32 to bfloat16": lambda: loaded(published),
        "orbax float32 to bfloat16, onto the device": lambda: loaded(published, on_device=True),
        _BY_ORBAX: by_orbax,
        "safetensors bfloat16": lambda: loaded(ours),
        "safetensors bfloat16, onto the device": lambda: loaded(ours, on_device=True),
        "safetensors bfloat16, prepared for serving": lambda: load_weights(lambda: loaded(ours), served),
        "random weights, prepared for serving": lambda: load_weights(0, served),
    }


def _write(folder: Path, config: Pi05Config) -> None:
    """Write a checkpoint in Orbax's layout, one array in memory at a time."""
    import tensorstore

    inner = folder / "params"
    inner.mkdir(parents=True)
    leaves = {}
    for path, shape in params.shapes(config).items():
        keys = ("params", *path.split("/"), "value")
        spec = {
            "driver": "zarr",
            "kvstore": {
                "driver": "ocdbt",
                "base": {"driver": "file", "path": f"{inner}/"},
                "path": f"{'.'.join(keys)}/",
            },
            "metadata": {"compressor": {"id": "zstd", "level": 1}, "chunks": shape},
        }
        store = tensorstore.open(spec, create=True, dtype=tensorstore.float32, shape=shape).result()
        array = params.standard_normal(0, path, shape)
        array *= np.float32(0.02)
        store.write(array, can_reference_source_data_indefinitely=True).result()
        leaves[str(keys)] = {
            "key_metadata": [{"key": key, "key_type": 2} for key in keys],
            "value_metadata": {"value_type": "np.ndarray", "skip_deserialize": False},
        }
    document = {"tree_metadata": leaves, "use_ocdbt": True, "use_zarr3": False}
    (inner / "_METADATA").write_text(json.dumps({**document, "store_array_data_equal_to_fill_value": True}))


def _convert(source: Path, target: Path, config: Pi05Config) -> None:
    from oxygen.weights.checkpoint import Stored
    from oxygen.weights.loading import open_checkpoint
    from oxygen.weights.safetensors import write_safetensors

    checkpoint = open_checkpoint(source)
    tensors = {path: Stored(shape=shape, dtype=DTYPE) for path, shape in params.shapes(config).items()}
    write_safetensors(target, tensors, checkpoint.read, {})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loading", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="mid")
    parser.add_argument("--scratch", type=Path, help="folder for temporary checkpoints")
    parser.add_argument("--output", type=Path, help="JSON; by default in benchmarks/results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
