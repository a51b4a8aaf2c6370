"""`python -m eval.run`: any suite and any policy, by name; `eval.libero` is it with LIBERO's defaults."""

from importlib.metadata import EntryPoint, EntryPoints

import pytest
import yaml

from configs.errors import UsageError
from configs.load import load
from configs.schema import SuiteConfig
from eval import libero, run
from eval.policies.names import read_policy
from eval.records.schema import RunFolder
from sim_envs.fake import FakeSuite, FakeWorld
from sim_envs.libero.suite import LiberoSuite
from sim_envs.suite import open_suite
from tests.eval.conftest import call
from tests.eval.doubles import FakePolicy, without_physics

ONE = ["--policy", "noop", "--mode", "actions", "--task-ids", "3", "--init-ids", "5", "--video", "none"]


@pytest.mark.parametrize(
    "line",
    [
        "--policy expert --seed 3",
        "--policy tiny --mode isolated unified --against actions --language-tasks memory --deadline-ms 90",
        "--config demo --task-ids 0-2",
        "--smoke",
    ],
)
def test_both_commands_lead_to_the_same_runs(started, line):
    assert call(libero.app, "--suite", "libero_object", *line.split()) == 0
    ours = started[:]
    assert call(run.app, "--suite", "libero_object", *line.split()) == 0
    assert started[len(ours) :] == ours
    assert ours[0].suites == ("libero_object",)


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("", ["no suite is named", "--suite"]),
        ("--suite libero_goal --policy tiny --policy-kwargs a=1", ["--policy-kwargs a=1", "tiny is of kind"]),
        ("--suite libero_goal --policy noop --policy-kwargs a", ["'a'", "key=value"]),
        ("--suite libero_goal --policy noop --log tensorbord", ["'tensorbord'", "mean 'tensorboard'"]),
        ("--suite libero_goal --policy noop --replan-steps 11", ["11 control steps", "--replan-steps 10"]),
        (
            "--suite libero_goal --policy pi05_droid --random-weights",
            ["'pi05_droid'", "'LIBERO'", "Choose a policy"],
        ),
        ("--suite libero_goal --policy noop --clock rtx4090", ["mean 'profile:rtx4090'"]),
        ("--suite libero_goal --policy my_policy.py", ["name a class", "my_policy.py:MyPolicy"]),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(line, parts, tmp_path, refused, monkeypatch):
    without_physics(monkeypatch)
    said = refused(run.app, *line.split(), "--output-dir", tmp_path / "runs")
    assert [part for part in parts if part not in said] == []
    assert not (tmp_path / "runs").exists()


def test_two_suites_of_one_name_are_refused(tmp_path, refused):
    """Their episodes would have the same keys."""
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    for file in (one, two):
        file.write_text(yaml.safe_dump(FakeSuite.published.model_dump(mode="json")))
    said = refused(run.app, "--suite", one, two, "--policy", "noop", "--output-dir", tmp_path / "runs")
    assert f"--suite {one} {two}: both are named 'fake'" in said
    assert not (tmp_path / "runs").exists()


def test_an_option_that_a_file_cannot_have_is_answered_with_its_flag(tmp_path, refused):
    file = tmp_path / "mine.yaml"
    for content, flag in (("num_envs: 2", "--num-envs 2"), ("output_dir: out", "--output-dir out")):
        file.write_text(content)
        said = refused(run.app, "--suite", "libero_goal", "--config", file, "--output-dir", tmp_path / "runs")
        assert f"is given on the command line: {flag}" in said


class Elsewhere(LiberoSuite):
    """A suite of another package."""

    published = load(SuiteConfig, "libero_object").model_copy(update={"max_steps": 9})

    def check(self, tasks):
        assert [task.task_id for task in tasks] == [3]

    def open(self, task):
        return FakeWorld(success_at=7, language=task.language)


@pytest.fixture
def installed(monkeypatch) -> None:
    """A package that brings the suite and the policy `elsewhere`."""
    points = EntryPoints(
        [
            EntryPoint("elsewhere", f"{__name__}:Elsewhere", "oxygen_eval.suites"),
            EntryPoint("gone", f"{__name__}:Gone", "oxygen_eval.suites"),
            EntryPoint("elsewhere", "their_package.policies:Policy", "oxygen_eval.policies"),
        ]
    )
    for module in ("sim_envs.suite", "eval.policies.names"):
        monkeypatch.setattr(f"{module}.entry_points", lambda group: points.select(group=group))


@pytest.mark.usefixtures("installed")
def test_a_suite_of_another_package_is_run_by_its_name(tmp_path):
    where = ["--assets", "standins", "--output-dir", str(tmp_path)]
    assert call(run.app, "--suite", "elsewhere", *ONE, *where) == 0
    (folder,) = map(RunFolder, tmp_path.iterdir())
    manifest = folder.read_manifest()
    assert manifest["config"]["suites"] == ["elsewhere"]
    assert manifest["protocol"]["libero_object"]["suite"]["max_steps"] == 9
    assert [result.outcome.value for result in folder.episodes().values()] == ["success"]


@pytest.mark.usefixtures("installed")
def test_a_missing_class_and_a_near_name_are_named():
    with pytest.raises(UsageError, match=r"suite gone.*'Gone'"):
        open_suite("gone")
    with pytest.raises(UsageError, match="'elswhere'; did you mean 'elsewhere'"):
        read_policy("elswhere")


@pytest.mark.usefixtures("installed")
def test_a_policy_of_another_package_is_found_by_its_name():
    found = read_policy("elsewhere", {"device": "cpu"})
    assert (found.name, found.kind, found.target) == ("elsewhere", "python", "their_package.policies:Policy")
    assert found.kwargs == {"device": "cpu"}


class Talking(FakePolicy):
    """Its replies have texts."""

    writes_texts = True


@pytest.mark.parametrize(
    ("policy", "given", "mode"),
    [
        ("tests.eval.test_testing:Still", [], "actions"),
        ("tests.eval.test_testing:Still", ["--mode", "unified"], "unified"),
        ("tests.eval.doubles:FakePolicy", [], "actions"),
        (f"{__name__}:Talking", [], "unified"),
    ],
)
def test_a_policy_without_texts_runs_in_mode_actions_unless_one_is_chosen(
    policy, given, mode, tmp_path, monkeypatch, capsys
):
    without_physics(monkeypatch)
    one = ["--policy", policy, "--suite", "libero_object", "--task-ids", "3", "--num-trials-per-task", "4"]
    assert call(run.app, *one, *given, "--output-dir", tmp_path, "--no-report") == 0
    (folder,) = map(RunFolder, tmp_path.iterdir())
    assert folder.run_id.endswith(f"-{mode}")
    assert folder.read_manifest()["config"]["mode"] == mode
    said = capsys.readouterr().out
    assert ("without texts, every mode does what mode actions does" in said) == (
        policy.endswith("Still") and mode == "unified"
    )
    heading, *_ = said[said.index(policy.rpartition(":")[2] + " in mode") :].splitlines()
    name = policy.rpartition(":")[2]
    assert heading.startswith(f"{name} in mode {mode}, 4 episodes (1 task of libero_object)")
