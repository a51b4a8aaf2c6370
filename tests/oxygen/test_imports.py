"""The policy needs jax, flax and numpy to be imported, and nothing of a simulator ever."""

import pkgutil
import subprocess
import sys

import oxygen

_ABSENT = (
    "mujoco robosuite libero gymnasium bddl imageio pydantic scipy "
    "sentencepiece PIL pyarrow jaxtyping beartype hypothesis "
    "fsspec aiohttp zstandard google_crc32c safetensors"
)
_PROGRAM = """
import importlib, sys, warnings
for name in sys.argv[1].split():
    sys.modules[name] = None  # what Python makes of a module that cannot be imported
for name in sys.argv[2].split():
    importlib.import_module(name)
"""


def test_every_module_imports_with_jax_flax_and_numpy_alone():
    modules = [module.name for module in pkgutil.walk_packages(oxygen.__path__, "oxygen.")]
    assert "oxygen.policy.policy" in modules
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _PROGRAM, _ABSENT, " ".join(modules)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
