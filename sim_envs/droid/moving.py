"""Chooses the objects of a DROID task that move, and their trajectories."""

import mujoco

from configs.hashing import seed_of
from configs.motion import Drift, Shuttle
from sim_envs.droid.conventions import ASPECT
from sim_envs.droid.scene import EXTERIOR_CAMERA
from sim_envs.droid.shapes import is_too_wide
from sim_envs.droid.task_file import (
    FARTHEST,
    NEAREST,
    InsideCriterion,
    LiftCriterion,
    OnCriterion,
    TaskConfig,
    UprightCriterion,
)
from sim_envs.moving.mover import Mover
from sim_envs.moving.sampling import Bounds, sample_movers


def movable(task: TaskConfig) -> list[str]:
    """The objects that the rubric requires to be grasped and that initially stand on the table."""
    grasping = LiftCriterion | OnCriterion | InsideCriterion | UprightCriterion
    wanted = dict.fromkeys(each.object for each in task.rubric if isinstance(each, grasping))
    things = {name: task.objects[name] for name in wanted}
    return [
        name
        for name, obj in things.items()
        if obj.carrier is None and not obj.is_fixed and not is_too_wide(obj.shape)
    ]


def movers(
    task: TaskConfig, data: mujoco.MjData, motion: Shuttle | Drift, *, init_id: int, seed: int
) -> dict[str, Mover]:
    """The movers of an episode, equal in both control modes; see `sample_movers`."""
    model = data.model
    bounds = Bounds(
        robot=model.body("link0").id,
        reach=(NEAREST, FARTHEST),
        camera=model.camera(EXTERIOR_CAMERA).id,
        aspect=ASPECT,
    )
    bodies = {name: model.body(name).id for name in movable(task)}
    digest = seed_of(f"{task.name}.{init_id}.{seed}")
    return sample_movers(data, bodies, motion, bounds, digest=digest)
