"""OpenBLAS uses the reference kernels, whatever it picks by default."""

import subprocess
import sys
from pathlib import Path

import pytest

from sim_envs import blas

_DIGEST = """
import hashlib, sys
import numpy as np, scipy.linalg
from sim_envs.blas import pin_kernels
if sys.argv[1] == "pinned":
    assert pin_kernels()
random = np.random.default_rng(0)
matrices = random.standard_normal((200, 7, 7))
results = [np.dot(scipy.linalg.inv(matrix), random.standard_normal((7, 40))) for matrix in matrices]
print(hashlib.sha256(np.array(results).tobytes()).hexdigest())
"""

_THREADS = """
from sim_envs import blas
for library in blas._openblas():
    library.set_num_threads(2)
blas.use_one_thread()
print(*(library.get_num_threads() for library in blas._openblas()))
"""


def printed(code: str, *arguments: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=Path(__file__).resolve().parents[2],
        env={"PATH": "", **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.skipif(not blas._has_avx512(), reason="this CPU has no AVX-512")
@pytest.mark.parametrize("start", [pytest.param("Haswell", marks=pytest.mark.slow), "Nehalem"])
def test_products_and_inverses_do_not_depend_on_the_kernels_a_process_starts_with(start):
    reference = printed(_DIGEST, "default", OPENBLAS_CORETYPE=blas.KERNELS)
    assert printed(_DIGEST, "default", OPENBLAS_CORETYPE=start) != reference
    assert printed(_DIGEST, "pinned", OPENBLAS_CORETYPE=start) == reference


def test_one_thread():
    assert set(printed(_THREADS).split()) == {"1"}
