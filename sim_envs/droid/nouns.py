"""The vocabulary of a task: its objects' names as words, and the table."""

from configs.errors import UsageError
from sim_envs.droid.shapes import DrawerShape, Vessel
from sim_envs.droid.task_file import InsideCriterion, OnCriterion, TaskConfig
from sim_envs.truth.nouns import Nouns

GROUND = "table"

_SHALLOW = 0.03
"""Objects lie on, not in, vessels up to this depth (m), such as trays, unless the rubric says otherwise."""


def nouns_of(task: TaskConfig) -> Nouns:
    """The vocabulary of a task.

    Raises:
        UsageError: Two objects share a noun.
    """
    names: dict[str, str] = {}
    for name in task.objects:
        other = names.setdefault(noun_of(name), name)
        if other != name:
            raise UsageError(
                f"objects {other!r} and {name!r} of task {task.name} are both called {noun_of(name)!r}: "
                "rename one of them"
            )
    places = {GROUND: "on"} | {noun_of(name): _preposition(task, name) for name in task.objects}
    drawers = [name for name, obj in task.objects.items() if isinstance(obj.shape, DrawerShape)]
    return Nouns(
        movable=frozenset(noun_of(name) for name in task.objects if is_thing(task, name)),
        parts=frozenset(map(drawer_noun_of, drawers)),
        places=frozenset(places.items()),
    )


def noun_of(name: str) -> str:
    """The noun of an object: `wooden_block` → `wooden block`."""
    return " ".join(name.replace("_", " ").replace(".", " ").casefold().split())


def drawer_noun_of(name: str) -> str:
    """The noun of an object's drawer: `cabinet` → `drawer of the cabinet`."""
    noun = noun_of(name)
    return noun if "drawer" in noun else f"drawer of the {noun}"


def is_thing(task: TaskConfig, name: str) -> bool:
    """Whether an object is an item as a whole: it is movable, or the rubric mentions it."""
    obj = task.objects[name]
    wanted = any(criterion.object == name for criterion in task.rubric)
    return not isinstance(obj.shape, DrawerShape) and (wanted or not obj.is_fixed)


def _preposition(task: TaskConfig, name: str) -> str:
    """The preposition of a place, from the rubric, else from the shape."""
    targets = [each for each in task.rubric if isinstance(each, OnCriterion | InsideCriterion)]
    kinds = {type(each) for each in targets if each.target == name}
    if kinds:
        return "in" if InsideCriterion in kinds else "on"
    shape = task.objects[name].shape
    is_deep = isinstance(shape, Vessel) and shape.opening.rim - shape.opening.floor > _SHALLOW
    return "in" if is_deep else "on"
