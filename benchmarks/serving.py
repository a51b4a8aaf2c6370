"""`python -m benchmarks.serving`: queries per second of a policy server by the number of clients.

Clients send the next query as soon as the last is answered: all at once, in one batch of as many robots; and,
for comparison, one after the other on a server for one robot. Both in turns, on the server's machine.

Also the time of a single client's queries on servers for eight, one after the other and in one batch,
relative to a server for one.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from cyclopts import App
from websockets.sync.client import connect

from benchmarks.record import record
from configs.cli import run_app
from oxygen.server.msgpack_numpy import pack, unpack

IMAGE = np.random.default_rng(0).integers(0, 256, (224, 224, 3), np.uint8)
OBSERVATION = {
    "observation/image": IMAGE,
    "observation/wrist_image": IMAGE,
    "observation/state": np.zeros(8),
    "prompt": "put the mug on the plate",
}

POLICY, MODE, CLIENTS = "tiny", "unified", (1, 2, 4, 8)

app = App(name="python -m benchmarks.serving")


@app.default
def main(
    *, queries: int = 30, turns: int = 3, output: Path = Path("benchmarks/results/serving.json")
) -> None:
    """Measure servers, in turns, and write the rates.

    Args:
        queries: Queries of each client.
        turns: Measurements of each.
        output: JSON file.
    """
    rows = []
    for count in CLIENTS:
        with _servers(["--robots 1", f"--batch-size {count}"]) as (alone, batched):
            _rate(batched, count, 2)  # warm, and every client has its robot
            rates = [
                (_rate(alone, count, queries, at_once=1), _rate(batched, count, queries))
                for _ in range(turns)
            ]
        rows.append(
            {
                "clients": count,
                "one_at_a_time_per_s": round(statistics.median(single for single, _ in rates), 2),
                "batched_per_s": round(statistics.median(batch for _, batch in rates), 2),
                "ratios": [round(batch / single, 3) for single, batch in rates],
            }
        )
    with _servers(["--robots 1", "--robots 8", "--batch-size 8"]) as urls:
        for url in urls:
            _rate(url, 1, 2)
        single = [[_rate(url, 1, queries) for url in urls] for _ in range(turns)]
    ratios = {
        "eight_in_turn": [round(base / rate, 3) for base, rate, _ in single],
        "batch_of_eight": [round(base / rate, 3) for base, _, rate in single],
    }
    about = {"benchmark": "serving", "policy": POLICY, "mode": MODE, "queries": queries, "turns": turns}
    record({**about, "rows": rows, "single_client": ratios}, output)


@contextmanager
def _servers(options: list[str]) -> Iterator[list[str]]:
    """Addresses of servers with these options."""
    shared = ["--policy", POLICY, "--mode", MODE, "--port", "0", "--batch-wait-ms", "50"]
    with ExitStack() as running:
        urls = []
        for given in options:
            command = [sys.executable, "-m", "oxygen.server", *shared, *given.split()]
            server = running.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            running.callback(server.terminate)
            urls.append(server.stdout.readline().split(" at ")[1].split()[0])
        yield urls


def _rate(url: str, clients: int, queries: int, *, at_once: int | None = None) -> float:
    """Queries per second of clients; by default all at once."""

    def play(_: int) -> None:
        with connect(url, compression=None, max_size=None, proxy=None) as connection:
            connection.recv()
            for _ in range(queries):
                connection.send(request)
                assert "actions" in unpack(connection.recv())

    request = pack(OBSERVATION)
    with ThreadPoolExecutor(at_once or clients) as pool:
        began = time.perf_counter()
        list(pool.map(play, range(clients)))
        return clients * queries / (time.perf_counter() - began)


if __name__ == "__main__":
    run_app(app)
