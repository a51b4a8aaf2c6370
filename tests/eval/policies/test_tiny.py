"""The policy in the box: its files are what its card names and what `--policy tiny` serves; it works."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.schema import RunConfig
from contracts.episode import EpisodeKey, EpisodeResult, Outcome
from eval.libero import app
from eval.records.schema import RunFolder
from oxygen.model import params
from oxygen.model.config import TINY
from oxygen.presets.policies import check_sizes
from oxygen.robots import tokenizer
from oxygen.weights.formats import open_safetensors
from oxygen.weights.source import bundled
from tests.eval.policies.test_policies import SILENT, actions_of

FOLDER = bundled("tiny")
MAX_BYTES = 16_000_000
"""Every installation of the package downloads each bundled checkpoint."""
EPISODES = tuple(
    EpisodeKey(suite="libero_object", task_id=task_id, init_id=40, seed=7) for task_id in (9, 3, 0)
)
"""Episodes it solves, from an initial state that no demonstration began in. Another processor rounds
otherwise, so that it may fail in one of them there."""


@pytest.mark.parametrize("name", ["tiny", "tiny_droid", "tiny_memory"])
def test_the_bundled_files_match_their_manifest_and_their_card(name):
    folder = bundled(name)
    files = manifest_of(name)["files"]
    there = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}
    assert set(there) == {*files, "manifest.json", "results.json", "MODEL_CARD.md"}
    assert sum(file.stat().st_size for file in there.values()) <= MAX_BYTES
    for path, digest in files.items():
        assert hashlib.sha256(there[path].read_bytes()).hexdigest() == digest
    card = there["MODEL_CARD.md"].read_text(encoding="utf-8")
    tensors = open_safetensors(there["model.safetensors"]).tensors
    assert f"{sum(math.prod(tensor.shape) for tensor in tensors.values()):,} parameters" in card
    assert files["model.safetensors"] in card


def manifest_of(name: str) -> dict[str, Any]:
    """SHA-256 of the files of a bundled checkpoint, and the datasets that it was trained on."""
    return json.loads((bundled(name) / "manifest.json").read_text(encoding="utf-8"))


def test_the_bundled_policy_has_tinys_sizes():
    check_sizes(FOLDER, "tiny")
    tensors = open_safetensors(FOLDER / "model.safetensors").tensors
    assert {name: tensor.shape for name, tensor in tensors.items()} == params.shapes(TINY)
    assert (FOLDER / "tokenizer.model").read_bytes() == tokenizer.tiny().serialized


@pytest.mark.slow
def test_the_bundled_adapter_adds_texts_and_changes_no_action(tmp_path):
    """In the words of its labels, of which no goal is reached yet in an initial state."""
    speaking = RunConfig(policy="tiny_textual_memory", language_tasks=("textual_memory",), mode="shared")
    np.testing.assert_array_equal(actions_of(speaking), actions_of(RunConfig(policy="tiny", **SILENT)))
    episode = play(EPISODES[0], tmp_path, "--policy", "tiny_textual_memory", "--mode", "shared")
    scores = episode.texts["textual_memory"].at_request
    assert scores["exact"].hits == scores["exact"].of > 0


def test_the_bundled_policy_solves_a_held_out_initial_state(tmp_path):
    """While it narrates and remembers, in physics, on the stand-ins: the first, or else the next."""
    for episode in EPISODES:
        for data in manifest_of("tiny")["data"]:
            assert episode.init_id not in data["init_ids"].get(episode.suite, ())
        played = play(episode, tmp_path / str(episode.task_id))
        assert set(played.texts) == {"narration", "memory"}
        if played.outcome is Outcome.SUCCESS:
            break
    assert played.outcome is Outcome.SUCCESS


@pytest.mark.slow
def test_the_memory_in_its_prompt_tells_tiny_memory_when_to_stop(tmp_path):
    """From a state in no demonstration: with true memory it lifts the bowl twice and stops, in one episode or
    the other; if it remembers to have done so, it does not begin."""
    keys = [EpisodeKey(suite="libero_memory_short", task_id=1, init_id=n, seed=7) for n in (2002, 2005)]
    options = ("--policy", "tiny_memory", "--mode", "shared", "--text-every", "1", "--feedback")
    told = (play(key, tmp_path / f"told{key.init_id}", *options, "truth") for key in keys)
    assert any(episode.outcome is Outcome.SUCCESS for episode in told)
    done = "frozen:put the black bowl on the plate twice"
    assert play(keys[0], tmp_path / "done", *options, done).progress == 0


def play(key: EpisodeKey, folder: Path, *more: str) -> EpisodeResult:
    what = ["--suite", key.suite, "--task-ids", str(key.task_id)]
    which = ["--init-ids", str(key.init_id), "--seed", str(key.seed), "--assets", "standins"]
    where = ["--video", "none", "--output-dir", str(folder)]
    assert app([*what, *which, *where, *(more or ("--policy", "tiny"))], result_action="return_value") == 0
    (run,) = map(RunFolder, folder.iterdir())
    (episode,) = run.episodes().values()
    assert episode.key == key
    policy = "tiny_memory" if "tiny_memory" in more else "tiny"
    weights = manifest_of(policy)["files"]["model.safetensors"]
    assert run.read_manifest()["weights_sha256"] == weights
    return episode
