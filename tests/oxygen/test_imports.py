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


def _import_without(absent: str, modules: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _PROGRAM, absent, " ".join(modules)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


_NEEDS_PYDANTIC = ("oxygen.presets", "oxygen.serve.__main__", "oxygen.serve.serving", "oxygen.training")
"""What finds policies by name, and training, whose options are a pydantic model."""


def test_every_module_imports_with_jax_flax_and_numpy_alone():
    modules = [module.name for module in pkgutil.walk_packages(oxygen.__path__, "oxygen.")]
    modules = [name for name in modules if not name.startswith(_NEEDS_PYDANTIC)]
    assert "oxygen.policy.vector_policy" in modules
    _import_without(_ABSENT, modules)


def test_clients_of_a_policy_server_and_the_scheduler_need_no_jax():
    clients = "robots.conventions robots.images serve.msgpack_numpy policy.reply"
    scheduling = "serving.scheduler serving.language serving.requests"
    _import_without("jax flax", [f"oxygen.{name}" for name in f"{clients} {scheduling}".split()])
