"""Protocols by name are what the published runners do, as their code was read; no fact is from our files."""

import pytest

from configs.load import load, names
from configs.protocol import ProtocolConfig
from configs.schema import RunConfig, SuiteConfig
from contracts.errors import UsageError
from eval.rollout.plan import make_plan, overridden

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
