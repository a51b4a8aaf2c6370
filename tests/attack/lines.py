"""The table of whole command lines: what an attacker puts in place, and the line that then meets it."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from tests.attack.placing import cut, encoded, field, fifo, fifo_in, folder, link, text

_NOOP = "--policy noop --task-ids 0 --init-ids 0 --video none"
_LIBERO = f"eval.libero --suite libero_object {_NOOP}"


def _nothing(_: Path) -> None:
    """What lies there already is enough."""


@dataclasses.dataclass(frozen=True)
class Line:
    """A command line.

    Attributes:
        line: The command and its arguments.
        prepare: Puts things into the working directory.
        refused: Whether it has to be refused; None if either will do.
    """

    line: str
    prepare: Callable[[Path], object] = _nothing
    refused: bool | None = True


_SUITE = "name: mine\nworld: {world}\nmax_steps: 10\nsettle_steps: 0\ntrials_per_task: 1\ncontrol_hz: 10\n"
_SUITE += "camera_size: 8\nreplan_steps: 2\n"

_OUTPUTS = [
    Line(f"{_LIBERO} --output-dir /dev/null"),
    Line(f"{_LIBERO} --output-dir /dev/full/x"),
    Line(f"{_LIBERO} --output-dir runs/run_a/manifest.json"),
    Line(f"{_LIBERO} --output-dir /sys/x"),
    Line("eval.media runs/run_a --readme /dev/full"),
    Line("eval.media runs/run_a --readme folder"),
    Line("eval.export runs/run_a --format csv --output /dev/full"),
    Line("eval.export runs/run_a --format lerobot --output runs/run_a"),
    Line("eval.report runs/run_a --output-dir runs/run_a/manifest.json"),
    Line("eval.compare runs/run_a runs/run_b --plot /dev/null/x.png"),
    Line("eval.compare runs/run_a runs/run_b --plot figure.nonsense"),
    Line("eval.bench --policy tiny --output runs/run_a/manifest.json", refused=None),
    Line("eval.bench --policy tiny --save-profile folder"),
    Line("eval.merge runs/shard_1 runs/shard_2 --output-dir pipe", fifo("pipe")),
    Line("eval.collect --suite libero_object --task-ids 0 --output runs/run_a"),
    Line("oxygen.tools.train_tokenizer /dev/full"),
    Line("eval.preflight --output-dir /dev/full/x", refused=None),
]

_INPUTS = [
    Line("eval.compare runs/run_a runs/run_a", refused=None),
    Line("eval.compare /dev/null runs/run_b"),
    Line("eval.compare runs runs/run_b"),
    Line("eval.leaderboard /dev/zero"),
    Line("eval.leaderboard runs", link("runs/loop", "../runs"), refused=False),
    Line(f"{_LIBERO} --config pipe", fifo("pipe")),
    Line(f"{_LIBERO} --config /dev/zero"),
    Line(f"{_LIBERO} --clock profile:/dev/zero"),
    Line("eval.libero --suite libero_object --policy /dev/zero"),
    Line("eval.sweep --config folder"),
    Line("eval.train --data runs/run_a"),
    Line("eval.train --data arrays.npz"),
    Line("eval.train --data folder --start-from README.md"),
    Line("eval.bundle README.md"),
    Line("eval.results runs"),
    Line("eval.watch folder"),
    Line("oxygen.serve --policy README.md"),
    Line("oxygen.serve --policy tiny --api-key-env A=B"),
    Line("oxygen.tools.convert README.md out.safetensors"),
    Line("oxygen.tools.convert http://[bad out"),
    Line("oxygen.tools.convert folder out --dtype int8"),
    Line("oxygen.tools.parity folder"),
    Line("oxygen.tools.parity pipe", fifo("pipe")),
    Line(
        f"eval.run --suite bad.yaml {_NOOP}",
        text("bad.yaml", _SUITE.format(world="os:system")),
    ),
    Line(
        f"eval.run --suite bad.yaml {_NOOP}",
        text("bad.yaml", _SUITE.format(world="antigravity.no:No")),
    ),
    Line(f"{_LIBERO} --policy os:system"),
    Line("eval.preflight --suite nonsense", refused=None),
    Line("eval.pipeline ../../../etc/passwd --dry-run"),
    Line("eval.pipeline tiny --dry-run --output-dir /dev/null", refused=None),
    Line("eval.results README.md"),
    Line("eval.bundle --results runs --output folder", refused=None),
    Line("eval.bundle --pipeline nonsense"),
    Line("eval.sweep --suite libero_object --policy noop --profiles /dev/zero"),
    Line("eval.collect --suite libero_object --policy noop --learner README.md --output new"),
    Line("eval.collect --suite libero_object --learner tiny --motion drift:nan --output new"),
    Line("eval.train --data folder --norm-stats /dev/zero"),
    Line("eval.train --data folder --tokenizer pipe", fifo("pipe")),
    Line("oxygen.tools.convert /dev/zero out"),
    Line("oxygen.tools.convert http://127.0.0.1:1/x/y out"),
    Line("oxygen.tools.convert ftp://x/y out"),
    Line("oxygen.tools.convert bundled:../../x out", refused=None),
    Line("eval.libero --suite libero_object --policy http://127.0.0.1:1"),
    Line("eval.libero --suite libero_object --policy ws://[bad"),
    Line("eval.libero --suite libero_object --policy ws://127.0.0.1:99999999"),
    Line("sim_envs.contact_sheet sheet.nonsense"),
    Line("sim_envs.contact_sheet sheet.jpg --suite libero_object --assets /dev/zero"),
    Line("oxygen.serve --policy http://127.0.0.1:1/x"),
    *(
        Line(f"eval.run --suite libero_object --policy={name}")
        for name in (":", "ws://", ".py:", "::", "\u0661:")
    ),
    *(Line(f"eval.sweep --suite libero_object --policy={name}") for name in (":", "wss://")),
]

_NUMBERS = [
    *(
        Line(f"{_LIBERO} --clock {clock}")
        for clock in (
            "fixed:1e400,3",
            "fixed:nan",
            "fixed:",
            "fixed:1,2,3",
            "replay:",
            "measured:3",
            "fixed:-1",
        )
    ),
    *(Line(f"{_LIBERO} --shard {shard}") for shard in ("0/2", "3/2", "1/9999999999", "1/2/3")),
    *(Line(f"{_LIBERO} --motion {motion}") for motion in ("shuttle:nan", "shuttle:1e308,1e-308", "drift:")),
    *(
        Line(f"{_LIBERO} --policy-kwargs {pair}")
        for pair in ("a=1 a=2", "a=*b", "=1", f"a={'9' * 5000}", "a=1e999")
    ),
    Line("eval.run --suite libero_object --policy noop --num-trials-per-task 1000000"),
    Line("eval.libero --suite libero_object --policy noop --init-ids 0-99999"),
    Line("eval.droid --policy noop --num-trials-per-task 1000000", refused=None),
    Line("oxygen.serve --policy tiny --port 70000"),
    Line("eval.watch runs/run_a --port 70000"),
    Line("eval.bench --policy tiny --arrivals nonsense"),
    Line("eval.bench --policy tiny --peaks nan"),
]

_MANIFEST, _EPISODES, _QUERIES = (
    f"runs/run_a/{name}" for name in ("manifest.json", "episodes.jsonl", "queries")
)
_BOARD, _COMPARE = "eval.leaderboard runs", "eval.compare runs/run_a runs/run_b"

_RECORDS = [
    Line(_BOARD, fifo(_MANIFEST), refused=False),
    Line(_BOARD, fifo(_EPISODES), refused=False),
    Line(_COMPARE, fifo(_EPISODES)),
    Line(_BOARD, link(_MANIFEST, "/dev/zero"), refused=False),
    Line("eval.report runs/run_a", folder(_MANIFEST)),
    Line(_COMPARE, folder(_EPISODES)),
    Line("eval.export runs/run_a --format csv", link(_QUERIES, "/etc"), refused=None),
    Line("eval.media runs/run_a", field(_MANIFEST, variants=["../.."])),
    Line("eval.media runs/run_a", field(_MANIFEST, variants=["/etc"] * 1000)),
    Line(
        "eval.libero --suite libero_object --policy noop --output-dir runs --resume",
        field(_MANIFEST, status="running", variants=["run_a", "../x"]),
        refused=None,
    ),
    Line(_COMPARE, field(_MANIFEST, n_planned=10**18), refused=None),
    Line(_COMPARE, encoded(_EPISODES, "utf-16")),
    Line("eval.compare --partial runs/run_a runs/run_b", cut(_EPISODES, -30), refused=None),
    Line("eval.merge runs/shard_1 runs/shard_1"),
    Line("eval.merge runs/shard_1 runs/run_b"),
    Line(
        "eval.merge runs/shard_1 runs/shard_2",
        field("runs/shard_2/manifest.json", run_id="../../x"),
        refused=None,
    ),
    Line(
        "eval.train --resume --output-dir training",
        text("training/run.json", '{"schema_version": 1, "config": {}}'),
    ),
    Line(
        "eval.train --data dataset",
        text("dataset/meta/info.json", '{"codebase_version": "v3.0", "fps": 0, "features": {}}'),
    ),
    Line(
        "eval.sweep --resume --output-dir sweeps",
        text("sweeps/one/sweep.json", '{"schema_version": 1, "runs": ["/etc"]}'),
    ),
    Line("oxygen.tools.convert model.safetensors out", text("model.safetensors", "\xff" * 8)),
    Line(f"{_LIBERO} --clock replay:runs/run_a", link(_QUERIES, "/dev"), refused=None),
    Line("eval.watch runs/run_a", fifo(_MANIFEST)),
    Line(
        "eval.libero --suite libero_object --policy ./card --task-ids 0",
        text("card/policy.yaml", "name: x\nkind: oxygen\nmodel: tiny\nembodiment: nonsense\nweights: .\n"),
    ),
    Line(
        "eval.libero --suite libero_object --policy ./card --task-ids 0",
        text("card/policy.yaml", "name: x\nkind: oxygen\nmodel: tiny\nweights: /dev/zero\n"),
    ),
    Line("eval.libero --suite libero_object --policy ./card", fifo_in("card", "policy.yaml")),
    Line("eval.train --data dataset", fifo_in("dataset/meta", "info.json")),
    Line("eval.train --resume --output-dir training", fifo_in("training", "run.json")),
    Line("eval.results sweeps/one", fifo_in("sweeps/one", "sweep.json")),
    Line("eval.collect --suite libero_object --output dataset", fifo_in("dataset/.episodes", "options.json")),
    Line("eval.bundle --output new --results runs/run_a", fifo("runs/run_a/results.json"), refused=None),
    Line(_BOARD, fifo("runs/run_a/results.json"), refused=False),
    Line("eval.report runs/run_a --output-dir page", link(_QUERIES, "/proc/self/fd"), refused=None),
]

LINES = {"outputs": _OUTPUTS, "inputs": _INPUTS, "numbers": _NUMBERS, "records": _RECORDS}
"""Lines of an attacker that are in no other table, by what is wrong."""
