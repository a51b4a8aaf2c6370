"""The published protocol of libero_object in 16 shares, as jobs of a cluster, then one run of them all.

    uv pip install submitit
    python examples/submitit_array.py --policy pi05_libero          # options of eval.libero
    CLUSTER=local SHARES=2 python examples/submitit_array.py --init-ids 30-33 --max-steps 20   # here

A share that was cut short is completed by the same command again.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import submitit

CLUSTER = os.environ.get("CLUSTER", "slurm")
SHARES = int(os.environ.get("SHARES", "16"))
FOLDER = Path("runs/shards")
WORLDS = 16 if CLUSTER == "slurm" else 1


def play(share: int, options: Sequence[str]) -> None:
    """Play a share, or what is left of it."""
    folder = FOLDER / str(share)
    command = [sys.executable, "-m", "eval.libero", "--suite", "libero_object", "--video", "none"]
    where = ["--num-envs", str(WORLDS), "--shard", f"{share}/{SHARES}", "--output-dir", str(folder)]
    resume = ["--resume"] if list(folder.glob("*/manifest.json")) else []
    subprocess.run([*command, *where, *options, *resume], check=True)


def main() -> None:
    """Submit the shares, wait for them, and join them."""
    executor = submitit.AutoExecutor(folder="runs/submitit", cluster=CLUSTER)
    executor.update_parameters(timeout_min=120, cpus_per_task=WORLDS, mem_gb=32)
    if CLUSTER == "slurm":
        executor.update_parameters(gpus_per_node=1)
    jobs = executor.map_array(play, range(1, SHARES + 1), [sys.argv[1:]] * SHARES)
    for job in jobs:
        job.result()
    shards = [str(path.parent) for path in FOLDER.glob("*/*/manifest.json")]
    subprocess.run([sys.executable, "-m", "eval.merge", *shards, "-o", "runs"], check=True)


if __name__ == "__main__":
    main()
