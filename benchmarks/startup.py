"""`python -m benchmarks.startup COMMIT`: seconds from a command to its first step, beside another commit.

Both are started in turns, in checkouts of their own in this environment, with caches as the run before left
them. Records the wall time and the CPU time (user and system) of each start, and the ratios of the medians.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cyclopts import App

from benchmarks.record import record
from configs.cli import run_app
from contracts.errors import UsageError

_ROOT, _PORT = Path(__file__).resolve().parents[1], 8765
_SUITES = {
    "libero": (["libero_object", "--assets", "standins"], 7, "tiny"),
    "droid": (["droid_tabletop"], 8, "tiny_droid"),
}
"""Robot to suite and assets, numbers in an action, and the bundled policy."""

_POLICY = """
import numpy as np

class Policy:
    embodiment = "{robot}"

    def infer(self, observation):
        return {{"actions": np.zeros((10, {numbers}))}}

    def reset(self):
        pass
"""
_SERVER = """
import sys
sys.path.insert(0, {examples!r})
import numpy as np
from openpi_server import policy_server

declared = {{"embodiment": "{robot}", "horizon": 10}}
with policy_server(lambda seen: np.zeros((10, {numbers})), declared, port={port}) as server:
    print("ready", flush=True)
    server.serve_forever()
"""
_START = """
import importlib.machinery, os, sys

class Finder:  # ends the process once the first control step is done
    def find_spec(self, name, path=None, target=None):
        if name != "eval.rollout.episode":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def and_watch(module):
            execute(module)
            play = module.rollout

            def ended(*arguments, **options):
                next(iter(play(*arguments, **options)))
                os._exit(0)

            module.rollout = ended

        spec.loader.exec_module = and_watch
        return spec

sys.meta_path.insert(0, Finder())
from configs.cli import run_app
from eval.run import app
run_app(app, sys.argv[1:])
"""

app = App(name="python -m benchmarks.startup")


@app.default
def main(commit: str, *, turns: int = 3, output: Path = Path("benchmarks/results/startup.json")) -> None:
    """Start every policy on LIBERO and DROID in both commits, in turns.

    Args:
        commit: The other commit.
        turns: Starts of each, after one that fills caches.
        output: JSON file.
    """
    with tempfile.TemporaryDirectory() as temporary, _checkout(commit, Path(temporary)) as other:
        trees, measured = {"now": _ROOT, commit: other}, {}
        for robot, (suite, numbers, bundled) in _SUITES.items():
            (Path(temporary) / "mine.py").write_text(_POLICY.format(robot=robot, numbers=numbers))
            with _server(robot, numbers) as url:
                policies = {"noop": "noop", "class": "mine.py:Policy", "server": url, "tiny": bundled}
                for name, policy in policies.items():
                    options = ["--suite", *suite, "--policy", policy, "--task-ids", "0", "--init-ids", "0"]
                    for tree in trees.values():
                        _start(tree, options, temporary)
                    times = {place: [] for place in trees}
                    for _ in range(turns):
                        for place, tree in trees.items():
                            times[place].append(_start(tree, options, temporary))
                    measured[f"{robot} {name}"] = _compared(times, commit)
                    print(robot, name, measured[f"{robot} {name}"], flush=True)
    record({"commit_before": commit, "turns": turns, "starts": measured}, output)


def _compared(times: dict[str, list[tuple[float, float]]], commit: str) -> dict[str, object]:
    wall, cpu = (
        {place: statistics.median(each[kind] for each in starts) for place, starts in times.items()}
        for kind in (0, 1)
    )
    ratios = {"wall": wall["now"] / wall[commit], "cpu": cpu["now"] / cpu[commit]}
    return {"wall_s": wall, "cpu_s": cpu, "ratio": ratios, "all": times}


def _start(tree: Path, options: list[str], folder: str) -> tuple[float, float]:
    """Seconds of wall and CPU time to the first control step."""
    more = ["--replan-steps", "1", "--video", "none", "--no-report", "--output-dir", f"{folder}/runs"]
    command = [sys.executable, "-c", _START, *options, *more]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise UsageError(f"{' '.join(options)} in {tree} did not reach its first step: see above")
    return time.perf_counter() - began, used.ru_utime + used.ru_stime


@contextlib.contextmanager
def _checkout(commit: str, folder: Path) -> Iterator[Path]:
    tree = folder / "before"
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, commit], cwd=_ROOT, check=True)
    try:
        yield tree
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=_ROOT, check=True)


@contextlib.contextmanager
def _server(robot: str, numbers: int) -> Iterator[str]:
    program = _SERVER.format(examples=str(_ROOT / "examples"), robot=robot, numbers=numbers, port=_PORT)
    command, environment = [sys.executable, "-c", program], {**os.environ, "PYTHONPATH": str(_ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield f"ws://localhost:{_PORT}"
        finally:
            process.kill()


if __name__ == "__main__":
    run_app(app)
