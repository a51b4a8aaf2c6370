"""Runs of perturbed episodes: which variants are played, what the policy is told, resume, controls."""

import pytest

from configs.schema import RunConfig, VariantsConfig
from contracts.errors import UsageError
from contracts.perturbation import UNPERTURBED, format_perturbations
from eval.records.run_folders import find_unfinished, new_run
from eval.rollout.plan import make_plan
from tests.eval.conftest import begin, evaluate
from tests.eval.rollout.scaled import timeless


def sets_of(**options):
    return [
        format_perturbations(each) for each in VariantsConfig(suites=("droid_tabletop",), **options).perturbed
    ]


@pytest.mark.parametrize(
    ("options", "sets"),
    [
        ({}, ["none"]),
        ({"perturb": ["camera:3", "light"]}, ["none", "camera:3+light:3"]),
        ({"perturb": "camera:3", "control": "runs/A"}, ["camera:3"]),
        ({"perturb_each": "camera light", "severities": (1, 5)}, ["none"]),
        ({"perturb_each": ("camera", "light@2s"), "perturb": "wording:1"}, ["none"]),
    ],
)
def test_the_control_comes_first_and_only_once(options, sets):
    found = sets_of(**options)
    assert found[: len(sets)] == sets
    assert len(set(found)) == len(found)


def test_folders_of_a_change_at_another_time_have_other_names(tmp_path):
    config = RunConfig(suites=("droid_tabletop",), perturb="light:2@4s+wording:1")
    assert new_run(tmp_path, config).folder.run_id.endswith("-tiny-unified-light2@4s-wording1")


def test_each_dimension_is_perturbed_alone_at_each_severity():
    assert sets_of(perturb_each=("camera", "light@2s"), severities=(1, 5)) == [
        *("none", "camera:1", "camera:5", "light:1@2s", "light:5@2s"),
    ]


def test_modes_and_perturbations_multiply():
    config = VariantsConfig(suites=("droid_tabletop",), mode=("isolated", "unified"), perturb="light:1")
    variants = [(each.mode, format_perturbations(each.perturb)) for each in config.variants()]
    assert variants == [
        *(("isolated", "none"), ("unified", "none"), ("isolated", "light:1"), ("unified", "light:1")),
    ]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"severities": (3,)}, "is for --perturb-each; write --perturb camera:3"),
        ({"control": "runs/A"}, "give --perturb or --perturb-each"),
        ({"perturb_each": ("camera",), "severities": (7,)}, "severity '7' is none of 1, 2, 3, 4, 5"),
        ({"perturb_each": ("light:2@1s",)}, "write --perturb-each light --severities 2"),
    ],
)
def test_options_without_effect_are_refused(options, complaint):
    with pytest.raises(UsageError) as refused:
        sets_of(**options)
    assert complaint in str(refused.value)


def told(perturb):
    (first, *_) = make_plan(RunConfig(suites=("droid_tabletop",), task_ids=(0,), perturb=perturb)).tasks
    return first.instructions(first.keys[0]), first.task.language


def test_a_wording_holds_from_its_time_on():
    instructions, plain = told("wording:1@2s")
    assert list(instructions) == [0, 30]  # 15 control steps per second
    assert instructions[0] == plain
    assert plain in instructions[30]
    assert instructions[30] != plain
    assert list(told("wording:1@16.6s")[0]) == [0, 249]  # whose product is 249.00000000000003


def test_a_held_out_wording_is_the_suites():
    instructions, plain = told("wording:3")
    assert list(instructions) == [0]
    assert plain not in instructions[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"suites": ("libero_memory",), "perturb": "wording:3"},
            r"perturbation wording:3: there are no .*; give wording:1 or wording:2 or wording:4$",
        ),
        (
            {"suites": ("gym_reacher",), "perturb": "wording:5"},
            r"perturbation wording:5: gym_reacher has no .*; give wording:1 or wording:2 or wording:4$",
        ),
        ({"suites": ("gym_reacher",), "wordings": "training"}, "^--wordings training: .*; leave it out$"),
    ],
)
def test_wordings_that_a_suite_does_not_have_are_refused_with_those_that_it_has(options, said):
    with pytest.raises(UsageError, match=said):
        make_plan(RunConfig(**options))


def asked(**options):
    few = {"task_ids": (0,), "init_ids": (0, 1), "max_steps": 20, "video": "none"}
    return VariantsConfig(suites=("libero_object",), perturb="wording:3", **{**few, **options})


def test_a_resumed_run_has_the_episodes_of_an_uninterrupted_one(tmp_path, policy):
    cut, whole = (begin(tmp_path / name, asked(seeds=(7, 8))) for name in ("cut", "whole"))
    policy.interrupted_at = 9  # of 2 queries in each of 8 episodes
    with pytest.raises(KeyboardInterrupt):
        evaluate(*cut)
    policy.interrupted_at = None
    assert 0 < sum(len(run.folder.episodes()) for run in cut) < 8
    evaluate(*find_unfinished(tmp_path / "cut", {}))
    evaluate(*whole)
    assert [len(timeless(run)) for run in cut] == [4, 4]
    assert list(map(timeless, cut)) == list(map(timeless, whole))


def test_a_control_of_other_episodes_is_refused(tmp_path, policy):
    control, perturbed = begin(tmp_path, asked())
    evaluate(control, perturbed)
    for given, options, complaint in (
        (control, {"init_ids": (0, 2)}, "lacks 1 episode of this run, first"),
        (control, {"seeds": (7, 8)}, "lacks 2 episodes of this run, first"),
        (control, {"max_steps": 19}, "ran under another protocol (max_steps 20 and 19)"),
        (perturbed, {}, "is perturbed itself (wording:3)"),
        (control, {"mode": "isolated"}, "was played otherwise (mode "),
    ):
        with pytest.raises(UsageError) as refused:
            evaluate(*begin(tmp_path / "other", asked(control=str(given.folder.path), **options)))
        assert complaint in str(refused.value)
    assert not list((tmp_path / "other").glob("[!.]*/manifest.json"))


@pytest.mark.usefixtures("policy")
def test_a_control_of_more_suites_and_states_is_taken(tmp_path):
    more = {"suites": ("libero_goal", "libero_object"), "perturb": UNPERTURBED}
    (given,) = begin(tmp_path, asked(init_ids=(0, 1, 2)).model_copy(update=more))
    evaluate(given)
    (rows,) = evaluate(*begin(tmp_path / "other", asked(control=str(given.folder.path))))
    assert rows.overall.n_episodes == 2
