"""Several modes over the same episodes: played in turns, recorded apart, compared, and resumed together."""

import contextlib
import dataclasses
import itertools
from pathlib import Path

import pytest

from configs.schema import RunConfig, VariantsConfig
from contracts.clock import Fixed
from contracts.errors import UsageError
from contracts.mode import Mode
from eval.policies.opening import open_policies
from eval.policies.resolved import resolve_policy
from eval.records import run_folders
from eval.records.reader import find_runs
from eval.records.run_folders import find_unfinished, locked_run, new_run
from eval.records.schema import RunFolder
from eval.rollout.evaluation import exit_code
from sim_envs.fake import FakeWorld
from tests.eval.conftest import VARIANTS, begin, evaluate
from tests.eval.doubles import libero_object
from tests.eval.factory import compare, key


def test_variants_take_turns_in_every_episode(tmp_path, stage):
    assert exit_code(evaluate(*begin(tmp_path))) == 0
    firsts, seconds = stage.turns[::2], stage.turns[1::2]
    assert [key for _, key in firsts] == [key for _, key in seconds]
    assert sorted(mode for mode, _ in firsts) == ["isolated", "isolated", "unified", "unified"]
    assert sorted(mode for mode, _ in seconds) == ["isolated", "isolated", "unified", "unified"]


def test_two_evaluations_may_begin_in_the_same_second(tmp_path, stage):
    """The second one plans in the same second as the first, and begins while the first is at work."""
    first, second = begin(tmp_path), begin(tmp_path)
    rivals = zip(second, first, strict=True)
    second = [dataclasses.replace(variant, folder=rival.folder) for variant, rival in rivals]
    with contextlib.ExitStack() as locks:
        theirs = [locks.enter_context(locked_run(variant)) for variant in first]
        evaluate(*second)
        assert [list(variant.folder.path.glob("*.json")) for variant in theirs] == [[], []]
    left = {path.name: RunFolder(path) for path in tmp_path.iterdir()}
    ours = sorted(left.keys() - {variant.folder.run_id for variant in theirs})
    assert len(ours) == len(left) == 2
    assert [left[name].read_manifest()["status"] for name in ours] == ["complete", "complete"]
    assert [sorted(left[name].read_manifest()["variants"]) for name in ours] == [ours, ours]
    assert not compare(*(left[name] for name in ours)).actions.n_uneven


def recorded(asked: VariantsConfig) -> list[RunConfig]:
    """The variants as their manifests have them: with the names of the texts that `tiny` has learnt."""
    learnt = {"language_tasks": ("narration", "memory")}
    return [variant.model_copy(update=learnt) for variant in asked.variants()]


def test_resume_completes_all_variants(tmp_path, stage, capsys):
    stage.policy("isolated", interrupted_at=3)
    with pytest.raises(KeyboardInterrupt):
        evaluate(*begin(tmp_path))
    assert "Interrupted: 3 of 8 episodes" in " ".join(capsys.readouterr().out.split())
    again = find_unfinished(tmp_path, {})
    assert [run.folder.read_manifest()["status"] for run in again] == ["interrupted", "interrupted"]
    assert [run.config for run in again] == recorded(VARIANTS)
    done = len(stage.turns)
    assert exit_code(evaluate(*again)) == 0
    assert len(stage.turns) - done == 5
    assert [run.folder.read_manifest()["status"] for run in again] == ["complete", "complete"]
    with pytest.raises(UsageError, match=rf"is complete .*{again[0].folder.run_id}\); start another"):
        find_unfinished(tmp_path, {})


@pytest.mark.parametrize(
    "given",
    [
        {"mode": ("unified",)},
        {"mode": "unified", "against": "isolated"},
        {"mode": ("isolated", "unified"), "max_steps": 20},
        {"against": "isolated", "video": "none"},
    ],
)
def test_resume_finds_the_variants_by_the_command_that_began_them(tmp_path, stage, given):
    stage.policy("unified", interrupted_at=0)
    variants = begin(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        evaluate(*variants)
    assert [run.folder for run in find_unfinished(tmp_path, given)] == [run.folder for run in variants]


class Killed(BaseException):
    """Nothing handles it, and after it nothing is written any more."""


def kill_before(write: int, monkeypatch) -> None:
    """Let the process die before its n-th change of the file system, the first being 0."""
    begun = itertools.count()

    def dying(change):
        def changed(*arguments, **options):
            if next(begun) >= write:
                raise Killed
            return change(*arguments, **options)

        return changed

    for owner, names in {
        Path: ("mkdir", "rename", "replace", "rmdir", "unlink"),
        run_folders.shutil: ("rmtree",),
    }.items():
        for name in names:
            monkeypatch.setattr(owner, name, dying(getattr(owner, name)))


@pytest.mark.parametrize(
    "write", [write if write % 5 == 0 else pytest.param(write, marks=pytest.mark.slow) for write in range(16)]
)
def test_a_kill_while_an_evaluation_begins_leaves_all_or_nothing(tmp_path, stage, monkeypatch, write):
    output_dir = tmp_path / "runs"
    output_dir.mkdir()
    with monkeypatch.context() as dying:
        kill_before(write, dying)
        with pytest.raises(Killed):
            evaluate(*begin(output_dir))
    seen = [path for path in output_dir.iterdir() if not path.name.startswith(".")]
    if seen:
        again = find_unfinished(output_dir, {"mode": ("isolated", "unified")})
        evaluate(*again)
        assert [run.config for run in again] == recorded(VARIANTS)
        assert [len(run.folder.episodes()) for run in again] == [4, 4]
        assert {run.folder.path for run in again} == set(output_dir.iterdir())
    else:
        assert find_runs([output_dir]) == []
        with pytest.raises(UsageError, match="nothing to resume"):
            find_unfinished(output_dir, {})
        evaluate(*begin(output_dir))


def test_one_model_serves_all_variants_with_the_same_actions_bit_for_bit():
    asked = VariantsConfig(
        mode=("isolated", "shared", "unified", "actions"), policy="tiny", random_weights=True
    )
    together = open_policies(resolve_policy(asked.variants()[0]), asked.variants())
    queries = [replies_to_two_queries(policy) for policy in together]
    assert len({actions for actions, _, _ in queries}) == 1
    assert [end.compiles_after_warm_up for _, _, end in queries] == [0, 0, 0, 0]


@pytest.mark.slow
def test_a_variant_with_other_texts_is_served_as_if_alone():
    often = RunConfig(policy="tiny", random_weights=True, language_tasks=("narration",), tokens_per_frame=12)
    rarer = often.model_copy(update={"text_every": 2})
    silent = often.model_copy(update={"mode": Mode.ACTIONS, "tokens_per_frame": 5})
    together = open_policies(resolve_policy(silent), [silent, rarer, often])
    (alone,) = open_policies(resolve_policy(rarer), [rarer])
    queries = [replies_to_two_queries(policy) for policy in (*together, alone)]
    assert len({actions for actions, _, _ in queries}) == 1
    works = [[[job.batch for job in reply.work] for reply in replies] for _, replies, _ in queries]
    assert works == [[[], []], [[1], [1]], [[2], [2]], [[1], [1]]]
    requested = [[len(reply.requested) for reply in replies] for _, replies, _ in queries]
    assert requested == [[0, 0], [1, 0], [1, 1], [1, 0]]
    assert [end.compiles_after_warm_up for _, _, end in queries[-1:]] == [0]
    assert len({end.compiles_after_warm_up for _, _, end in queries[:-1]}) == 1


@pytest.mark.usefixtures("compiled_soon")
def test_one_model_serves_variants_with_and_without_guidance_and_other_texts():
    plain = RunConfig(policy="tiny", random_weights=True, language_tasks=("narration",), clock="fixed:100")
    guided = plain.model_copy(update={"tokens_per_frame": 1, "overlap": "rtc"})
    together = open_policies(resolve_policy(plain), [plain, guided])
    assert len({replies_to_two_queries(policy)[0] for policy in together}) == 1, "no chunk to be guided by"


def replies_to_two_queries(served):
    world = FakeWorld(image_size=64)
    policy = served.in_world(libero_object(), world)
    policy.reset(key())
    actions, replies = [], []
    for _ in range(2):
        actions.append(policy.act(world.observe()).tobytes())
        replies.append(policy.complete())
    return tuple(actions), replies, policy.finish()


def test_variants_share_a_simulator_unless_their_worlds_differ(tmp_path, stage):
    first = VARIANTS.variants()[1].model_copy(update={"clock": Fixed(50, 50)})
    more_often = first.model_copy(update={"replan_steps": 2, "while_waiting": "hold"})
    elsewhere = first.model_copy(update={"max_steps": 15})
    runs = [new_run(tmp_path, config) for config in (first, more_often, elsewhere)]
    evaluate(*runs)
    folders = [RunFolder(path) for path in tmp_path.iterdir()]
    assert [len(folder.episodes()) for folder in folders] == [4, 4, 4]
    assert len(stage.worlds) == 2 * len(VARIANTS.task_ids)
    tasks = [key.task_id for _, key in stage.turns]
    assert tasks == sorted(tasks)
    assert len({folder.read_manifest()["protocol_hash"] for folder in folders}) == 3
