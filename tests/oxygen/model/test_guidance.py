"""Guidance, on flows of which the answer is known in closed form."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oxygen.model import guidance
from oxygen.model.guidance import Guidance, guided, soft_mask

SHAPE = 2, 3, 2
"""Robots, actions, channels."""


def normal(seed):
    return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


@pytest.mark.parametrize("time", [1.0, 0.7, 0.1])
def test_a_linear_flow_is_pulled_by_the_transpose_of_its_jacobian(time):
    """Of a flow with velocity M x + b, where M mixes the actions and channels of a robot."""
    rng = np.random.default_rng(0)
    matrix, offset = rng.normal(size=(6, 6)).astype(np.float32), rng.normal(size=(1, 6)).astype(np.float32)
    x, wanted = normal(1), normal(2)
    weight = rng.uniform(size=SHAPE[:2]).astype(np.float32)

    def velocity_at(x):
        return (x.reshape(2, 6) @ matrix.T + offset).reshape(SHAPE), "what else there is"

    pulled, besides = guided(
        velocity_at, jnp.asarray(x), jnp.float32(time), Guidance(actions=wanted, weight=weight)
    )
    own = np.asarray(velocity_at(x)[0])
    jacobian = np.eye(6) - time * matrix
    error = (weight[..., None] * (wanted - (x - time * own))).reshape(2, 6)
    progress = 1 - time
    strength = 5.0 if time == 1.0 else min(5.0, (time**2 + progress**2) / (time * progress))
    expected = own - strength * (error @ jacobian).reshape(SHAPE)
    assert np.asarray(pulled) == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert besides == "what else there is"


def test_of_normal_actions_the_guided_flow_draws_from_those_that_agree(monkeypatch):
    """Actions are independent, of variance 1: those under way come out as they are, others as unguided."""
    monkeypatch.setattr(guidance, "MAX_WEIGHT", 1e3)
    mean, steps = normal(3), 400
    wanted, weight = normal(4), np.array([[1, 1, 0], [0, 0, 0]], np.float32)

    def velocity_at(time, x):
        """Towards the mean of the actions, given where they are now."""
        progress = 1 - time
        gain = progress / (progress**2 + time**2)
        return (x - (mean + gain * (x - progress * mean))) / time, None

    def followed(guidance):
        def euler(step, x):
            time = 1.0 - step.astype(jnp.float32) / steps
            at = functools.partial(velocity_at, time)
            return x - (at(x) if guidance is None else guided(at, x, time, guidance))[0] / steps

        return np.asarray(jax.jit(lambda x: jax.lax.fori_loop(0, steps, euler, x))(normal(5)))

    drawn, free = followed(Guidance(actions=wanted, weight=weight)), followed(None)
    assert drawn[0, :2] == pytest.approx(wanted[0, :2], abs=0.01)
    assert drawn[0, 2] == pytest.approx(free[0, 2], abs=1e-5)
    assert drawn[1] == pytest.approx(free[1], abs=1e-5)
    assert np.abs(free[0, :2] - wanted[0, :2]).max() > 0.1


def test_the_mask_is_that_of_the_paper():
    """H = 6, d = 2, s = 1: c falls from 3/4 to 1/4 in the middle, and the weight is c (e^c - 1) / (e - 1)."""
    middle = [c * (np.exp(c) - 1) / (np.e - 1) for c in (3 / 4, 2 / 4, 1 / 4)]
    assert soft_mask(6, left=5, delay=2) == pytest.approx([1, 1, *middle, 0])
    assert soft_mask(3, left=2, delay=2).tolist() == [1, 1, 0]
    assert soft_mask(2, left=2, delay=0)[0] < 1


def test_the_chunk_before_is_counted_from_the_action_of_the_observation():
    chunk = normal(6)[0]
    towards = Guidance.towards(chunk, first=1, delay=9, horizon=3)
    assert towards.actions.tolist() == [[*chunk[1:].tolist(), [0, 0]]]
    assert towards.weight.tolist() == [[1, 1, 0]]
    assert towards.guides.tolist() == [True]
    assert not Guidance.none(SHAPE).guides.any()
