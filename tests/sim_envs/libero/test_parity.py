"""The parity command replays recorded episodes; a difference in any array fails."""

import numpy as np
import pytest

from sim_envs.blas import pin_kernels
from sim_envs.libero import parity

EPISODE = "libero_object.2.1"


@pytest.fixture
def excerpt(golden, tmp_path):
    """Writes the first steps of a recorded episode, with changes to its arrays."""
    if not pin_kernels():
        pytest.skip("this CPU cannot run the kernels that the reference was made with (AVX-512)")

    def written(**changes):
        with np.load(golden / "libero_reference_rollouts.npz") as recorded:
            names = ("actions", "sim_state", "policy_state", "done", "language")
            arrays = {name: recorded[f"{EPISODE}.{name}"] for name in names}
            arrays |= {name: arrays[name][:5] for name in ("actions", "done")}
            arrays |= {name: arrays[name][:1] for name in ("sim_state", "policy_state")}
            arrays |= {name: change(arrays[name]) for name, change in changes.items()}
            named = {f"{EPISODE}.{name}": array for name, array in arrays.items()}
            np.savez(tmp_path / "excerpt.npz", meta=recorded["meta"], **named)
        return tmp_path / "excerpt.npz"

    return written


def test_each_array_has_a_line_and_one_that_differs_fails(excerpt, reference_assets, capsys):
    asked = ["--assets", str(reference_assets)]
    assert parity.main([str(excerpt()), *asked]) == 0
    assert capsys.readouterr().out.count(" ok\n") == 4
    changes = {"sim_state": lambda states: states + 1e-8, "language": lambda text: np.char.add(text, "!")}
    assert parity.main([str(excerpt(**changes)), *asked]) == 1
    failed = [line.split() for line in capsys.readouterr().out.splitlines() if line.endswith("FAIL")]
    assert [name for name, *_ in failed] == [f"{EPISODE}.sim_state", f"{EPISODE}.language"]
    assert float(failed[0][1]) == pytest.approx(1e-8, rel=1e-3)


def test_a_file_of_something_else_is_one_line(tmp_path, capsys):
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    assert parity.main([str(tmp_path / "other.npz"), "--assets", "standins"]) == 2
    assert "holds no reference episodes" in capsys.readouterr().err
