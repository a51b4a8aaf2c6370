"""A policy of a few thousand parameters, and the options of a short experiment on it."""

from pathlib import Path

from eval.bench.options import Options, read
from eval.bench.subject import Subject
from tests.oxygen.conftest import SMALL

SUBJECT = Subject(name="small-for-tests", config=SMALL, weights=0, weights_from="random", prompt_tokens=20)


def options(path: Path, *more: str) -> Options:
    """Few turns of short texts, and two ks where mode `unified` is among what is measured."""
    turns = ["--repetitions", "2", "--queries", "3", "--text-tokens", "6"]
    ks = ["--tokens-per-frame", "1", "3"] if "--modes" not in more or "unified" in more else []
    return read([*turns, *ks, "--output", str(path), *more])
