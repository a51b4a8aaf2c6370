"""`python -m scripts.pipeline`: its commands have the options of the stages, and the same command resumes."""

import hashlib
import shlex
import subprocess

import pytest
import yaml

from eval.collect.__main__ import app as collect_app
from eval.train.__main__ import app as train_app
from oxygen.training.run_folder import CHECKPOINTS
from oxygen.weights.source import bundled
from scripts import bundle, pipeline
from tests.commands import call


@pytest.mark.parametrize("name", [file.stem for file in pipeline.FOLDER.iterdir()])
def test_commands_have_the_options_of_the_stages(name, tmp_path, monkeypatch):
    collected, trained = [], []
    collect, train = "eval.collect.collection.collect_demonstrations", "eval.train.training.run_training"
    monkeypatch.setattr(collect, lambda *given, workers: collected.append(given))
    monkeypatch.setattr(train, lambda *given, **_: trained.append(given))
    stages = pipeline.read_pipeline(name)
    stages = stages.model_copy(update={"output_dir": str(tmp_path)})
    for stage in stages.stages:
        for command, *options in stages.commands(stage):
            assert call({"collect": collect_app, "train": train_app}[command], *options) == 0

    checkpoints = {stage.name: str(stage.checkpoint_in(stages.folder)) for stage in stages.stages}
    steps = [step for stage in stages.stages for step in stage.collect]
    for step, (options, output) in zip(steps, collected, strict=True):
        names = {name: getattr(step, name) for name in ("policy", "learner")}
        placed = {name: checkpoints.get(policy, policy) for name, policy in names.items()}
        assert options.model_dump() == {**step.model_dump(exclude={"output"}), **placed}
        assert output == stages.folder / step.output
    for stage, (options, folder) in zip(stages.stages, trained, strict=True):
        start = stage.train.start_from
        data = tuple(str(stages.folder / dataset) for dataset in stage.train.data)
        placed = {"data": data, "start_from": checkpoints.get(start, start)}
        assert options == stage.train.model_copy(update=placed)
        assert folder == stages.folder / stage.name


def test_the_same_command_resumes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stage = {"collect": [{"suites": "fake", "output": "demos"}], "train": {"data": "demos"}}
    stages = [{"name": "one", **stage}, {"name": "two", "train": {"data": "demos", "start_from": "one"}}]
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"output_dir": "out", "stages": stages}))
    commands: list[str] = []

    def run(line: list[str], **_: object) -> None:
        commands.append(shlex.join(line[4:]))
        if len(commands) == 2:  # the first training is interrupted
            (tmp_path / "out/one").mkdir(parents=True)
            (tmp_path / "out/one/run.json").touch()
            raise subprocess.CalledProcessError(130, line)
        if line[4] == "train":
            (tmp_path / line[line.index("--output-dir") + 1] / CHECKPOINTS / "step_0020000").mkdir(
                parents=True
            )

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(subprocess.CalledProcessError):
        pipeline.main("mine.yaml")
    pipeline.main("mine.yaml")
    first = ["collect --output out/demos --suite fake", "train --data out/demos --output-dir out/one"]
    start = "--start-from out/one/checkpoints/step_0020000"
    second = f"train --data out/demos {start} --output-dir out/two"
    assert commands == [*first, first[0], f"{first[1]} --resume", second]
    pipeline.main("mine.yaml")
    assert len(commands) == 5


def test_a_bundle_has_what_serving_needs(tmp_path):
    bundle.main(bundled("tiny"), tmp_path)
    names = {file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*") if file.is_file()}
    there = yaml.safe_load((tmp_path / "manifest.json").read_text())["files"]
    assert names == {*there, "manifest.json"}
    for path, digest in there.items():
        assert hashlib.sha256((tmp_path / path).read_bytes()).hexdigest() == digest
    assert (tmp_path / "model.safetensors").read_bytes() == (
        bundled("tiny") / "model.safetensors"
    ).read_bytes()
