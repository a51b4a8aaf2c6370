"""Policies from Python classes, with openpi's two methods or this project's contract; their time limit."""

import contextlib
import dataclasses
import functools
import importlib.util
import inspect
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, cast

import numpy as np

from configs.paths import absolute
from configs.schema import PolicyConfig, read_prompt_fields
from contracts.errors import UsageError, unknown
from contracts.interface import Interface
from contracts.observation import Observation
from contracts.prompt import FieldsByTask
from eval.policies.base import BatchPolicy, LoadedPolicy, Policy, QueryTimeoutError, SingleRowBatch
from eval.policies.batches import opened_batches
from eval.policies.openpi import OpenpiPolicy, assumption, named, opened, resize_of
from eval.policies.torch_objects import runs_on, share_cores, weight_bytes
from oxygen.robots.images import resized
from oxygen.robots.openpi_keys import ASSUMED, OpenpiKeys, keys_of, sized_keys
from sim_envs.suite import Suite, load_object
from sim_envs.world import World

_CONTRACT = ("act", "complete", "reset", "finish", "interface")
_OPENPI = ("infer", "reset")
# By optional attributes, see `named`.
_DECLARED = ("horizon", "image_resolution", "image_resize", "action_prefix")

QUERY_TIMEOUT_S = 600.0
"""Default time limit: a class may compile in its first query."""
_TIMED = ("reset", "act", "complete", "finish")
_REPEAT_S = 1.0  # interval at which the exception is raised again where it was swallowed


def open_python(
    target: str,
    kwargs: Mapping[str, Any],
    *,
    worlds: int = 1,
    batch_size: int = 1,
    assumed: OpenpiKeys = ASSUMED,
    notify: Callable[[str], None] = print,
    given: Any = None,
) -> LoadedPolicy:
    """A policy from a class, or from a function that returns one; or the object that is `given`.

    A policy with `act` follows the contract in `eval/policies/base.py`; its optional attribute `writes_texts`
    says whether its replies have texts (default: no). Any other follows openpi's. Its optional attributes are
    `embodiment`, the name of its robot, or `interface`, which describes one (without both, it gets the keys
    that are `assumed`), and those that `named` reads. A policy of either form that reads its own texts says
    so in its attribute `feedback` (see `contracts.prompt`). Both get images of the sizes that their interface
    declares.

    The target is `package.module:Class` or `path/to/file.py:Class`. A class with `infer_batch` is
    instantiated once, any other for each of the parallel `worlds`, of which `notify` is told in one line.
    Refuses one that does not exist, cannot be made with these arguments, or is not a policy, and one object
    without `infer_batch` for several worlds.
    """
    policy = _made(target, kwargs, given)
    if hasattr(policy, "infer_batch"):
        _check_batches(policy, target)
        keys, fields, remark = _declaration(policy, target, assumed)
        return opened_batches(policy, keys, fields, worlds=worlds, batch_size=batch_size, remark=remark)
    first = _opened(policy, target, assumed)
    if worlds > 1 and policy is given:
        raise UsageError(
            f"policy {target} is one object without infer_batch, and num_envs is {worlds}: give its class, "
            "of which each world gets a copy, add infer_batch, or leave out num_envs"
        )
    if worlds > 1:
        size = weight_bytes(policy)
        each = "of unknown size" if size is None else f"{size / 1e6:.1f} MB each"
        notify(f"{target}: {worlds} copies, one per world, weights {each}; with infer_batch, one serves all.")
    share_cores(simulating=worlds - 1)
    others = [_opened(_made(target, kwargs, given), target, assumed) for _ in range(worlds - 1)]
    groups = [group for opened in (first, *others) for group in opened.groups]
    return dataclasses.replace(first, groups=groups, runs_on=runs_on(policy))


def _opened(policy: Any, target: str, assumed: OpenpiKeys) -> LoadedPolicy:
    if hasattr(policy, "act"):
        _check_has(policy, target, _CONTRACT)
        interface = _checked(policy.interface, target)
        inputs = {"cameras": list(interface.observation.camera_names)}
        policy = _resized(policy, target)
        return LoadedPolicy(
            interface=interface,
            inputs=inputs,
            image_sizes=interface.observation.camera_sizes,
            in_world=lambda *_: policy,
            groups=(SingleRowBatch(policy),),
            writes_texts=getattr(policy, "writes_texts", False),
            follows_mode=False,
            reports_work=True,
            fields_by_task=_prompt_fields(policy, target),
        )
    _check_has(policy, target, _OPENPI)
    keys, fields, remark = _declaration(policy, target, assumed)
    adapted = OpenpiPolicy(policy, keys, fields)
    return dataclasses.replace(opened(adapted, remark=remark), groups=(SingleRowBatch(adapted),))


def _check_batches(policy: Any, target: str) -> None:
    _check_has(policy, target, ("reset",))
    try:
        inspect.signature(policy.reset).bind([], [])
    except TypeError:
        raise UsageError(
            f"policy {target} has infer_batch, so its reset takes rows and the keys of their episodes: "
            "def reset(self, rows, keys)"
        ) from None


def _declaration(
    policy: Any, target: str, assumed: OpenpiKeys
) -> tuple[OpenpiKeys, FieldsByTask, str | None]:
    """The keys and texts that a policy declares, and a remark if it does not name its robot."""
    embodiment, interface = getattr(policy, "embodiment", None), getattr(policy, "interface", None)
    if embodiment is not None and interface is not None:
        raise UsageError(f"policy {target} has an `embodiment` and an `interface`; give one of them")
    keys = None if embodiment is None else keys_of(embodiment)
    if interface is not None:
        keys = sized_keys(_checked(interface, target))
    remedy = "for another, give the class an attribute `embodiment`, or an `interface`."
    fields = _prompt_fields(policy, target)
    remark = None if keys else assumption(target, assumed, fields, remedy)
    declared = {name: getattr(policy, name) for name in _DECLARED if hasattr(policy, name)}
    history = getattr(policy, "history_steps", 0)
    if type(history) is not int or history < 0:
        raise UsageError(f"policy {target}: its history_steps is {history!r}; give a number of control steps")
    keys = dataclasses.replace(named(keys or assumed, target, declared), history=history)
    return keys, fields, remark


def _resized(policy: Any, target: str) -> Policy:
    """The policy of this project's contract; it is shown images of the sizes that it declares, if any."""
    sizes = policy.interface.observation.camera_sizes
    how = resize_of({"image_resize": getattr(policy, "image_resize", "pad")}, target)
    return cast("Policy", WithDefaults(policy, sizes, how))


def _prompt_fields(policy: Any, target: str) -> FieldsByTask:
    declared = getattr(policy, "feedback", None)
    return read_prompt_fields({} if declared is None else declared, f"feedback of policy {target}")


def makes_policy(given: Any) -> bool:
    """Whether an object is a class or function that makes a policy, rather than a policy."""
    return inspect.isclass(given) or inspect.isroutine(given) or isinstance(given, functools.partial)


def _made(target: str, kwargs: Mapping[str, Any], given: Any) -> Any:
    if given is not None and not makes_policy(given):
        if kwargs:
            raise UsageError(f"policy {target} is an object: leave out policy_kwargs, or give its class")
        return given
    with in_one_line(f"policy {target} cannot be imported"):
        make = given or _imported(target)
    if not callable(make):
        raise UsageError(f"policy {target} is {make!r:.60}; give a class, or a function that makes a policy")
    signature = None
    with contextlib.suppress(ValueError):  # some that are written in C have none
        signature = inspect.signature(make)
    if signature is not None:
        try:
            signature.bind(**kwargs)
        except TypeError as error:
            takes = ", ".join(map(str, signature.parameters.values())) or "none"
            raise UsageError(f"policy {target}: {error}; its arguments: {takes}") from None
    with in_one_line(f"policy {target} cannot be made"):
        return make(**kwargs)


def _imported(target: str) -> Any:
    """The object of a module, or of a file that is imported with its folder on the path, as for a script."""
    if target.endswith(".py"):
        raise UsageError(f"policy {target} names no class; write {target}:Class")
    place, _, name = target.rpartition(":")
    if not place.endswith(".py"):
        return load_object(target, what="policy")
    file = absolute(place)
    if not file.is_file():
        raise UsageError(f"there is no file {place}; give path/to/file.py:Class, or package.module:Class")
    spec = importlib.util.spec_from_file_location(f"policy_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None, "Python loads every file that ends in .py"
    sys.path.append(str(file.parent.resolve()))
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if name not in vars(module):
        own = [key for key, each in vars(module).items() if getattr(each, "__module__", "") == spec.name]
        raise unknown(f"class in {place}:", name, own)
    return vars(module)[name]


def _check_has(policy: Any, target: str, needed: tuple[str, ...]) -> None:
    lacks = [name for name in needed if not hasattr(policy, name)]
    if lacks:
        raise UsageError(
            f"policy {target} lacks {', '.join(lacks)}: give it infer(observation) and reset(), or "
            f"{', '.join(_CONTRACT)}; docs/evaluate.md shows both"
        )


def _checked(interface: Any, target: str) -> Interface:
    if not isinstance(interface, Interface):
        kind = type(interface).__name__
        raise UsageError(f"policy {target}: its interface is a {kind}; give a contracts.interface.Interface")
    return interface


@contextlib.contextmanager
def in_one_line(what: str) -> Iterator[None]:
    """Turn an exception of the user's code into a UsageError with its file and line."""
    try:
        yield
    except UsageError:
        raise
    except SyntaxError as error:  # its message names the place
        raise UsageError(f"{what}: {type(error).__name__}: {error}") from error
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        where = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error}"
        raise UsageError(f"{what}: {message} ({Path(where.filename).name}, line {where.lineno})") from error


class WithDefaults:
    """Resizes images to the sizes that a user's policy declares, and supplies `charged_ms` if it has none."""

    def __init__(self, policy: Policy, sizes: Mapping[str, tuple[int, int]], resize: str) -> None:
        self._policy = policy
        self._sizes = sizes
        self._resize = resize

    @property
    def charged_ms(self) -> float | None:
        """See `Policy`."""
        return getattr(self._policy, "charged_ms", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def act(self, observation: Observation) -> np.ndarray:
        """See `Policy`."""
        images = {
            name: resized(image, self._sizes[name], self._resize) if name in self._sizes else image
            for name, image in observation.images.items()
        }
        return self._policy.act(dataclasses.replace(observation, images=images))


def query_limit_s(policy: PolicyConfig, given: float | None) -> float | None:
    """The time limit of a query, seconds; None if the policy is not a Python class.

    A limit that is given for such a policy is a UsageError.
    """
    is_class = policy.kind in ("python", "lerobot")
    if given is None:
        return QUERY_TIMEOUT_S if is_class else None
    if not is_class:
        raise UsageError(
            f"--query-timeout {given:g} is for a Python class, not {policy.name}; leave it out (a "
            "server's limit is --policy-kwargs timeout_s)"
        )
    return given


def limited(policy: LoadedPolicy, seconds: float | None) -> LoadedPolicy:
    """The policy with a time limit on each call; None for no limit.

    A call that exceeds it raises QueryTimeoutError as soon as it executes Python, in the main thread only.
    """
    if seconds is None:
        return policy

    def in_world(suite: Suite, world: World) -> Policy:
        return cast("Policy", WithTimeout(policy.in_world(suite, world), seconds))

    groups = [cast("BatchPolicy", WithTimeout(group, seconds)) for group in policy.groups]
    return dataclasses.replace(policy, in_world=in_world, groups=groups)


class WithTimeout:
    """A policy with a time limit on its methods."""

    def __init__(self, policy: Policy | BatchPolicy, seconds: float) -> None:
        self._policy = policy
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._policy, name)
        return _time_limit(self._seconds)(found) if name in _TIMED else found


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(_number: int, _frame: FrameType | None) -> None:
        raise QueryTimeoutError(f"the policy has not answered a query within {seconds:g} s")

    before, began = signal.signal(signal.SIGALRM, expire), time.monotonic()
    left_s, every_s = signal.setitimer(signal.ITIMER_REAL, seconds, _REPEAT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left_s:  # the caller has a timer of its own
            left_s = max(left_s - (time.monotonic() - began), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, left_s, every_s)
