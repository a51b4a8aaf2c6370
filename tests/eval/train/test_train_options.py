"""The options of `oxygen-eval train`: what they lead to, and what is refused before any training."""

import json
import re
from collections.abc import Callable

import pytest

from configs.language_task import LanguageTaskConfig
from configs.load import load
from configs.schema import SuiteConfig
from configs.training import TrainConfig
from contracts.errors import UsageError
from eval.train.__main__ import app
from eval.train.training import training_of
from oxygen.presets.language_tasks import language_task
from oxygen.training import layout
from oxygen.training.run_folder import RUN_FILE
from sim_envs.libero.tasks import get_task
from sim_envs.libero.wordings import wordings
from tests.commands import call


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--steps", "0"], "steps is '0'"),
        (["--minutes", "-1"], "--minutes.*Must be > 0"),
        (["--image-shift", "1"], "image_shift is '1': .*less than 1"),
        (["--optimiser", "adam"], "unknown optimiser 'adam'; did you mean 'adamw'"),
        (["--adapter", "4", "--policy", "tiny", "--optimiser", "muon"], "an adapter takes adamw"),
        (["--eval-suite", "libero_goal", "--eval-wordings", "heldout"], "'heldout'.*did you mean 'held_out'"),
        (["--resume"], "nothing to resume"),
        (["--texts-only", "--draws", "2"], "`draws` is 2, but it has no effect with `texts_only`"),
        (["--eval-task-ids", "0-4"], "--eval-task-ids 0 1 2 3 4 has no effect without.* with --eval-suite"),
        (["--text-rows", "99", "--batch", "8"], "text_rows is 99"),
        (["--tokenizer", "nowhere.model"], "nowhere.model"),
        (["--eval-suite", "libero_goal", "--eval-task-ids", "12"], "12.*0 to 9"),
        (["--eval-suite", "libero_goal", "--eval-assets", "./nowhere"], "'.*nowhere'.*not a folder"),
        (
            ["--eval-suite", "libero_90", "--eval-task-ids", "88", "--eval-assets", "standins"],
            "libero_90 task 88 needs .* no stand-ins.*--assets",
        ),
        (["--eval-suite", "libero_goal", "--embodiment", "droid"], "policy 'tiny'.*environment 'LIBERO'"),
        (["--start-from", "noop"], "policy 'noop' has no weights"),
        (["--norm-stats", "from-start"], "needs a policy to start from"),
        (["--texts-only"], "needs a trained policy"),
        (["--texts-only", "--start-from", "tiny", "--language-tasks", "none"], "name some"),
    ],
)
def test_bad_options_are_refused_before_demonstrations_are_read(options, message, tmp_path, refused):
    given = ("--data", "nowhere", "--output-dir", tmp_path / "out")
    assert re.search(message, refused(app, *given, *options))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "rows", "optimiser", "rate", "robot"),
    [
        ([], 16, "muon", 0.002, "libero_compact"),
        (["--batch", "8", "--model", "small"], 2, "muon", 0.002, "libero"),
        (["--texts-only", "--batch", "8", "--policy", "tiny"], 8, "muon", 0.002, "libero_compact"),
        (["--adapter", "4", "--policy", "tiny", "--embodiment", "libero"], 64, "adamw", 0.001, "libero"),
    ],
)
def test_defaults_depend_on_what_is_trained(flags, rows, optimiser, rate, robot, asked):
    options = asked("--data", "demos", *flags)
    assert (options.text_rows, options.optimiser, options.learning_rate) == (rows, optimiser, rate)
    assert training_of(options).embodiment == robot


@pytest.mark.parametrize(
    ("options", "loaded"),
    [
        (["--model", "tiny"], []),
        (["--model", "pi05_libero"], ["gs://big_vision/paligemma_tokenizer.model"]),
        (["--model", "pi05_libero", "--tokenizer", "mine.model"], ["mine.model"]),
    ],
)
def test_the_vocabulary_is_by_default_the_policys(options, loaded, tmp_path, monkeypatch, refused):
    asked: list[str] = []
    monkeypatch.setattr("oxygen.robots.tokenizer.load", asked.append)
    assert "nowhere" in refused(app, "--data", "nowhere", "--output-dir", tmp_path / "out", *options)
    assert asked == loaded


def test_resuming_a_folder_without_recorded_options_needs_them_again(tmp_path, asked, refused):
    (tmp_path / RUN_FILE).write_text("{}")
    again = ("--resume", "--output-dir", tmp_path)
    assert "give folders of demonstrations with --data" in refused(app, *again)
    options = asked(*again, "--data", "demos", "--steps", "7")
    assert (options.data, options.steps) == (("demos",), 7)


@pytest.fixture
def asked(tmp_path, monkeypatch) -> Callable[..., TrainConfig]:
    """What a command line asks for; nothing is trained."""
    found: list[TrainConfig] = []
    monkeypatch.setattr("eval.train.training.run_training", lambda options, *_, **__: found.append(options))
    monkeypatch.chdir(tmp_path)

    def asked(*arguments: object) -> TrainConfig:
        assert call(app, *arguments) == 0
        return found[-1]

    return asked


OPTIONS = TrainConfig(embodiment="libero", steps=1)


def having(options: TrainConfig, **changes) -> TrainConfig:
    return options.model_copy(update=changes)


def test_training_starts_from_a_named_policy_with_its_statistics():
    named = having(OPTIONS, start_from="tiny", norm_stats="from-start")
    assert training_of(named).start_from == training_of(named).norm_stats == "bundled://tiny"
    base = training_of(having(named, start_from="pi05_base"))
    assert base.start_from == "gs://openpi-assets/checkpoints/pi05_base"
    assert base.norm_stats.endswith("physical-intelligence/libero/norm_stats.json")
    texts = TrainConfig(texts_only=True, start_from="tiny")
    assert training_of(texts).norm_stats == "bundled://tiny"
    path = having(named, start_from="some/checkpoint")
    assert training_of(path).start_from == training_of(path).norm_stats == "some/checkpoint"
    assert training_of(having(path, norm_stats="measured")).norm_stats is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "small"], "--model small, but tiny has tiny; leave it out"),
        (["--embodiment", "libero_state"], "--embodiment libero_state, but tiny has libero_compact; leave"),
        (["--tokenizer", "other.model"], "--tokenizer other.model, but tiny has .*; leave it out"),
        ([], "nowhere"),
    ],
)
def test_training_texts_keeps_model_robot_and_vocabulary(options, message, tmp_path, refused):
    for kind in (["--texts-only"], ["--adapter", "4"]):
        start = ("--data", "nowhere", "--start-from", "tiny", "--output-dir", tmp_path / "out")
        assert re.search(message, refused(app, *kind, *start, *options))


@pytest.mark.parametrize("others", [(), ("--start-from", "tiny", "--adapter", "4")])
def test_a_share_of_the_initial_weights_needs_these_and_no_adapter(others, refused):
    message = refused(app, "--data", "nowhere", "--start-share", "0.5", *others)
    assert "a share of the weights of" in message


def test_options_from_a_file_are_overridden_by_flags(tmp_path, asked, refused):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "data: [demos]\ntext_weight: 0.3\nweight_decay: 0\nstate_noise: 0.1\nsteps: 7\nema: 0.5\n"
    )
    options = asked("--config", file, "--steps", "9")
    assert (options.steps, options.text_weight, options.weight_decay, options.ema) == (9, 0.3, 0.0, 0.5)
    file.write_text("emma: 0.5\n")
    assert "unknown key 'emma'; did you mean 'ema'" in refused(app, "--config", file)


def test_trained_language_tasks_are_those_that_are_served():
    served = tuple(language_task(load(LanguageTaskConfig, name)) for name in OPTIONS.language_tasks)
    assert training_of(OPTIONS).tasks == served
    assert TrainConfig(language_tasks="none").language_tasks == ()
    kept = {"start_from": "tiny_memory", "language_tasks": ("memory",)}
    for options in (TrainConfig(texts_only=True, **kept), TrainConfig(adapter=4, **kept)):
        (task,) = training_of(options).tasks
        assert [each.field for each in task.feedback] == ["memory"]


def test_a_training_records_the_wordings_of_its_suites_of_which_one_has_a_file_of_its_own(tmp_path):
    protocol = load(SuiteConfig, "libero_goal").model_dump(mode="json")
    manifest = tmp_path / "collected" / layout.MANIFEST
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"suites": {"libero_object": protocol, "mine": protocol}}))
    collected = having(OPTIONS, data=(str(tmp_path / "collected"), str(tmp_path / "recorded")))
    identity = training_of(collected).identity()
    for task in (get_task("libero_object", 7), get_task("libero_goal", 3)):
        assert identity["wordings"][task.language] == list(wordings(task.language, "training"))
    assert get_task("libero_spatial", 0).language not in identity["wordings"]
    plain = having(collected, wordings="benchmark")
    assert training_of(plain).identity()["wordings"] == {}


@pytest.mark.parametrize("suites", [5, ["libero_object"], {"mine": 5}, {"mine": {"world": 5}}])
def test_a_forged_manifest_of_demonstrations_is_one_line(suites, tmp_path):
    manifest = tmp_path / layout.MANIFEST
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"suites": suites}))
    with pytest.raises(UsageError, match="suite") as raised:
        training_of(having(OPTIONS, data=(str(tmp_path),)))
    assert "\n" not in str(raised.value)


def test_the_smoke_training_takes_what_the_smoke_collection_writes(tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    assert "oxygen-eval collect --config smoke --output demonstrations" in refused(app, "--config", "smoke")
