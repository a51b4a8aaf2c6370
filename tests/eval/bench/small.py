"""A policy of a few thousand parameters, and the options of a short experiment on it."""

from pathlib import Path

from eval.bench.model_under_test import ModelUnderTest
from eval.bench.options import Options, read
from tests.oxygen.conftest import SMALL

MODEL = ModelUnderTest(
    name="small-for-tests", config=SMALL, weights=0, weights_from="random", prompt_tokens=20
)


def options(path: Path, *more: str) -> Options:
    """Few runs of short texts, with two ks if mode `unified` is among the modes."""
    few = ["--repetitions", "2", "--queries", "3", "--text-tokens", "6"]
    ks = ["--tokens-per-frame", "1", "3"] if "--modes" not in more or "unified" in more else []
    return read([*few, *ks, "--output", str(path), *more])
