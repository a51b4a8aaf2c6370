"""`python -m eval.bundle`: what is served, what it reached, and a card that says what the files say."""

import dataclasses
import hashlib
import json
import math
import shutil
from pathlib import Path

import pytest
import yaml

from configs.errors import UsageError
from configs.schema import RunConfig
from eval import evaluation, libero
from eval.bundle.__main__ import app
from eval.bundle.bundling import bundle
from eval.bundle.card import CARD_FILE, ranges, render
from eval.bundle.contents import read_contents, read_record
from eval.bundle.results import read_results
from eval.policy_names import read_policy
from oxygen import params, tokenizer
from oxygen.config import TINY
from oxygen.language import LanguageTask
from oxygen.training import checkpoint as checkpoints
from oxygen.training.recipe import Recipe
from oxygen.training.run import Training
from sim_envs.fake import FakeWorld
from sim_envs.truth.account import Narration, Phase
from sim_envs.truth.wording import narrate
from tests.eval.collecting import NEVER, collect
from tests.eval.doubles import FakePolicy
from tests.eval.test_evaluation import FakeAssets
from tests.eval.test_policies import actions_of
from tests.eval.test_train import moments

STEP = 7


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory) -> Path:
    """Two tasks of two suites from initial states 0, 1 and one from which they are never solved."""
    folder = tmp_path_factory.mktemp("collected") / "demos"
    assert collect(folder, init_ids=(0, 1, NEVER)) == 0
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, demonstrations) -> Path:
    """A checkpoint of `tiny` as training leaves it, with the state to go on from; random parameters."""
    folder = tmp_path_factory.mktemp("training") / f"step_{STEP:07d}"
    write_checkpoint(folder, demonstrations, seed=0)
    return folder


def write_checkpoint(folder: Path, demonstrations: Path, *, seed: int) -> None:
    training = Training(
        model=TINY,
        embodiment="libero",
        tasks=(LanguageTask(name="narration", prompt="Narrate: ", max_tokens=8),),
        recipe=Recipe(steps=STEP, seed=seed),
        data=(str(demonstrations),),
        wordings={"open it": ("open it", "pull it"), "close it": ("close it", "shut it", "push it")},
    )
    served = checkpoints.Served(
        model=TINY,
        embodiment="libero",
        asset_id="physical-intelligence/libero",
        statistics={"state": moments(8, 1.0), "actions": moments(7, 0.5)},
        tokenizer=tokenizer.tiny().serialized,
        tasks=training.tasks,
        record={**training.described(), "frames": 12_345},
    )
    checkpoints.write_served(folder, params.random_params(TINY, seed), served, step=STEP)
    (folder / checkpoints.STATE_FILE).write_bytes(b"the moments of the optimiser")


class Narrator(FakePolicy):
    """Says at every query that the bowl is approached, which is true at the first one alone."""

    def infer(self, observation):
        reply = super().infer(observation)
        said = narrate(Narration(phase=Phase.APPROACH, object="black bowl"))
        texts = tuple(dataclasses.replace(text, text=said) for text in reply.finished)
        return dataclasses.replace(reply, finished=texts)


class Silent(FakePolicy):
    """Says nothing."""

    def infer(self, observation):
        return dataclasses.replace(super().infer(observation), born=(), finished=())


@pytest.fixture
def evaluate(monkeypatch, tmp_path):
    """Runs a policy by its name on worlds without physics, which are solved after 12 steps."""
    monkeypatch.setattr(
        evaluation,
        "open_policies",
        lambda cast, arms: [Narrator() if cast.tasks else Silent() for _ in arms],
    )
    monkeypatch.setattr(evaluation, "find_assets", lambda source: FakeAssets(name="no-physics", path=Path()))
    monkeypatch.setattr("eval.worlds.LiberoSim", lambda task, **_: FakeWorld(success_at=12))

    def run(policy: Path, *options: str) -> Path:
        folder = tmp_path / f"runs_{len(list(tmp_path.iterdir()))}"
        what = ["--policy", str(policy), "--suite", "libero_object", "--task-ids", "0,1", "--init-ids", "1,2"]
        texts = [] if "--language-tasks" in options else ["--language-tasks", "narration"]
        how = [*texts, "--video", "none", "--output-dir", str(folder), *options]
        assert libero.app([*what, *how], result_action="return_value") == 0
        (made,) = folder.iterdir()
        return made

    return run


@pytest.fixture
def shipped(tmp_path, checkpoint) -> Path:
    """The checkpoint, bundled without results."""
    folder = tmp_path / "assets" / "tiny"
    bundle(checkpoint, [], folder, data=[])
    return folder


def files(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def test_what_is_served_is_bundled_and_the_optimisers_state_is_not(shipped, checkpoint):
    served = {
        "model.safetensors",
        "tokenizer.model",
        "policy.yaml",
        "assets/physical-intelligence/libero/norm_stats.json",
    }
    assert files(shipped) == served | {"training.json", "manifest.json", "results.json", CARD_FILE}
    for path in served:
        assert (shipped / path).read_bytes() == (checkpoint / path).read_bytes()


def test_the_manifest_says_what_every_file_is(shipped):
    contents = read_contents(shipped)
    assert set(contents.files) == files(shipped) - {"manifest.json", "results.json", CARD_FILE}
    for path, facts in contents.files.items():
        content = (shipped / path).read_bytes()
        assert (facts.sha256, facts.bytes) == (hashlib.sha256(content).hexdigest(), len(content))
    assert contents.parameters == sum(math.prod(shape) for shape in params.shapes(TINY).values())
    assert contents.step == STEP


def test_it_acts_as_the_checkpoint_does_under_the_name_of_its_preset(shipped, checkpoint, tmp_path):
    preset = tmp_path / "mine.yaml"
    content = {"name": "mine", "kind": "oxygen", "description": "Mine.", "checkpoint": str(shipped)}
    preset.write_text(yaml.safe_dump(content))
    policy = read_policy(str(preset))
    assert (policy.name, policy.model, policy.language_tasks) == ("mine", "tiny", {"narration": "Narrate: "})
    options = {"mode": "actions", "language_tasks": ()}
    ours = actions_of(RunConfig(policy=str(preset), **options))
    assert (ours == actions_of(RunConfig(policy=str(checkpoint), **options))).all()


def test_a_preset_of_a_checkpoint_says_nothing_that_the_checkpoint_says(shipped, tmp_path):
    content = {"name": "mine", "kind": "oxygen", "description": "x", "checkpoint": str(shipped)}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**content, "model": "small"}))
    with pytest.raises(UsageError, match="card that says `model`"):
        read_policy(str(tmp_path / "mine.yaml"))
    (tmp_path / "gone.yaml").write_text(yaml.safe_dump({**content, "checkpoint": "bundled://none"}))
    with pytest.raises(UsageError, match=r"bundled://none is no checkpoint.*no policy\.yaml"):
        read_policy(str(tmp_path / "gone.yaml"))


def test_no_place_on_this_machine_is_bundled(shipped, demonstrations, evaluate, checkpoint):
    assert read_record(shipped)["data"] == ["demos"]
    bundle(None, [evaluate(checkpoint)], shipped, data=[])
    for file in ("training.json", "manifest.json", "results.json", CARD_FILE):
        assert str(demonstrations.parent) not in (shipped / file).read_text()
        assert str(checkpoint.parent) not in (shipped / file).read_text()


def test_the_card_tells_the_hash_the_parameters_the_data_and_the_recipe(shipped):
    card = (shipped / CARD_FILE).read_text()
    contents = read_contents(shipped)
    (data,) = contents.data
    assert (data.demonstrations, data.failures, data.policy) == (8, 4, "expert")
    assert data.suites["libero_goal"].tasks == (0, 1)
    assert data.suites["libero_goal"].init_ids == (0, 1, NEVER)
    for told in (
        contents.weights_sha256,
        f"{contents.parameters:,} parameters",
        "12,345 frames",
        f"{STEP} steps",
        "| trunk.width | 128 |",
        f"| recipe.peak_rate | {Recipe(steps=STEP).peak_rate} |",
        "| recipe.seed | 0 |",
        "| recipe.text_rows | none |",
        "| recipe.reach.texts | yes |",
        "libero_goal: 0–1; 0–1, 3",
        "narration (`Narrate: `)",
        "None has been recorded for these weights yet.",
    ):
        assert told in card
    assert "Apache-2.0" in card


def test_the_card_tells_in_how_many_words_instructions_were_given(shipped):
    card = (shipped / CARD_FILE).read_text()
    assert "2 instructions in 2 to 3 wordings each" in card
    assert "shut it" not in card
    (shipped / "training.json").write_text(json.dumps({**read_record(shipped), "wordings": {}}))
    assert "Instructions were given as the benchmark has them." in render(shipped)


def test_results_are_of_the_runs_with_intervals_and_what_training_has_seen(shipped, evaluate, checkpoint):
    solved = evaluate(checkpoint, "--mode", "isolated")
    late = evaluate(shipped, "--max-steps", "10", "--replan-steps", "2")
    made = bundle(None, [solved, late], shipped, data=[])
    card = (shipped / CARD_FILE).read_text()
    assert card == render(shipped)
    assert read_results(shipped) == made.results
    assert [(r.mode, r.n_success, r.n_episodes) for r in made.results] == [
        ("isolated", 4, 4),
        ("unified", 0, 4),
    ]
    assert "| isolated | 4 | 100.0 % | 51.0 – 100.0 | 0 | 1–2 | 1 | 2.0 / 2.0 | 5.0 / 5.0 |" in card
    assert "| unified | 0 | 0.0 % |" not in card
    assert "| unified | 4 | 0.0 % | 0.0 – 49.0 | 0 | 1–2 | 1 |" in card
    assert "--init-ids 1-2 --language-tasks narration --max-steps 10 --replan-steps 2 --task-ids 0 1" in card
    assert "Weakest on libero_object (no-physics, unified): `pick_up_the_alphabet_soup" in card
    assert "Weakest on libero_object (no-physics, isolated)" not in card
    assert "libero_goal on a, libero_object on a" in card
    born = json.loads((solved / "results.json").read_text())["per_suite"]["libero_object"]["texts"]
    assert f"phase {born['narration']['born']['phase']['pc']:.1f} (" in card


def test_a_policy_that_said_nothing_has_no_scores_of_texts(shipped, evaluate):
    bundle(None, [evaluate(shipped, "--language-tasks", "none")], shipped, data=[])
    assert "### Narration" not in (shipped / CARD_FILE).read_text()
    bundle(None, [evaluate(shipped)], shipped, data=[])
    assert (shipped / CARD_FILE).read_text().count("### Narration") == 1


def test_results_are_added_and_those_of_other_weights_go(shipped, evaluate, demonstrations, tmp_path):
    first, second = evaluate(shipped), evaluate(shipped, "--mode", "shared")
    bundle(None, [first], shipped, data=[])
    assert len(bundle(None, [second, first], shipped, data=[]).results) == 2
    again = bundle(shipped, [], shipped, data=[demonstrations])
    assert (len(again.results), again.dropped) == (2, 0)
    other = tmp_path / "step_0000009"
    write_checkpoint(other, demonstrations, seed=1)
    made = bundle(other, [], shipped, data=[])
    assert (made.results, made.dropped) == ((), 2)


def test_runs_of_other_weights_and_unfinished_ones_are_refused(shipped, evaluate, checkpoint):
    before = (shipped / CARD_FILE).read_bytes()
    random = evaluate(checkpoint, "--random-weights")
    with pytest.raises(UsageError, match=r"other weights.*\(random, or not said\)"):
        bundle(checkpoint, [random], shipped, data=[])
    unfinished = evaluate(checkpoint)
    manifest = unfinished / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"complete"', '"interrupted"'))
    with pytest.raises(UsageError, match="is interrupted; complete it with --resume"):
        bundle(checkpoint, [unfinished], shipped, data=[])
    assert (shipped / CARD_FILE).read_bytes() == before


def test_a_run_that_does_not_say_its_weights_counts_by_the_folder_of_its_policy(
    shipped, evaluate, checkpoint
):
    run = evaluate(checkpoint)
    said = json.loads((run / "manifest.json").read_text())
    del said["weights_sha256"]
    (run / "manifest.json").write_text(json.dumps(said))
    assert len(bundle(checkpoint, [run], shipped, data=[]).results) == 1
    with pytest.raises(UsageError, match="other weights"):
        bundle(None, [run], shipped, data=[])


def test_what_cannot_be_bundled_is_refused_and_changes_nothing(tmp_path, checkpoint, monkeypatch):
    target = tmp_path / "tiny"
    with pytest.raises(UsageError, match="nothing is bundled"):
        bundle(None, [], target, data=[])
    with pytest.raises(UsageError, match="no checkpoint of a training"):
        bundle(tmp_path / "nowhere", [], target, data=[])
    with pytest.raises(UsageError, match=r"no demonstrations at .*gone.*--data"):
        bundle(checkpoint, [], target, data=[tmp_path / "gone"])
    other = tmp_path / "other"
    shutil.copytree(checkpoint, other)
    record = read_record(other)
    record["model"]["denoise_steps"] = 99
    (other / "training.json").write_text(json.dumps(record))
    with pytest.raises(UsageError, match="trained with denoise_steps 99; 'tiny' now has 10"):
        bundle(other, [], target, data=[])
    (other / "training.json").write_text((checkpoint / "training.json").read_text())
    with (other / "tokenizer.model").open("ab") as file:
        file.truncate(16_000_000)
    with pytest.raises(UsageError, match="at most 16000000 are bundled"):
        bundle(other, [], target, data=[])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other"]


def test_the_command_says_what_is_bundled_now(tmp_path, checkpoint, capsys):
    target = tmp_path / "tiny"
    app([str(checkpoint), "--output", str(target)], result_action="return_value")
    printed = capsys.readouterr().out
    assert f"tiny: {read_contents(target).parameters:,} parameters after {STEP} steps" in printed
    assert str(target / CARD_FILE) in printed


def test_numbers_in_short():
    assert ranges([3, 0, 1, 2, 9, 7, 9]) == "0–3, 7, 9"
    assert ranges([]) == ""
