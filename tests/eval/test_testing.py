"""The conformance check of policies accepts every kind that ships, and finds broken contracts."""

import numpy as np
import pytest

from configs.errors import UsageError
from configs.schema import PolicyConfig, RunConfig
from eval.policies.resolved import open_policies, resolve_policy
from eval.policies.scripted import open_scripted
from eval.testing import check_policy
from sim_envs.fake import FakeWorld
from tests.eval.doubles import FakePolicy, libero_object


def world() -> FakeWorld:
    made = FakeWorld(image_size=64)
    made.reset(init_id=0, seed=7, settle_steps=0)
    return made


@pytest.mark.parametrize("kind", ["noop", "random"])
def test_scripted_policies_conform(kind):
    opened = open_scripted(PolicyConfig(name=kind, kind=kind), (), RunConfig(mode="actions"))
    check_policy(opened.in_world(libero_object(), world()), world().observe(), replan_steps=5)


class Still:
    """openpi's two methods."""

    embodiment = "libero"

    def infer(self, obs):
        return {"actions": np.zeros((10, 7))}

    def reset(self):
        pass


def test_classes_objects_and_functions_are_accepted():
    for given in (Still, Still(), lambda: Still(), FakePolicy):  # noqa: PLW0108
        check_policy(given, world().observe(), replan_steps=5)
    with pytest.raises(UsageError, match="policy dict lacks infer, reset"):
        check_policy({}, world().observe())


@pytest.mark.slow
def test_a_policy_with_a_model_conforms():
    config = RunConfig(mode="unified", policy="tiny", random_weights=True)
    (opened,) = open_policies(resolve_policy(config), [config])
    check_policy(opened.in_world(libero_object(), world()), world().observe(), replan_steps=10)


class Drifting(FakePolicy):
    drift = 0.0

    def act(self, observation):
        self.drift += 0.01
        return super().act(observation) + self.drift


class Careless(FakePolicy):
    def act(self, observation):
        observation.state[0] += 1
        return super().act(observation)


class Silent(FakePolicy):
    def complete(self):
        return None


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Drifting(), "had other actions after other episodes"),
        (Careless(), "changed the observation's state"),
        (Silent(), "should return a Reply"),
        (FakePolicy(actions=np.zeros((10, 6))), "an action has 6 numbers"),
        (FakePolicy(actions=np.zeros((3, 7))), "3 actions, a rollout executes 5"),
        (FakePolicy(actions=np.full((10, 7), np.nan)), "not finite"),
    ],
)
def test_a_broken_contract_is_one_line(policy, said):
    with pytest.raises(AssertionError, match=said) as caught:
        check_policy(policy, world().observe(), replan_steps=5)
    assert "\n" not in str(caught.value).split("\nassert")[0]
