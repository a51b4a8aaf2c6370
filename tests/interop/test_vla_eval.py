"""vla-eval's own collector agrees with the exported aggregate.

Tried with vla-eval 0.8.0, which is installed elsewhere: OXYGEN_VLA_EVAL_PYTHON is its Python.
"""

import os
import subprocess
from pathlib import Path

import pytest

from eval.report.export import FORMATS
from tests.eval.factory import RunBuilder

PYTHON = os.environ.get("OXYGEN_VLA_EVAL_PYTHON")


@pytest.mark.slow
@pytest.mark.skipif(PYTHON is None, reason="set OXYGEN_VLA_EVAL_PYTHON to a Python with vla-eval 0.8")
def test_its_collector_makes_the_exported_aggregate_of_the_exported_episodes(tmp_path):
    run = RunBuilder.at(tmp_path / "run").add_all("ssti").add_all("ste", suite="libero_goal")
    file = tmp_path / "aggregate.json"
    file.write_text(FORMATS["vla-eval"](run.folder))
    script = Path(__file__).with_name("vla_eval_aggregates.py")
    done = subprocess.run([str(PYTHON), script, file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
