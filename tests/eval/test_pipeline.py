"""`oxygen-eval pipeline`: stages follow on one another and are resumed; bad ones are refused."""

import itertools
import re
import signal
import sys

import pytest
import yaml

from configs.load import load
from configs.training import PipelineConfig
from eval import pipeline as command
from eval.bundle.bundling import TEST_STATES
from eval.collect.__main__ import app as collect_app
from eval.pipeline import checkpoint_of, stage_commands
from eval.train.__main__ import app as train_app
from tests.commands import call

TINY = load(PipelineConfig, "tiny")
COLLECTED = [(stage.name, step) for stage in TINY.stages for step in stage.collect]


@pytest.mark.parametrize("name", ["tiny", "tiny_droid", "tiny_memory"])
def test_commands_have_the_options_of_the_stages(name, tmp_path, monkeypatch):
    collected, trained = [], []
    collect, train = "eval.collect.collection.collect_demonstrations", "eval.train.training.run_training"
    monkeypatch.setattr(collect, lambda *given, workers: collected.append(given))
    monkeypatch.setattr(train, lambda *given, **_: trained.append(given))
    pipeline = load(PipelineConfig, name)
    for each, *options in itertools.chain(*stage_commands(pipeline, tmp_path).values()):
        assert call({"collect": collect_app, "train": train_app}[each], *options) == 0

    checkpoints = {stage.name: str(checkpoint_of(stage, tmp_path)) for stage in pipeline.stages}
    steps = [step for stage in pipeline.stages for step in stage.collect]
    for step, (options, output) in zip(steps, collected, strict=True):
        names = {name: getattr(step, name) for name in ("policy", "learner")}
        placed = {name: checkpoints.get(policy, policy) for name, policy in names.items()}
        assert options.model_dump() == {**step.model_dump(exclude={"output"}), **placed}
        assert output == tmp_path / step.output
    for stage, (options, folder) in zip(pipeline.stages, trained, strict=True):
        start = stage.train.start_from
        data = tuple(str(tmp_path / dataset) for dataset in stage.train.data)
        placed = {"data": data, "start_from": checkpoints.get(start, start)}
        assert options == stage.train.model_copy(update=placed)
        assert folder == tmp_path / stage.name


def test_the_stages_of_tiny_keep_development_and_test_apart_and_texts_to_the_previous_stage():
    assert len(COLLECTED) > len(TINY.stages)
    kept = {*range(30, 50), *TEST_STATES}
    assert not {init_id for _, step in COLLECTED for init_id in step.init_ids} & kept
    (number,) = [number for number, stage in enumerate(TINY.stages) if stage.train.texts_only]
    said = [step for _, step in COLLECTED if step.policy != "expert"]
    assert {step.output for step in said} == set(TINY.stages[number].train.data)
    assert {(step.policy, step.keep_failures) for step in said} == {(TINY.stages[number - 1].name, True)}


STAGE = {"name": "one", "collect": [{"suites": "fake", "output": "demos"}], "train": {"data": "demos"}}


def changed(**changes) -> dict:
    return {"output_dir": "out", "stages": [{**STAGE, **changes}]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (changed(train={"image_shfit": 1}), "key 'image_shfit'; did you mean 'image_shift'.*stages.0.train"),
        (changed(train={"data": "dmos"}), "unknown dataset of this stage or an earlier one 'dmos'.*'demos'"),
        (changed(train={"start_from": "tny"}), "unknown policy or earlier stage 'tny'; did you mean 'tiny'"),
        (changed(train={"start_from": "one"}), "unknown policy or earlier stage 'one'"),
        (changed(checkpoint=30), "stages.0: `checkpoint` is 30, but the training has 20000 steps"),
        (changed(train={"actions_reach_prefix": False}), "`actions_reach_prefix` is not for pipelines"),
        (changed(train={"texts_only": True, "draws": 2}), "stages.0.train: `draws` is 2"),
        ({"output_dir": "out", "stages": [STAGE, STAGE]}, "'one' twice"),
        (changed(train={"eval_init_ids": "3-1"}), "stages.0.train.eval_init_ids: .*runs backwards"),
    ],
)
def test_an_invalid_pipeline_is_refused_in_one_line(content, said, tmp_path, refused):
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(content))
    assert re.search(said, refused(command.app, file, "--dry-run"))


DOUBLE = """#!{python}
import os, signal, sys
from pathlib import Path

assert sys.argv[1:4] == ["-P", "-m", "eval"]
options = sys.argv[4:]
with Path("calls.txt").open("a") as calls:
    calls.write(" ".join(options) + "\\n")
if options[0] == "train":
    assert os.environ["MINE"] == "1"
    folder = Path(options[options.index("--output-dir") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").touch()
    number = int(os.environ.get("STOP", 0))
    if number:
        signal.pthread_sigmask(signal.SIG_BLOCK, [number])
        os.kill(os.getppid(), number)
        assert signal.sigwait([number]) == number
        sys.exit(130)
    (folder / "checkpoints" / "step_0020000").mkdir(parents=True)
"""
"""In place of Python: notes how it is called. A training is done at once, or its parent gets a signal."""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs two stages; returns the exit code, and the commands that were run."""
    monkeypatch.chdir(tmp_path)
    double = tmp_path / "python"
    double.write_text(DOUBLE.format(python=sys.executable))
    double.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(double))
    second = {"name": "two", "train": {"data": "demos", "start_from": "one"}}
    content = {"output_dir": "out", "environment": {"MINE": "1"}, "stages": [STAGE, second]}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(content))

    def run(*options: str) -> tuple[int, list[str]]:
        (tmp_path / "calls.txt").write_text("")
        return call(command.app, "mine.yaml", *options), (tmp_path / "calls.txt").read_text().splitlines()

    return run


COLLECTING = "collect --output out/demos --suite fake"
FIRST = "train --data out/demos --output-dir out/one"
SECOND = "train --data out/demos --start-from out/one/checkpoints/step_0020000 --output-dir out/two"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_forwarded_and_the_same_command_resumes(run, number, monkeypatch, capfd):
    with monkeypatch.context() as patch:
        patch.setenv("STOP", str(int(number)))
        assert run() == (130, [COLLECTING, FIRST])
    assert run() == (0, [COLLECTING, f"{FIRST} --resume", SECOND])
    assert run() == (0, [])
    assert "The policy: out/two/checkpoints/step_0020000" in capfd.readouterr().out


def test_a_dry_run_prints_the_commands_and_runs_none(run, capfd):
    assert run("--dry-run", "--output-dir", "other") == (0, [])
    printed = capfd.readouterr().out.splitlines()
    assert printed == [
        f"{variable}oxygen-eval {line}".replace("out/", "other/")
        for variable, line in [("", COLLECTING), ("MINE=1 ", FIRST), ("MINE=1 ", SECOND)]
    ]


def reduced(name: str, pipeline: PipelineConfig) -> dict:
    """The same stages: one task and two initial states a step, two small batches a training.

    Trainings begin with the bundled policy and change it little: no expert can save the episodes of a learner
    that knows nothing.
    """
    content = pipeline.model_dump(mode="json", exclude_unset=True, exclude={"defaults"})
    content["stages"][0]["train"]["start_from"] = name
    for stage in content["stages"]:
        stage.pop("checkpoint", None)
        stage["train"] |= {"steps": 2, "batch": 4, "save_every": 2, "warm_up": 1, "learning_rate": 1e-6}
        if not stage["train"].get("texts_only"):
            stage["train"]["norm_stats"] = "from-start"
        if "text_rows" in stage["train"]:
            stage["train"]["text_rows"] = 2
        for step in stage.get("collect", ()):
            step |= {"init_ids": step["init_ids"][-2:], "task_ids": step.get("task_ids", [0])[:1]}
            if "assets" in step:
                step["assets"] = "standins"
    return content


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["tiny", "tiny_droid", "tiny_memory"])
def test_a_pipeline_runs_from_end_to_end_at_reduced_size(name, tmp_path):
    pipeline = load(PipelineConfig, name)
    (tmp_path / "reduced.yaml").write_text(yaml.safe_dump(reduced(name, pipeline)))
    assert call(command.app, tmp_path / "reduced.yaml", "--output-dir", tmp_path / "run") == 0
    for stage in pipeline.stages:
        assert (tmp_path / "run" / stage.name / "checkpoints/step_0000002/training.json").is_file()
