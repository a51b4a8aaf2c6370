"""Cells of a notebook evaluate, where nbclient and ipykernel are installed."""

import pytest

from tests.commands import ROOT

pytestmark = pytest.mark.slow

_CELLS = (
    """
import sys
sys.path.insert(0, {root!r})
import numpy as np
from eval import evaluate

class Policy:
    embodiment = "libero"
    def infer(self, observation):
        return {{"actions": np.zeros((10, 7))}}
    def reset(self):
        pass

how = dict(suite="libero_object", task_ids=[0], init_ids=[0, 1], max_steps=10, assets="standins")
""",
    "evaluate(Policy(), **how)",
    "evaluate(Policy, num_envs=2, **how)",
    """
import asyncio
await asyncio.to_thread(lambda: evaluate(Policy, **how))
""",
    "evaluate(Policy, verbose=True, **how).success",
)


def test_cells_evaluate_in_the_kernel_in_workers_and_in_a_thread(tmp_path):
    """Nothing of the notebook runs in workers; results are shown as a table."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    cells = [nbformat.v4.new_code_cell(cell.format(root=str(ROOT))) for cell in _CELLS[:1]]
    cells += map(nbformat.v4.new_code_cell, _CELLS[1:])
    notebook = nbformat.v4.new_notebook(cells=cells)
    context = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=context).execute()
    _, *shown, last = [cell.outputs for cell in notebook.cells]
    for (output,) in shown:
        assert "| Policy | 0/2 | 0.0 % |" in output["data"]["text/markdown"]
    assert last[-1]["data"]["text/plain"] == "0.0"
    assert "Policy solved 0 % of 2 episodes" in str(last)
