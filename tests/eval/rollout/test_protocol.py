"""Protocols by name are what the published runners do, as their code was read; no fact is from our files."""

import numpy as np
import pytest

from configs.load import load, names
from configs.protocol import ProtocolConfig
from configs.schema import RunConfig, SuiteConfig
from contracts.errors import UsageError
from eval.records.protocol import describe_suite, name_protocol, protocol_hash
from eval.records.reader import read_episodes, read_identity
from eval.rollout.executors.executor import SERIAL
from eval.rollout.plan import make_plan, overridden
from sim_envs.fake import FakeSuite
from sim_envs.scripted.policy import HORIZON
from tests.commands import ROOT
from tests.eval.rollout.scaled import played, suite_file

STILL = {"policy": "noop", "mode": "actions", "video": "none"}

FOUR = ("libero_spatial", "libero_object", "libero_goal", "libero_10")
FIVE = (*FOUR, "libero_90")
OPENPI_LIMITS = (220, 280, 300, 520, 400)

# Limits, settle steps, gripper in these, trials, initial states, env seed, replanning, pixels, errors.
FACTS = {
    "openpi": (OPENPI_LIMITS, 10, "open", 50, "stored", "stream 7", 5, 256, "failure"),
    "openvla": (OPENPI_LIMITS, 10, "open", 50, "stored", "stream 0", 1, 256, "failure"),
    "openvla-oft": (OPENPI_LIMITS, 10, "open", 50, "stored", "stream 0", 8, 256, "failure"),
    "lerobot": ((280, 280, 300, 520, 400), 10, "open", 50, "stored", "offset 1000", "chunk", 360, "abort"),
    "vla-eval": (OPENPI_LIMITS, 10, "open", 50, "stored", "stream 7", "chunk", 256, "failure"),
    "starvla": (OPENPI_LIMITS, 10, "open", 50, "stored", "stream 7", "chunk", 256, "abort"),
    "dexbotic": (OPENPI_LIMITS[:4], 10, "open", 50, "stored", "stream 7", (12, 16, 16, 15), 256, "failure"),
    "libero": ((600,) * 5, 5, "zero", 20, "stored", "fixed", 1, 128, "abort"),
    "groot": ((720,) * 5, 0, "open", 20, "placement", "stream", 8, 256, "abort"),
    "rlinf": ((240, 280, 320, 520), 15, "open", 50, "stored", "fixed 0", 5, 256, "abort"),
}


def test_the_facts_are_of_every_protocol_that_ships():
    assert set(FACTS) == set(names(ProtocolConfig))


@pytest.mark.parametrize("name", FACTS)
def test_a_run_under_a_protocol_resolves_to_what_its_runner_does(name):
    limits, settle_steps, gripper, trials, states, env_seed, replan, pixels, errors = FACTS[name]
    protocol, suites = load(ProtocolConfig, name), FIVE[: len(limits)]
    every = replan if isinstance(replan, tuple) else (replan,) * len(limits)
    assert tuple(protocol.max_steps) == suites
    assert protocol.errors == errors
    assert protocol.plays_chunks is (replan == "chunk")
    for suite, limit, steps in zip(suites, limits, every, strict=True):
        config = RunConfig(suites=(suite,), protocol=name, policy="noop", mode="actions", task_ids=(0,))
        plan = make_plan(config, **({"replan_steps": 16} if steps == "chunk" else {}))
        resolved = plan.suites[suite].protocol
        assert resolved.max_steps == limit
        assert (resolved.settle_steps, resolved.settle_gripper) == (settle_steps, gripper)
        assert [key.init_id for key in plan.keys] == list(range(trials))
        assert (resolved.initial_states, resolved.camera_size) == (states, pixels)
        # A protocol that leaves the seed free takes the run's.
        assert str(resolved.env_seed) == ("stream 7" if env_seed == "stream" else env_seed)
        assert resolved.replan_steps == (16 if steps == "chunk" else steps)


@pytest.mark.parametrize("name", FACTS)
def test_the_table_of_the_documentation_has_these_facts_and_their_source(name):
    limits, settle_steps, gripper, trials, states, env_seed, replan, pixels, errors = FACTS[name]
    told = limits[:1] if len(set(limits)) == 1 else limits
    steps = replan if isinstance(replan, tuple) else (replan,)
    cells = ["/".join(map(str, told)), f"{settle_steps}, {gripper}", trials, states, env_seed]
    cells += ["/".join(map(str, steps)), f"{pixels}²", errors, load(ProtocolConfig, name).source]
    assert f"| `{name}` | {' | '.join(map(str, cells))} |" in (ROOT / "docs/protocols.md").read_text()


@pytest.mark.parametrize("suite", FIVE)
def test_the_default_of_liberos_suites_is_openpis_protocol(suite):
    own = load(SuiteConfig, suite)
    for field, value in load(ProtocolConfig, "openpi").fields_of(own).items():
        assert getattr(own, field) == value, field


def test_perturbed_suites_have_the_place_of_the_suite_that_they_perturb():
    openpi = load(ProtocolConfig, "openpi")
    for name in names(SuiteConfig):
        if "_plus_" in name or "_pro_" in name:
            own = load(SuiteConfig, name)
            assert name.split("_")[2] == str(own.base).removeprefix("libero_")
            assert openpi.fields_of(own)["max_steps"] == own.max_steps
            assert openpi.fields_of(own)["trials_per_task"] == own.trials_per_task


@pytest.mark.parametrize("suite", ["libero_memory", "droid_tabletop", "gym_reacher"])
def test_suites_without_a_place_in_a_protocol_refuse_it_in_one_line(suite):
    with pytest.raises(UsageError, match=rf"protocol groot is for libero_spatial.*{suite} has its own"):
        make_plan(RunConfig(suites=(suite,), protocol="groot", policy="noop"))


def test_options_replace_single_parts_of_a_protocol():
    config = RunConfig(
        suites=("libero_10",),
        protocol="groot",
        policy="noop",
        task_ids=(0,),
        initial_states="stored",
        num_steps_wait=3,
        settle_gripper="zero",
        camera_size=64,
    )
    (suite,) = make_plan(config).suites.values()
    changed = ("initial_states", "settle_steps", "settle_gripper", "camera_size")
    assert [getattr(suite.protocol, each) for each in changed] == ["stored", 3, "zero", 64]
    assert suite.protocol.max_steps == 720
    assert overridden(config).keys() == set(changed)


def described(suite: str = "libero_spatial", **options) -> tuple[dict, dict]:
    """The options and the protocol of a run as records have them."""
    chosen = {"suites": (suite,), "task_ids": (0,), **STILL, **options}
    config = RunConfig(**chosen)
    plan = make_plan(config)
    worlds = {suite: describe_suite(each, states=plan.sources(each)) for suite, each in plan.suites.items()}
    return config.model_dump(mode="json"), worlds


@pytest.mark.parametrize(
    ("options", "name", "changes"),
    [
        ({}, "openpi", ()),
        ({"num_trials_per_task": 5}, "openpi", ()),
        ({"init_ids": (1000,)}, "openpi*", ("initial states sampled",)),
        ({"max_steps": 60, "camera_size": 128}, "openpi*", ("max steps 60", "camera size 128")),
        ({"max_steps": 220}, "openpi", ()),
        ({"motion": "drift:3", "suite": "libero_object"}, "openpi*", ()),
        ({"env_seed": "stream:0", "replan_steps": 1}, "openpi*", ("env seed stream 0", "replan steps 1")),
        ({"protocol": "openvla"}, "openvla", ()),
        ({"protocol": "lerobot"}, "lerobot", ()),
        ({"protocol": "lerobot", "replan_steps": 5}, "lerobot*", ("replan steps 5",)),
        ({"protocol": "groot", "seeds": (9,)}, "groot", ()),
        ({"protocol": "rlinf", "seeds": (9,)}, "rlinf", ()),
        ({"protocol": "rlinf", "seeds": (0,), "env_seed": "fixed"}, "rlinf", ()),
        ({"wordings": "training", "suite": "libero_memory"}, "", ("wordings training",)),
        ({"max_steps": 60, "suite": "droid_tabletop"}, "", ("max steps 60",)),
    ],
)
def test_the_name_is_that_of_what_was_played_with_a_star_and_what_differs(options, name, changes):
    assert name_protocol(*described(**options)) == (name, changes)


def test_a_name_is_no_part_of_the_hash_so_that_equal_protocols_pair_whatever_they_are_called():
    default, openpi = (protocol_hash(described(**how)[1]) for how in ({}, {"protocol": "openpi"}))
    assert default == openpi
    by_name, by_options = (
        protocol_hash(described(**how)[1])
        for how in ({"protocol": "openvla"}, {"env_seed": "stream:0", "replan_steps": 1})
    )
    assert by_name == by_options != default


def test_a_run_of_former_versions_is_named_after_what_it_played():
    """Before its seeding was an option, the environment was seeded anew for every episode."""
    config, protocol = described()
    del config["protocol"], config["env_seed"], protocol["libero_spatial"]["env_seed"]
    assert name_protocol(config, protocol) == ("openpi*", ("env seed fixed",))


class LiberoLike(FakeSuite):
    """Worlds without physics that follow all that protocols set."""

    supports = ("env_seed", "settle_gripper", "initial_states")


@pytest.fixture
def suite(tmp_path):
    return suite_file(tmp_path, "fake", LiberoLike, base="libero_spatial", environment={"init_ids": 50})


@pytest.mark.parametrize("name", FACTS)
def test_an_episode_lasts_to_the_limit_and_is_queried_as_often_as_under_that_runner(tmp_path, suite, name):
    """A policy that answers with ten actions, of which `chunk` executes all."""
    limits, *_, replan, _, _ = FACTS[name]
    every = {"chunk": HORIZON}.get(replan, replan[0] if isinstance(replan, tuple) else replan)
    config = RunConfig(suites=(suite,), protocol=name, init_ids=(0,), **STILL)
    if every > HORIZON:
        with pytest.raises(UsageError, match=rf"{every} control steps between queries.*answers .* {HORIZON}"):
            played(tmp_path, config, executor=SERIAL)
        return
    (run,) = played(tmp_path, config, executor=SERIAL)
    (episode,) = read_episodes(run.folder).values()
    assert (episode.steps, episode.queries) == (limits[0], -(-limits[0] // every))
    assert read_identity(run.folder).protocol_name == name


def test_a_protocol_that_plays_whole_chunks_needs_to_know_them_or_a_number(tmp_path, suite):
    config = RunConfig(suites=(suite,), protocol="lerobot", init_ids=(0,), **{**STILL, "policy": NAMELESS})
    with pytest.raises(UsageError, match=r"protocol lerobot executes all actions .* give --replan-steps N"):
        played(tmp_path, config, executor=SERIAL)
    (run,) = played(tmp_path, config.model_copy(update={"replan_steps": 4}), executor=SERIAL)
    identity = read_identity(run.folder)
    assert (identity.protocol_name, identity.protocol_changes) == ("lerobot*", ("replan steps 4",))


class WithoutHorizon:
    """A class that does not say how many actions it answers with."""

    embodiment = "libero"
    image_resolution = (8, 8)

    def infer(self, obs):
        return {"actions": np.zeros((10, 7))}

    def reset(self):
        pass


NAMELESS = f"{__name__}:WithoutHorizon"
