"""`python -m eval.bundle`: what is served is put into the package, and nothing beside it."""

import hashlib
import itertools
import json
import math
import shutil
from pathlib import Path

import pytest
import yaml

from configs.errors import UsageError
from configs.schema import RunConfig
from eval.bundle import bundling
from eval.bundle.__main__ import app
from eval.bundle.bundling import bundle
from eval.bundle.card import CARD_FILE
from eval.bundle.manifest import read_bundle_manifest
from eval.policies.names import read_policy
from oxygen.model import params
from oxygen.model.config import TINY
from oxygen.presets.checkpoints import read_record
from tests.eval.bundle.conftest import STEP
from tests.eval.policies.test_policies import actions_of


def files(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def test_served_files_are_bundled_without_the_optimisers_state(shipped, checkpoint):
    served = {
        "model.safetensors",
        "tokenizer.model",
        "policy.yaml",
        "assets/physical-intelligence/libero/norm_stats.json",
    }
    assert files(shipped) == served | {"training.json", "manifest.json", "results.json", CARD_FILE}
    for path in served:
        assert (shipped / path).read_bytes() == (checkpoint / path).read_bytes()


def test_the_manifest_describes_every_file(shipped):
    manifest = read_bundle_manifest(shipped)
    assert set(manifest.files) == files(shipped) - {"manifest.json", "results.json", CARD_FILE}
    for path, facts in manifest.files.items():
        content = (shipped / path).read_bytes()
        assert (facts.sha256, facts.bytes) == (hashlib.sha256(content).hexdigest(), len(content))
    assert manifest.parameters == sum(math.prod(shape) for shape in params.shapes(TINY).values())
    assert manifest.step == STEP


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
    (tmp_path / "gone.yaml").write_text(yaml.safe_dump({**content, "checkpoint": "bundled://none"}))
    with pytest.raises(UsageError, match=r"no checkpoint at bundled://none\. Nearest: .*/tiny"):
        read_policy(str(tmp_path / "gone.yaml"))


def test_no_local_path_is_bundled(shipped, demonstrations, evaluate, checkpoint):
    assert read_record(shipped)["data"] == ["demos"]
    bundle(None, [evaluate(checkpoint)], shipped, data=[])
    for file in ("training.json", "manifest.json", "results.json", CARD_FILE):
        assert str(demonstrations.parent) not in (shipped / file).read_text()
        assert str(checkpoint.parent) not in (shipped / file).read_text()


def test_refused_checkpoints_change_nothing(tmp_path, checkpoint, monkeypatch):
    target = tmp_path / "tiny"
    with pytest.raises(UsageError, match="nothing is bundled"):
        bundle(None, [], target, data=[])
    with pytest.raises(UsageError, match=r"there is no checkpoint at .*nowhere"):
        bundle(tmp_path / "nowhere", [], target, data=[])
    with pytest.raises(UsageError, match=r"no demonstrations at .*gone/demos.*--data"):
        bundle(checkpoint, [], target, data=[tmp_path / "gone" / "demos"])
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


class Killed(BaseException):
    """Nothing handles it."""


@pytest.mark.parametrize("change", range(4))
def test_a_kill_during_the_replacement_loses_nothing(shipped, checkpoint, evaluate, monkeypatch, change):
    """What is bundled is whole where it was, or the next bundling puts it back."""
    run, count = evaluate(shipped), itertools.count()

    def dying(act):
        def acted(*arguments, **options):
            if next(count) >= change:
                raise Killed
            return act(*arguments, **options)

        return acted

    manifest, put_in_place = read_bundle_manifest(shipped), bundling._put_in_place
    with monkeypatch.context() as dies:

        def killed(*folders):
            dies.setattr(Path, "rename", dying(Path.rename))
            dies.setattr(bundling.shutil, "rmtree", dying(shutil.rmtree))
            put_in_place(*folders)

        dies.setattr(bundling, "_put_in_place", killed)
        with pytest.raises(Killed):
            bundle(None, [run], shipped, data=[])
    summary = bundle(None, [], shipped, data=[])
    assert summary.manifest == manifest
    assert sorted(path.name for path in shipped.parent.iterdir()) == ["tiny"]


@pytest.mark.parametrize("part", ["training.json", "model.safetensors", "tokenizer.model"])
def test_an_incomplete_checkpoint_is_refused_in_one_line(tmp_path, checkpoint, part):
    other = tmp_path / "other"
    shutil.copytree(checkpoint, other)
    (other / part).unlink()
    with pytest.raises(UsageError, match=rf"other is not? .*checkpoint.*it has no {part}"):
        bundle(other, [], tmp_path / "tiny", data=[])


def test_the_command_prints_a_summary(tmp_path, checkpoint, capsys):
    target = tmp_path / "tiny"
    app([str(checkpoint), "--output", str(target)], result_action="return_value")
    printed = capsys.readouterr().out
    assert f"tiny: {read_bundle_manifest(target).parameters:,} parameters after {STEP} steps" in printed
    assert str(target / CARD_FILE) in printed


def test_the_last_checkpoint_of_a_pipeline_is_bundled_by_its_name(tmp_path, checkpoint, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(
        f"output_dir: out\nstages: [{{name: one, train: {{data: [a/b], steps: {STEP}}}}}]\n"
    )
    shutil.copytree(checkpoint, tmp_path / "out" / "one" / "checkpoints" / f"step_{STEP:07d}")
    app(["--pipeline", "mine.yaml", "--output", "tiny"], result_action="return_value")
    assert read_bundle_manifest(tmp_path / "tiny").step == STEP


def test_data_without_a_checkpoint_is_refused_and_nothing_changes(shipped):
    before = {path: (shipped / path).read_bytes() for path in files(shipped)}
    with pytest.raises(UsageError, match="--data demos has no effect without a new checkpoint"):
        app(
            ["--data", "demos", "--output", str(shipped)],
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    assert {path: (shipped / path).read_bytes() for path in files(shipped)} == before
