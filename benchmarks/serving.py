"""`python -m benchmarks.serving`: queries per second of a policy server by the number of clients.

Clients send the next query as soon as the last is answered: all at once, in one batch of as many robots; and,
for comparison, one after the other on a server for one robot. Both in turns, on the server's machine.

Also the time of a single client's queries on servers for eight, one after the other and in one batch,
relative to a server for one.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from websockets.sync.client import connect

from benchmarks.record import record
from oxygen.serve.msgpack_numpy import pack, unpack

RESULTS = Path(__file__).parent / "results" / "serving.json"


def main() -> None:
    options = _options()
    rows = []
    for clients in options.clients:
        one, batch = ["--robots", "1"], ["--batch-size", str(clients)]
        with _server(one, options) as alone, _server(batch, options) as batched:
            _rates(batched, clients, 2)  # warm, and every client has its robot
            turns = [
                (_one_at_a_time(alone, clients, options.queries), _rates(batched, clients, options.queries))
                for _ in range(options.turns)
            ]
        rows.append(
            {
                "clients": clients,
                "one_at_a_time_per_s": round(statistics.median(turn[0] for turn in turns), 2),
                "batched_per_s": round(statistics.median(turn[1] for turn in turns), 2),
                "ratios": [round(batched / single, 3) for single, batched in turns],
            }
        )
    alone = _single_client(options)
    about = {name: getattr(options, name) for name in ("policy", "mode", "queries", "turns")}
    record("serving", {"benchmark": "serving", **about, "rows": rows, **alone}, options.output)


def _single_client(options: argparse.Namespace) -> dict[str, Any]:
    """Times of a single client's queries on servers for eight, relative to a server for one."""
    one, in_turn, batch = ["--robots", "1"], ["--robots", "8"], ["--batch-size", "8"]
    with (
        _server(one, options) as alone,
        _server(in_turn, options) as turns,
        _server(batch, options) as batched,
    ):
        urls = (alone, turns, batched)
        for url in urls:
            _play(url, 2)
        rates = [[_one_at_a_time(url, 1, options.queries) for url in urls] for _ in range(options.turns)]
    return {
        "single_client": {
            "eight_in_turn": [round(base / rate, 3) for base, rate, _ in rates],
            "batch_of_eight": [round(base / rate, 3) for base, _, rate in rates],
        }
    }


@contextmanager
def _server(share: list[str], options: argparse.Namespace) -> Iterator[str]:
    what = ["--policy", options.policy, "--mode", options.mode, *share, "--port", "0"]
    command = [sys.executable, "-m", "oxygen.serve", *what, "--batch-window-ms", "50"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().split(" at ")[1].split()[0]
        finally:
            process.terminate()


def _one_at_a_time(url: str, clients: int, queries: int) -> float:
    """Queries per second of clients one after the other."""
    began = time.perf_counter()
    for _ in range(clients):
        _play(url, queries)
    return clients * queries / (time.perf_counter() - began)


def _rates(url: str, clients: int, queries: int) -> float:
    with ThreadPoolExecutor(clients) as pool:
        began = time.perf_counter()
        list(pool.map(lambda _: _play(url, queries), range(clients)))
        return clients * queries / (time.perf_counter() - began)


def _play(url: str, queries: int) -> None:
    request = pack(_observation())
    with connect(url, compression=None, max_size=None, proxy=None) as connection:
        connection.recv()
        for _ in range(queries):
            connection.send(request)
            assert "actions" in unpack(connection.recv())


def _observation() -> dict[str, Any]:
    image = np.random.default_rng(0).integers(0, 256, (224, 224, 3), np.uint8)
    return {
        "observation/image": image,
        "observation/wrist_image": image,
        "observation/state": np.zeros(8),
        "prompt": "put the mug on the plate",
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("--policy", default="tiny", help="one for LIBERO")
    parser.add_argument("--mode", default="unified")
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--queries", type=int, default=30, help="of each client")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
