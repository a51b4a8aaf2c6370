"""Evaluates a task's success criteria, and describes station, nouns and goals for ground truth. Read only."""

from collections.abc import Sequence

import mujoco
import numpy as np

from contracts.errors import UsageError
from contracts.nouns import Nouns
from contracts.truth import ELSEWHERE, Phase
from sim_envs.droid.control import GRIP_SITE
from sim_envs.droid.shapes import DRAWER, DrawerShape, Vessel, depth, is_too_wide
from sim_envs.droid.station import UPRIGHT, ObjectPose, Station, part_name
from sim_envs.droid.task_file import (
    Criterion,
    InsideCriterion,
    LiftCriterion,
    OnCriterion,
    OpenedCriterion,
    ReachCriterion,
    StoppedCriterion,
    TaskConfig,
    UprightCriterion,
)
from sim_envs.scripted.poses import Vector3
from sim_envs.truth import scene
from sim_envs.truth.scene import HAND, LEFT, NOTHING, RIGHT, Articulation, GoalTarget, Item, TruthScene

_OPEN = 0.1  # the gripper counts as open below this
_RESTING = 0.012  # an object rests on a target if its underside is this near (m) to the target's top
_ROUNDING = 1e-6  # tolerance (s) of summed time steps
_BELOW_RIM = 0.35  # what is in a vessel is below the rim by at least this fraction of the depth


class Rubric:
    """Evaluates the criteria of a station's task. A criterion stays met once it has been met."""

    def __init__(self, station: Station) -> None:
        """Start an episode from the station's current state."""
        self.station, self._criteria = station, station.task.rubric
        self.reached = [False] * len(self._criteria)  # whether each has been met
        self._since: list[float | None] = [None] * len(self._criteria)
        self._start = {name: station.pose(name) for name in station.task.objects}

    def judge(self) -> bool:
        """Evaluate the criteria after a control step. Returns whether all have been met."""
        now = self.station.data.time
        for number, criterion in enumerate(self._criteria):
            if self.reached[number]:
                continue
            if not self.holds(criterion):
                self._since[number] = None
                continue
            since = self._since[number]
            if since is None:
                since = self._since[number] = now
            lasting = criterion.for_s if isinstance(criterion, OnCriterion | StoppedCriterion) else 0.0
            self.reached[number] = now - since > lasting - _ROUNDING
        return all(self.reached)

    def is_arranged(self) -> bool:
        """Whether everything is where the task wants it, however it came there."""
        ends = [each for each in self._criteria if not isinstance(each, ReachCriterion | LiftCriterion)]
        return all(self.holds(each) for each in ends)

    def holds(self, criterion: Criterion) -> bool:
        """Whether a criterion holds now."""
        station = self.station
        match criterion:
            case ReachCriterion():
                way = station.end_effector - station.pose(criterion.object).middle
                return float(np.linalg.norm(way)) < criterion.within
            case LiftCriterion():
                start = self._start[criterion.object].low[2]
                return float(station.pose(criterion.object).low[2] - start) > criterion.by
            case OpenedCriterion():
                return float(station.data.joint(part_name(criterion.object, DRAWER)).qpos[0]) >= criterion.by
            case OnCriterion(let_go=False) | StoppedCriterion():
                return self.is_placed(criterion)
            case _:
                return station.gripper < _OPEN and self.is_placed(criterion)

    def is_placed(
        self, criterion: OnCriterion | InsideCriterion | UprightCriterion | StoppedCriterion
    ) -> bool:
        """Whether an object is where a criterion requires it, released or not."""
        data, obj = self.station.data, self.station.pose(criterion.object)
        match criterion:
            case StoppedCriterion():
                line, start = self.station.pose(criterion.line), self._start[criterion.object].middle
                ahead = [float(line.rotation[:, 0] @ (at - line.position)) for at in (start, obj.middle)]
                body, velocity = data.body(criterion.object).id, np.zeros(6)
                mujoco.mj_objectVelocity(data.model, data, mujoco.mjtObj.mjOBJ_BODY, body, velocity, 0)
                is_slow = np.linalg.norm(velocity[3:]) < criterion.slower
                has_come = np.linalg.norm(obj.middle - start) > criterion.moved
                return bool(is_slow and has_come and ahead[0] * ahead[1] > 0)
            case OnCriterion():
                return _rests(obj, self.station.pose(criterion.target), criterion.share)
            case InsideCriterion():
                shape = self.station.task.objects[criterion.target].shape
                assert isinstance(shape, Vessel)
                return _is_inside(obj, self.station.pose(criterion.target), shape)
            case UprightCriterion():
                return bool(obj.is_upright and abs(obj.low[2]) < _RESTING)


def _rests(one: ObjectPose, target: ObjectPose, share: float) -> bool:
    """Whether an object rests on another, at least this fraction of its outline (a box) over the target's."""
    own, others = (points @ target.rotation for points in (target.corners, one.corners))
    low, high = others.min(axis=0), others.max(axis=0)
    sides = np.minimum(high, own.max(axis=0))[:2] - np.maximum(low, own.min(axis=0))[:2]
    overlap = float(np.prod(np.maximum(sides, 0)) / np.prod((high - low)[:2]))
    return abs(float(one.low[2] - target.high[2])) < _RESTING and overlap >= share


def _is_inside(one: ObjectPose, target: ObjectPose, vessel: Vessel) -> bool:
    """Whether an object is in an upright vessel: center above the opening, lowest point below the rim."""
    if target.rotation[2, 2] < UPRIGHT:
        return False
    middle = target.rotation.T @ (one.middle - target.position)
    lowest = float(one.low[2] - target.position[2])
    return vessel.is_over(middle[:2]) and lowest < vessel.extent[2] - _BELOW_RIM * depth(vessel)


GROUND = "table"

_SHALLOW = 0.03  # objects lie on, not in, vessels up to this depth (m), unless the rubric says otherwise


def nouns_of(task: TaskConfig) -> Nouns:
    """The vocabulary of a task; a UsageError if two objects share a noun."""
    names: dict[str, str] = {}
    for name in task.objects:
        if (other := names.setdefault(noun_of(name), name)) != name:
            raise UsageError(
                f"objects {other!r} and {name!r} of task {task.name} are both called {noun_of(name)!r}: "
                "rename one of them"
            )
    places = {GROUND: "on"}
    for name, obj in task.objects.items():  # the rubric's preposition, else that of the shape
        kinds = {type(each) for each in task.rubric if getattr(each, "target", None) == name}
        is_deep = isinstance(obj.shape, Vessel) and depth(obj.shape) > _SHALLOW
        places[noun_of(name)] = "in" if (InsideCriterion in kinds if kinds else is_deep) else "on"
    drawers = [name for name, obj in task.objects.items() if isinstance(obj.shape, DrawerShape)]
    return Nouns(
        movable=frozenset(noun_of(name) for name in task.objects if _is_thing(task, name)),
        parts=frozenset(map(_drawer_noun_of, drawers)),
        places=frozenset(places.items()),
    )


def noun_of(name: str) -> str:
    """The noun of an object: `wooden_block` → `wooden block`."""
    return " ".join(name.replace("_", " ").replace(".", " ").casefold().split())


def _drawer_noun_of(name: str) -> str:
    """The noun of an object's drawer: `cabinet` → `drawer of the cabinet`."""
    noun = noun_of(name)
    return noun if "drawer" in noun else f"drawer of the {noun}"


def _is_thing(task: TaskConfig, name: str) -> bool:
    """Whether an object is an item as a whole: it is movable, or the rubric mentions it."""
    obj = task.objects[name]
    wanted = any(criterion.object == name for criterion in task.rubric)
    return not isinstance(obj.shape, DrawerShape) and (wanted or not obj.is_fixed)


_DRAWER_OPEN = 0.75  # fraction of its travel from which a drawer without a criterion counts as open
_HALF = 0.5  # fraction of an object's outline over what it lies on, unless a criterion says otherwise
_SQUEEZES = 0.3  # minimal cosine between a squeezing contact's normal and the direction to the other finger
_TABLE = -2  # the table, where objects are given by index

_Placing = OnCriterion | InsideCriterion | UprightCriterion


class DroidScene(TruthScene):
    """One episode of a task."""

    def __init__(self, rubric: Rubric) -> None:
        """Describe the simulation of a rubric; a UsageError if two objects share a noun."""
        self._rubric, self._station = rubric, rubric.station
        self._task = task = rubric.station.task
        model = rubric.station.model
        items = _items(task, model)
        owner = np.full(model.nbody, NOTHING)
        owner[[item.body for item in items]] = [item.index for item in items]
        super().__init__(
            rubric.station.data,
            items,
            grip_site=model.site(GRIP_SITE).id,
            owner=owner[model.geom_bodyid],
            side=_sides(model),
        )
        self.nouns = self._nouns = nouns_of(task)
        # The index of each geom's object, or `_TABLE`.
        roots = np.full(model.nbody, NOTHING)
        roots[[model.body(name).id for name in task.objects]] = range(len(task.objects))
        self._objects, self._object = list(task.objects), roots[model.body_rootid][model.geom_bodyid]
        self._object[model.geom("table").id] = _TABLE
        self._palm = int(model.geom("hand_collision").id)
        self._tips = [int(model.geom(f"{side}_fingertip_collision").id) for side in ("left", "right")]
        self._goals = _goals(task)
        self._lasts = [task.rubric[criteria[-1]] for criteria in self._goals]
        by_name = {item.name: item for item in items}
        self.targets = []
        for number, last in enumerate(self._lasts):
            item, stays = by_name[last.object], isinstance(last, UprightCriterion)
            wanted = None if item.articulation is None else Phase.OPEN
            place = noun_of(last.target) if isinstance(last, OnCriterion | InsideCriterion) else None
            place = GROUND if stays else place
            self.targets.append(GoalTarget(number=number, item=item, place=place, wanted=wanted, stays=stays))

    def capture(self) -> scene.RawState:
        """As in the base class, but a finger that does not press towards the other one counts as palm.

        Otherwise a vessel would count as grasped when the backs of the fingers touch its walls.
        """
        moment = super().capture()
        contacts = moment.contacts
        by = self._side[contacts] & (LEFT | RIGHT)
        rows, columns = np.nonzero(by)
        if len(rows):
            left, right = self._data.geom_xpos[self._tips]
            across = (right - left) / np.linalg.norm(right - left)
            along = self._data.contact.frame[rows, :3] @ across  # normals point from the first geom on
            inwards = np.where((by[rows, columns] == LEFT) == (columns == 0), along, -along)
            outside = inwards < _SQUEEZES
            contacts[rows[outside], columns[outside]] = self._palm
        return moment

    def missing(self) -> list[GoalTarget]:
        """Targets of goals with criteria that have not been met so far."""
        reached = self._rubric.reached
        return [target for target in self.targets if not all(reached[n] for n in self._goals[target.number])]

    def satisfied(self, target: GoalTarget) -> bool:
        """Whether an object is where its goal requires it, and released if required."""
        last = self._lasts[target.number]
        if not isinstance(last, _Placing) or not self._rubric.is_placed(last):
            return False
        may_be_held = isinstance(last, OnCriterion) and not last.let_go
        return may_be_held or target.item.index not in self.touch(self.capture())[1]

    def nearest(self, items: Sequence[Item], point: Vector3) -> Item:
        """The first item: a rubric lists criteria in the order of actions."""
        del point
        return items[0]

    def is_near(self, target: GoalTarget, position: Vector3, margin: float) -> bool:
        """Whether a position is over the target's outline; for an upright goal, whether it is upright."""
        last = self._lasts[target.number]
        if not isinstance(last, OnCriterion | InsideCriterion):
            return self._station.pose(target.item.name).is_upright
        pose = self._station.pose(last.target)
        half = np.maximum((pose.high - pose.low)[:2] / 2, 2 * margin)
        return bool((np.abs(position - pose.middle)[:2] <= half).all())

    def location(self, item: Item) -> str:
        """An object's location: its goal's place, in or on an object, on the table, or elsewhere."""
        for target in self.targets:
            if target.item is item and target.place is not None and self.satisfied(target):
                return self._nouns.phrase(target.place)
        pairs = self._object[self._data.contact.geom]
        touched = frozenset(pairs[:, ::-1][pairs == self._objects.index(item.name)].tolist())
        pose = self._station.pose(item.name)
        for number, (name, obj) in enumerate(self._task.objects.items()):
            if (_TABLE if obj.shape.kind == "mark" else number) in touched:
                place = self._station.pose(name)
                holds = isinstance(obj.shape, Vessel) and _is_inside(pose, place, obj.shape)
                # The tops of their bounding boxes are not where objects ride.
                rides = obj.shape.kind in ("conveyor", "ramp") and _TABLE not in touched
                is_on = self._nouns.prepositions[noun_of(name)] == "on"
                if holds or rides or (is_on and _rests(pose, place, _HALF)):
                    return self._nouns.phrase(noun_of(name))
        return self._nouns.phrase(GROUND) if _TABLE in touched else ELSEWHERE


def _goals(task: TaskConfig) -> list[tuple[int, ...]]:
    """The rubric's goals in its order: indices of successive criteria of one object (reach, lift, place)."""
    found: list[tuple[int, ...]] = []
    pending: dict[str, tuple[int, ...]] = {}
    for number, criterion in enumerate(task.rubric):
        name = criterion.object
        pending[name] = (*pending.get(name, ()), number)
        if isinstance(criterion, _Placing | OpenedCriterion):
            found.append(pending.pop(name))
    return sorted([*found, *pending.values()])


def _items(task: TaskConfig, model: mujoco.MjModel) -> list[Item]:
    found: list[Item] = []
    for name, obj in task.objects.items():
        if _is_thing(task, name):
            noun, body, wide = noun_of(name), int(model.body(name).id), is_too_wide(obj.shape)
            found.append(Item(index=len(found), name=name, noun=noun, body=body, too_wide=wide))
    for name, obj in task.objects.items():
        if isinstance(obj.shape, DrawerShape):
            wanted = [
                each.by for each in task.rubric if isinstance(each, OpenedCriterion) and each.object == name
            ]
            end = max(wanted, default=_DRAWER_OPEN * obj.shape.travel)
            joint = model.joint(part_name(name, DRAWER))
            slide = Articulation(address=int(joint.qposadr[0]), start=0.0, end=end, switches=False)
            noun, body = _drawer_noun_of(name), int(model.jnt_bodyid[joint.id])
            found.append(Item(index=len(found), name=name, noun=noun, body=body, articulation=slide))
    return found


def _sides(model: mujoco.MjModel) -> np.ndarray:
    hand = int(model.body("robotiq_85_adapter_link").id)
    side = np.zeros(model.nbody, np.int64)
    for body in range(hand, model.nbody):  # parents come first
        if body == hand or side[model.body_parentid[body]]:
            name = model.body(body).name
            side[body] = LEFT if name.startswith("left_") else RIGHT if name.startswith("right_") else HAND
    return side[model.geom_bodyid]
