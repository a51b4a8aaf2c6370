"""`oxygen-eval bundle`: what is served is put into the package, with a card of its trainings."""

import dataclasses
import hashlib
import json
import math
import re
import shutil
from pathlib import Path

import pytest
import yaml

from configs.load import load, names
from configs.schema import RunConfig, SuiteConfig
from contracts.errors import UsageError
from contracts.truth import Narration, Phase
from eval import libero
from eval.bundle.__main__ import app
from eval.bundle.bundling import (
    CARD_FILE,
    TEST_STATES,
    bundle,
    read_bundle_manifest,
    read_results,
    render,
    trainings_of,
    write_results,
)
from eval.policies.resolved import read_policy
from eval.rollout.executors import executor
from oxygen.model import params
from oxygen.model.config import TINY
from oxygen.presets.policies import read_record
from oxygen.training import checkpoint as checkpoints
from oxygen.training import layout
from oxygen.weights.formats import SINGLE_FILE
from sim_envs.fake import FakeWorld
from sim_envs.truth.wording import narrate
from tests.commands import call
from tests.eval.collect.collecting import NEVER, collect
from tests.eval.doubles import FakeAssets, FakePolicy, opened, without_physics
from tests.eval.policies import test_policies
from tests.eval.policies.test_policies import actions_of

FIRST, LAST = TEST_STATES[0], TEST_STATES[-1]
WORDS = ("--wordings", "held_out")
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


def write_checkpoint(
    folder: Path, demonstrations: Path, *, seed: int, start: Path | str | None = None
) -> None:
    wordings = {"open it": ("open it", "pull it"), "close it": ("close it", "shut it", "push it")}
    start_from = None if start is None else str(start)
    how = {"start_from": start_from, "wordings": wordings}
    test_policies.write_checkpoint(folder, step=STEP, seed=seed, data=demonstrations, **how)
    (folder / checkpoints.STATE_FILE).write_bytes(b"the moments of the optimiser")


class Narrator(FakePolicy):
    """Says at every query that the bowl is approached, which is true at the first one alone."""

    def complete(self):
        reply = super().complete()
        said = narrate(Narration(phase=Phase.APPROACH, object="black bowl"))
        texts = tuple(dataclasses.replace(text, text=said) for text in reply.finished)
        return dataclasses.replace(reply, finished=texts)


class Silent(FakePolicy):
    """Says nothing."""

    def complete(self):
        return dataclasses.replace(super().complete(), requested=(), finished=())


@pytest.fixture
def evaluate(monkeypatch, tmp_path):
    """Runs a policy by its name on worlds without physics, which are solved after 12 steps."""

    def open_policies(resolved, variants, **_):
        return [opened(Narrator() if resolved.tasks else Silent()) for _ in variants]

    monkeypatch.setattr(executor, "open_policies", open_policies)
    assets = FakeAssets(name="no-physics")
    without_physics(monkeypatch, lambda _: FakeWorld(success_at=12), find_assets=lambda _: assets)

    def run(policy: Path, *options: str, init_ids: str = "1,2") -> Path:
        folder = tmp_path / f"runs_{len(list(tmp_path.iterdir()))}"
        where = ("--suite", "libero_object", "--task-ids", "0,1", "--init-ids", init_ids, "--video", "none")
        texts = () if "--language-tasks" in options else ("--language-tasks", "narration")
        assert call(libero.app, "--policy", policy, *where, *texts, "--output-dir", folder, *options) == 0
        (made,) = folder.iterdir()
        return made

    return run


@pytest.fixture
def shipped(tmp_path, checkpoint) -> Path:
    """The checkpoint, bundled without results."""
    folder = tmp_path / "assets" / "tiny"
    bundle(checkpoint, [], folder)
    return folder


def edit(file: Path, **changes) -> None:
    """Change fields of a JSON file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def files(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def test_served_files_and_their_digests_are_bundled_without_the_optimisers_state(shipped, checkpoint):
    norms = "assets/physical-intelligence/libero/norm_stats.json"
    served = {"model.safetensors", "tokenizer.model", "policy.yaml", norms}
    assert files(shipped) == served | {"training.json", "manifest.json", "results.json", CARD_FILE}
    for path in served:
        assert (shipped / path).read_bytes() == (checkpoint / path).read_bytes()
    digests = read_bundle_manifest(shipped).files
    assert digests.keys() == served | {"training.json"}
    for path, digest in digests.items():
        assert hashlib.sha256((shipped / path).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("change", [Path.unlink, lambda file: file.write_bytes(b"other")])
def test_a_changed_file_is_refused(shipped, change):
    change(shipped / "tokenizer.model")
    with pytest.raises(UsageError, match=r"tokenizer\.model is not the file that manifest\.json names"):
        read_bundle_manifest(shipped)


@pytest.mark.slow
def test_the_bundled_policy_acts_as_the_checkpoint(shipped, checkpoint, tmp_path):
    preset = tmp_path / "mine.yaml"
    content = {"name": "mine", "kind": "oxygen", "description": "Mine.", "checkpoint": str(shipped)}
    preset.write_text(yaml.safe_dump(content))
    policy = read_policy(str(preset))
    assert (policy.name, policy.model, policy.language_tasks) == ("mine", "tiny", {"narration": "Narrate: "})
    options = {"mode": "actions", "language_tasks": ()}
    ours = actions_of(RunConfig(policy=str(preset), **options))
    assert (ours == actions_of(RunConfig(policy=str(checkpoint), **options))).all()


def test_a_preset_does_not_repeat_the_checkpoint(shipped, tmp_path):
    content = {"name": "mine", "kind": "oxygen", "description": "x", "checkpoint": str(shipped)}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**content, "model": "small"}))
    with pytest.raises(UsageError, match="card that says `model`"):
        read_policy(str(tmp_path / "mine.yaml"))
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**content, "embodiment": "droid"}))
    with pytest.raises(UsageError, match=r"trained with libero: 'droid'.*libero"):
        read_policy(str(tmp_path / "mine.yaml"))
    (tmp_path / "gone.yaml").write_text(yaml.safe_dump({**content, "checkpoint": "bundled://none"}))
    with pytest.raises(UsageError, match=r"no checkpoint at bundled://none\. Nearest: .*/tiny"):
        read_policy(str(tmp_path / "gone.yaml"))


def test_refused_checkpoints_change_nothing(tmp_path, checkpoint, refused):
    target = tmp_path / "tiny"
    assert re.search("there is no checkpoint at .*tiny", refused(app, "--output", target))
    with pytest.raises(UsageError, match=r"there is no checkpoint at .*nowhere"):
        bundle(tmp_path / "nowhere", [], target)
    other = Path(shutil.copytree(checkpoint, tmp_path / "other"))
    for part in ("training.json", "model.safetensors", "tokenizer.model"):
        (other / part).unlink()
        with pytest.raises(UsageError, match=rf"other is not? .*checkpoint.*it has no {part}"):
            bundle(other, [], target)
        shutil.copy(checkpoint / part, other)
    edit(other / "training.json", model={**read_record(other)["model"], "denoise_steps": 99})
    with pytest.raises(UsageError, match="trained with denoise_steps 99; 'tiny' now has 10"):
        bundle(other, [], target)
    shutil.copy(checkpoint / "training.json", other)
    with (other / "tokenizer.model").open("ab") as file:
        file.truncate(16_000_000)
    with pytest.raises(UsageError, match="at most 16000000 are bundled"):
        bundle(other, [], target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other"]

    (target / "notes.txt").parent.mkdir()
    (target / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds other files than a bundle"):
        bundle(checkpoint, [], target)
    assert files(target) == {"notes.txt"}


def test_the_last_checkpoint_of_a_pipeline_is_bundled_by_its_name(tmp_path, checkpoint, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(
        f"output_dir: out\nstages: [{{name: one, train: {{data: [a/b], steps: {STEP}}}}}]\n"
    )
    shutil.copytree(checkpoint, tmp_path / "out" / "one" / "checkpoints" / f"step_{STEP:07d}")
    assert call(app, "--pipeline", "mine.yaml", "--output", "tiny") == 0
    assert read_record(tmp_path / "tiny")["step"] == STEP
    printed = capsys.readouterr().out
    assert "Not known" not in printed
    assert CARD_FILE in printed


def test_the_card_of_a_policy_without_results(shipped):
    card = (shipped / CARD_FILE).read_text()
    manifest = read_bundle_manifest(shipped)
    for told in (
        manifest.files["model.safetensors"],
        f"{sum(math.prod(shape) for shape in params.shapes(TINY).values()):,} parameters",
        "It acts in simulation (libero_goal, libero_object) and produces text while it acts (narration).",
        "None yet for these weights.",
        f"1 training: {STEP} steps in all.",
        "oxygen-eval pipeline tiny",
        "| expert | demos: libero_goal 0-1, 3, libero_object 0-1, 3 | 8 | 4 | 16 |",
        "Apache-2.0",
    ):
        assert told in card
    assert len(card.splitlines()) < 60


def test_the_card_has_the_noise_scale_of_evaluation_if_the_record_differs(tmp_path, checkpoint, shipped):
    other = Path(shutil.copytree(checkpoint, tmp_path / "other"))
    edit(other / "training.json", model={**read_record(other)["model"], "noise_scale": 1.0})
    bundle(other, [], tmp_path / "noisy")
    told = "in `training.json`; its `noise_scale` has no effect on training, and is 0.0 in evaluation."
    assert told in render(tmp_path / "noisy")
    assert "noise_scale" not in render(shipped)


def test_a_dataset_for_texts_alone_is_marked(tmp_path):
    assert collect(tmp_path / "said", init_ids=(0, NEVER), policy="tiny", keep_failures=True) == 0
    write_checkpoint(tmp_path / "step_0000007", tmp_path / "said", seed=0)
    bundle(tmp_path / "step_0000007", [], tmp_path / "box")
    card = (tmp_path / "box" / CARD_FILE).read_text()
    (said,) = read_bundle_manifest(tmp_path / "box").data
    assert said.frames > 0
    assert "| tiny (failures are kept, for their texts) | said: " in card
    assert f" | 8 | 4 | {said.frames} |" in card


def test_reserved_states_are_the_test_and_other_runs_are_counted(shipped, evaluate):
    states = f"{FIRST}-{FIRST + 19}"
    runs = [
        evaluate(shipped, *WORDS, init_ids=states),
        evaluate(shipped, *WORDS, init_ids=f"{FIRST},1000"),  # not all reserved
        evaluate(shipped, *WORDS, init_ids=str(LAST + 1)),
        evaluate(shipped, init_ids=str(FIRST)),  # in words that training saw
    ]
    bundle(shipped, runs, shipped)
    results, card = read_results(shipped), (shipped / CARD_FILE).read_text()
    assert card == render(shipped)
    (row,) = [line for line in card.splitlines() if line.startswith("| libero_object")]
    (test,) = [result for result in results if len(result.init_ids) == 20]
    scores = test.texts["narration"]
    options = "--language-tasks narration --task-ids 0 1 --wordings held_out"
    assert row.split(" | ")[2:] == [
        f"`--mode unified --init-ids {states} {options}`",
        "40 of 40: 100.0 % (91.2 – 100.0)",
        "0-1: 100 %",
        f"narration phase {scores['phase'].pc:.1f}, object {scores['object'].pc:.1f}",
        "2 / 5 |",
    ]
    assert "also has 3 from other initial states" in card


def test_suites_reserve_the_states_of_the_test():
    reserved = {load(SuiteConfig, suite).test_init_ids for suite in names(SuiteConfig)}
    assert reserved - {None} == {(FIRST, LAST)}


def test_states_of_demonstrations_are_not_tests_and_silent_policies_have_no_text_scores(shipped, evaluate):
    silent = evaluate(shipped, *WORDS, "--language-tasks", "none", init_ids=str(FIRST))
    bundle(shipped, [silent], shipped)
    assert "2 of 2: 100.0 %" in render(shipped)
    assert "narration phase" not in render(shipped)
    data = json.loads((shipped / "manifest.json").read_text())["data"]
    data[0]["init_ids"]["libero_object"].append(FIRST)
    edit(shipped / "manifest.json", data=data)
    assert "None yet for these weights." in render(shipped)


def test_results_are_added_and_those_of_other_weights_dropped(shipped, evaluate, demonstrations, tmp_path):
    first, second = evaluate(shipped), evaluate(shipped, "--mode", "shared")
    bundle(shipped, [first], shipped)
    (result,) = read_results(shipped)
    # Two evaluations that begin in one second, in folders of their own, are called the same.
    namesake = result.model_copy(update={"init_ids": (8, 9)})
    write_results(shipped, [result, namesake, result])
    assert read_results(shipped) == (result, namesake)
    bundle(shipped, [second, first], shipped)
    bundle(shipped, [], shipped)
    assert len(read_results(shipped)) == 3
    write_checkpoint(tmp_path / "step_0000009", demonstrations, seed=1)
    bundle(tmp_path / "step_0000009", [], shipped)
    assert read_results(shipped) == ()


def test_options_without_effect_in_a_mode_are_not_part_of_a_result(shipped, evaluate, tmp_path):
    """An arm shares all options with the others; alone, it would be refused what only another can heed."""
    several = tmp_path / "several.yaml"
    several.write_text("tokens_per_frame: 2\n")
    shared, unified = (
        evaluate(shipped, "--config", str(several), "--mode", m) for m in ("shared", "unified")
    )
    bundle(shipped, [shared, unified], shipped)
    assert [result.options.get("tokens_per_frame") for result in read_results(shipped)] == [None, 2]


def test_a_run_of_another_preset_with_these_weights_names_it(shipped, evaluate):
    run = evaluate(shipped, *WORDS, init_ids=str(FIRST))
    config = json.loads((run / "manifest.json").read_text())["config"]
    edit(run / "manifest.json", config={**config, "policy": "tiny_memory"})
    bundle(shipped, [run], shipped)
    card = (shipped / CARD_FILE).read_text()
    assert "--policy tiny_memory --task-ids 0 1" in card
    assert "or with the policy that the options name" in card


def test_runs_of_other_weights_and_unfinished_ones_are_refused(shipped, evaluate, checkpoint):
    before = (shipped / CARD_FILE).read_bytes()
    random = evaluate(checkpoint, "--random-weights")
    with pytest.raises(UsageError, match=r"other weights.*\(random weights\)"):
        bundle(checkpoint, [random], shipped)
    unfinished = evaluate(checkpoint)
    edit(unfinished / "manifest.json", status="interrupted")
    with pytest.raises(UsageError, match="is interrupted; complete it with --resume"):
        bundle(checkpoint, [unfinished], shipped)
    with pytest.raises(UsageError, match=f"no run in {checkpoint}"):
        bundle(checkpoint, [unfinished.parent, checkpoint], shipped)
    assert (shipped / CARD_FILE).read_bytes() == before


@pytest.fixture
def corrections(tmp_path, demonstrations):
    """Other demonstrations, in which somebody was corrected."""
    folder = tmp_path / "corrections"
    shutil.copytree(demonstrations, folder)
    edit(folder / layout.MANIFEST, learner={"policy": "step_0000007", "weights_sha256": "0123456789abcdef"})
    return folder


@pytest.fixture
def second(tmp_path, checkpoint, corrections):
    """The bundled checkpoint of a training on the corrections that began from `checkpoint`."""
    write_checkpoint(tmp_path / "second", corrections, seed=1, start=checkpoint)
    bundle(tmp_path / "second", [], tmp_path / "tiny")
    return tmp_path / "tiny"


def names_of(folder):
    return sorted(each.name for each in read_bundle_manifest(folder).data)


def test_both_trainings_are_kept_and_counted(second):
    record = read_record(second)
    assert [each["recipe"]["seed"] for each in trainings_of(record)] == [0, 1]
    assert [each["start_from"] for each in trainings_of(record)] == [None, "step_0000007"]
    assert names_of(second) == ["corrections", "demos"]
    card = render(second)
    assert "2 trainings, each from the weights of the one before: 14 steps in all." in card
    assert "| expert | demos: " in card
    assert "| expert, correcting step_0000007 | corrections: " in card
    assert "Not known" not in card


def test_datasets_of_one_name_are_kept_and_suites_may_have_dots(tmp_path, checkpoint, corrections):
    namesake = corrections.rename(tmp_path / "demos")
    keys = ("mine.v2.0.5.7.0123456789ab.0", "mine.v2.1.1000.7..0.5", "mine.v2.0.6.7.012345678901.0.5")
    edit(namesake / layout.MANIFEST, demonstrations=keys, failed=[])
    write_checkpoint(tmp_path / "second", namesake, seed=1, start=checkpoint)
    bundle(tmp_path / "second", [], tmp_path / "tiny")
    first, second = read_bundle_manifest(tmp_path / "tiny").data
    assert (first.name, second.name) == ("demos", "demos")
    assert second.init_ids == {"mine.v2": (5, 6, 1000)}


@pytest.mark.parametrize(
    "forged",
    [{"counts": 5}, {"counts": {}}, {"failed": [5]}, {"failed": ["demo"]}, {"git": None}, {"policy": 5}],
)
def test_a_forged_manifest_of_a_dataset_is_one_line(forged, tmp_path, corrections):
    edit(corrections / layout.MANIFEST, **forged)
    write_checkpoint(tmp_path / "second", corrections, seed=1)
    with pytest.raises(UsageError, match=rf"{corrections / layout.MANIFEST}: .*(is|missing)"):
        bundle(tmp_path / "second", [], tmp_path / "tiny")


@pytest.mark.parametrize("forged", ["data", "start_from", "norm_stats", "wordings"])
def test_a_forged_record_of_a_training_is_one_line(forged, tmp_path, corrections):
    write_checkpoint(tmp_path / "second", corrections, seed=1)
    edit(tmp_path / "second" / "training.json", **{forged: 5})
    with pytest.raises(UsageError, match=rf"training\.json is not what training writes: {forged} is 5"):
        bundle(tmp_path / "second", [], tmp_path / "tiny")


def test_no_local_path_is_bundled_and_no_wordings_twice(tmp_path, checkpoint, corrections, evaluate):
    write_checkpoint(tmp_path / "second", corrections, seed=1, start=checkpoint)
    edit(tmp_path / "second" / "training.json", norm_stats=str(checkpoint))
    bundle(tmp_path / "second", [evaluate(tmp_path / "second")], tmp_path / "tiny")
    record = read_record(tmp_path / "tiny")
    assert record["norm_stats"] == checkpoint.name
    assert [each["data"] for each in trainings_of(record)] == [["demos"], ["corrections"]]
    assert ["wordings" in each for each in trainings_of(record)] == [False, True]
    assert read_results(tmp_path / "tiny")
    for file in ("training.json", "manifest.json", "results.json", CARD_FILE):
        assert str(tmp_path.parent.parent) not in (tmp_path / "tiny" / file).read_text()


def test_unknown_provenance_is_reported(tmp_path, checkpoint, demonstrations, corrections, capsys):
    gone = shutil.copytree(checkpoint, tmp_path / "step_0000007")
    write_checkpoint(tmp_path / "orphan", corrections, seed=1, start=gone)
    edit(tmp_path / "orphan" / "training.json", data=[str(corrections), str(tmp_path / "lost")])
    shutil.rmtree(gone)
    assert call(app, tmp_path / "orphan", "--output", tmp_path / "tiny") == 0
    printed, card = capsys.readouterr().out, render(tmp_path / "tiny")
    for unknown in ("how step_0000007, from which training began, was trained", "what is in dataset lost"):
        assert f"Not known, and the card says so: {unknown}" in printed
        assert f"- {unknown}\n" in card


def test_a_checkpoint_that_replaced_its_start_is_not_its_own_start(tmp_path, demonstrations):
    place = tmp_path / "place"
    write_checkpoint(place, demonstrations, seed=1, start=place)
    bundle(place, [], tmp_path / "tiny")
    assert "- how place, from which training began, was trained" in render(tmp_path / "tiny")


def test_a_bundle_that_replaced_its_start_is_not_its_own_start(tmp_path, second, corrections, monkeypatch):
    """Nor is it the start of an earlier training. It may hold the same weights in other bytes."""
    monkeypatch.setattr("oxygen.weights.source.bundled", {"tiny": second}.__getitem__)
    extra = shutil.copytree(corrections, tmp_path / "extra")
    third, fourth = tmp_path / "third", tmp_path / "fourth"
    write_checkpoint(third, corrections, seed=2, start="bundled://tiny")
    write_checkpoint(fourth, extra, seed=3, start=third)
    for checkpoint, seeds, data in (
        (third, [0, 1, 2], ["corrections", "demos"]),
        (fourth, [0, 1, 2, 3], ["corrections", "demos", "extra"]),
        (third, [0, 1, 2], ["corrections", "demos"]),
    ):
        for start in ("the bundle before", "its own bundle"):
            bundle(checkpoint, [], second)
            trained = [each["recipe"]["seed"] for each in trainings_of(read_record(second))]
            assert (trained, names_of(second)) == (seeds, data), start
            shutil.copy(tmp_path / "second" / SINGLE_FILE, checkpoint)
