"""`python -m eval.bundle`: what is served is put into the package, and nothing beside it."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import yaml

from configs.errors import UsageError
from configs.schema import RunConfig
from eval.bundle.__main__ import app
from eval.bundle.bundling import CARD_FILE, bundle, read_bundle_manifest
from eval.policies.resolved import read_policy
from oxygen.presets.checkpoints import read_record
from tests.eval.bundle.conftest import STEP
from tests.eval.policies.test_policies import actions_of


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


def test_no_local_path_is_bundled(shipped, demonstrations, evaluate, checkpoint):
    assert read_record(shipped)["data"] == ["demos"]
    bundle(shipped, [evaluate(checkpoint)], shipped)
    for file in ("training.json", "manifest.json", "results.json", CARD_FILE):
        assert str(demonstrations.parent) not in (shipped / file).read_text()
        assert str(checkpoint.parent) not in (shipped / file).read_text()


def test_refused_checkpoints_change_nothing(tmp_path, checkpoint, monkeypatch):
    target = tmp_path / "tiny"
    with pytest.raises(UsageError, match=r"there is no checkpoint at .*tiny"):
        app(["--output", str(target)], exit_on_error=False, print_error=False, result_action="return_value")
    with pytest.raises(UsageError, match=r"there is no checkpoint at .*nowhere"):
        bundle(tmp_path / "nowhere", [], target)
    other = tmp_path / "other"
    shutil.copytree(checkpoint, other)
    record = read_record(other)
    record["model"]["denoise_steps"] = 99
    (other / "training.json").write_text(json.dumps(record))
    with pytest.raises(UsageError, match="trained with denoise_steps 99; 'tiny' now has 10"):
        bundle(other, [], target)
    (other / "training.json").write_text((checkpoint / "training.json").read_text())
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


@pytest.mark.parametrize("part", ["training.json", "model.safetensors", "tokenizer.model"])
def test_an_incomplete_checkpoint_is_refused_in_one_line(tmp_path, checkpoint, part):
    other = tmp_path / "other"
    shutil.copytree(checkpoint, other)
    (other / part).unlink()
    with pytest.raises(UsageError, match=rf"other is not? .*checkpoint.*it has no {part}"):
        bundle(other, [], tmp_path / "tiny")


def test_the_last_checkpoint_of_a_pipeline_is_bundled_by_its_name(tmp_path, checkpoint, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(
        f"output_dir: out\nstages: [{{name: one, train: {{data: [a/b], steps: {STEP}}}}}]\n"
    )
    shutil.copytree(checkpoint, tmp_path / "out" / "one" / "checkpoints" / f"step_{STEP:07d}")
    app(["--pipeline", "mine.yaml", "--output", "tiny"], result_action="return_value")
    assert read_record(tmp_path / "tiny")["step"] == STEP
    printed = capsys.readouterr().out
    assert "Not known" not in printed
    assert CARD_FILE in printed
