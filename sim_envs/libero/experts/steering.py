"""Converts waypoints to actions, with a linear model of LIBERO's operational-space controller."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Int64
from scipy.linalg import expm, solve_discrete_are

from sim_envs.libero.experts.motions import Waypoint, progress
from sim_envs.scripted.poses import Pose, Vector3, Vector6

Matrix6 = Float64[np.ndarray, "6 6"]

ACTION_SCALE = np.array([0.05, 0.05, 0.05, 0.5, 0.5, 0.5])
"""Metres and radians per control step at an action of 1 (robosuite's osc_pose.json)."""

CONTROL_SECONDS = 0.05
_STIFFNESS = 150.0
_DAMPING = 2 * _STIFFNESS**0.5

_MIN_MOBILITY = 1e-3
"""Minimal acceleration per wrench (1/kg, 1/(kg m²)) along any direction: a stretched arm cannot move in one
direction, for which the regulator has no solution."""

_FARTHEST = np.array([0.06, 0.3])  # errors (m, rad) beyond which the gripper moves at full speed

_ERROR_COST = np.repeat([1.0, 0.05], 3)
_VELOCITY_COST = np.repeat([1e-3, 1e-5], 3)
_DELTA_COST = np.repeat([0.05, 0.002], 3)


class ArmModel:
    """Linear response of the gripper to a delta over one control step, near one arm configuration.

    Attributes:
        gain: Feedback gain from pose and velocity error to delta.
    """

    def __init__(self, mobility: Matrix6) -> None:
        """The model for an arm whose gripper accelerates by `mobility @ wrench`.

        robosuite's controller decouples forces and torques separately, so that a coupled spring remains,
        integrated here exactly over a control step.
        """
        along, directions = np.linalg.eigh(mobility)
        if along[0] < _MIN_MOBILITY:
            mobility = (directions * np.maximum(along, _MIN_MOBILITY)) @ directions.T
        inertia = np.zeros((6, 6))
        inertia[:3, :3] = np.linalg.inv(mobility[:3, :3])
        inertia[3:, 3:] = np.linalg.inv(mobility[3:, 3:])
        coupling = mobility @ inertia
        rates = np.zeros((12, 12))
        rates[:6, 6:] = np.eye(6)
        rates[6:, :6] = -_STIFFNESS * coupling
        rates[6:, 6:] = -_DAMPING * coupling
        step = expm(rates * CONTROL_SECONDS)
        # Displacement and final velocity per delta, and per initial velocity.
        self._moved_by_delta, self._velocity_by_delta = np.eye(6) - step[:6, :6], -step[6:, :6]
        self._moved_by_velocity, self._velocity_kept = step[:6, 6:], step[6:, 6:]
        # The regulator that is optimal for the linear-quadratic costs above.
        state_to_state = np.block(
            [[np.eye(6), self._moved_by_velocity], [np.zeros((6, 6)), self._velocity_kept]]
        )
        delta_to_state = np.concatenate([self._moved_by_delta, self._velocity_by_delta])
        costs, effort = np.diag(np.concatenate([_ERROR_COST, _VELOCITY_COST])), np.diag(_DELTA_COST)
        curved = delta_to_state.T @ solve_discrete_are(state_to_state, delta_to_state, costs, effort)
        self.gain = np.linalg.solve(effort + curved @ delta_to_state, curved @ state_to_state)

    def delta_towards(
        self, target: Pose, pose: Pose, velocity: Vector6, *, pace: float = 1.0, moves: Vector3 | None = None
    ) -> Vector6:
        """The delta (m, rad) to command now, at most that of an action of 1.

        Args:
            target: The target pose.
            pose: Pose of the grip site.
            velocity: Its velocity (m/s, rad/s).
            pace: Fraction of full speed.
            moves: Velocity of the target (m/s); None if it is fixed.
        """
        error = pose.twist_to(target).reshape(2, 3)
        norms = np.linalg.norm(error, axis=1)
        error *= np.minimum(1.0, pace * _FARTHEST / np.maximum(norms, 1e-12))[:, None]
        delta = self.gain @ np.concatenate([error.ravel(), -velocity])
        if moves is not None:
            response = np.block(
                [
                    [self._moved_by_velocity, self._moved_by_delta],
                    [self._velocity_kept - np.eye(6), self._velocity_by_delta],
                ]
            )
            way = np.concatenate([moves * CONTROL_SECONDS, np.zeros(9)])
            # Velocity at the start of each step, and delta, with which the gripper keeps up with the target.
            steady, kept = np.split(np.linalg.solve(response, way), 2)
            delta += self.gain[:, 6:] @ steady + kept
        return delta / max(1.0, np.abs(delta / ACTION_SCALE).max())

    def predict(self, pose: Pose, velocity: Vector6, delta: Vector6) -> tuple[Pose, Vector6]:
        """Predict pose and velocity one control step after a delta is commanded, without contacts."""
        moved = self._moved_by_velocity @ velocity + self._moved_by_delta @ delta
        return pose.moved(moved), self._velocity_kept @ velocity + self._velocity_by_delta @ delta

    def follow(
        self,
        path: Sequence[Waypoint],
        pose: Pose,
        velocity: Vector6,
        *,
        passed: int,
        steps: int,
        pace: float = 1.0,
    ) -> tuple[Float64[np.ndarray, "steps 6"], Int64[np.ndarray, " steps+1"]]:
        """Follow a path from its first waypoint not yet `passed`, open loop for `steps` control steps.

        Returns:
            The deltas (m, rad), and the predicted number of passed waypoints after 0, 1, … steps.
        """
        deltas, counts = np.zeros((steps, 6)), np.zeros(steps + 1, dtype=np.int64)
        counts[0] = progress(path, pose, passed)
        for step in range(steps):
            now, then = step * CONTROL_SECONDS, (step + 1) * CONTROL_SECONDS
            target = path[min(counts[step], len(path) - 1)]
            moves = target.velocity_after(now, over=CONTROL_SECONDS)
            deltas[step] = self.delta_towards(target.after(now).pose, pose, velocity, pace=pace, moves=moves)
            pose, velocity = self.predict(pose, velocity, deltas[step])
            counts[step + 1] = progress([each.after(then) for each in path], pose, int(counts[step]))
        return deltas, counts
