"""Results of other programs as run folders: LeRobot's, vla-evaluation-harness's, and tables of episodes."""

import contextlib
import csv
import dataclasses
import difflib
import hashlib
import io
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from configs.errors import check
from configs.load import load, names
from configs.paths import parse_json_object, read_text
from configs.protocol import ProtocolConfig
from configs.schema import Name, RunConfig
from contracts.episode import EpisodeKey, EpisodeResult, Outcome, RequestCounts
from contracts.errors import UsageError, pluralize, unknown
from eval.metrics.results_file import results_of
from eval.metrics.rows import RunRows
from eval.records import provenance
from eval.records.json_files import write_json
from eval.records.protocol import NO_ASSETS, protocol_hash, suite_hash
from eval.records.reader import Imported, RunRecords
from eval.records.run_folders import begin, end_attempt, locked_run, new_run
from eval.records.schema import RunFolder
from sim_envs.suite import InitIds, find_suite, open_suite, suite_names

_CSV_COLUMNS = (
    "task (or task_id) and outcome (or success); known, too, are suite, init_id, seed, steps and wall_s"
)
_OUTCOMES = {
    **{each.value: each for each in Outcome},
    **dict.fromkeys(("true", "1", "1.0"), Outcome.SUCCESS),
    **dict.fromkeys(("false", "0", "0.0"), Outcome.FAILURE),
}
_READ_COLUMNS = {"task", "task_id", "outcome", "success", "suite", "init_id", "seed", "steps", "wall_s"}
_MOST_EPISODES = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForeignEpisode:
    """An episode as another program recorded it."""

    where: str  # its place in the file
    suite: str | None  # None if the file does not say
    task: int | str  # its number in the suite, or its name or instruction
    name: str = ""  # its name, if the file has it beside the number
    trial: int  # its number within the task, or the initial state's
    seed: int | None = None  # None if the file does not say
    outcome: Outcome
    steps: int = 0  # 0 if unknown
    wall_s: float = 0.0  # 0 if unknown
    error: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForeignResults:
    """The episodes of a file, and the program that wrote it."""

    runner: str  # the program that wrote it
    episodes: Sequence[ForeignEpisode]
    # Whether trials are initial states; None if the file does not say.
    names_states: bool | None = None


Count = Annotated[int, Field(ge=0, lt=2**31)]


class _LeRobotMetrics(BaseModel):
    successes: list[bool]


class _LeRobotTask(BaseModel):
    task_group: Name
    task_id: Count
    metrics: _LeRobotMetrics
    n_errors: Count = 0  # in this project's exports: episodes that are not among the successes


class _LeRobotOverall(BaseModel):
    n_episodes: Count


class _LeRobotFile(BaseModel):
    per_task: list[_LeRobotTask]
    overall: _LeRobotOverall


def _read_lerobot(content: Mapping[str, Any], file: str) -> ForeignResults:
    """The `eval_info.json` of `lerobot-eval`. It does not say in which states the trials began."""
    read = check(_LeRobotFile, content, source=file)
    episodes = [
        ForeignEpisode(
            where=f"per_task[{number}].metrics.successes[{trial}]",
            suite=task.task_group,
            task=task.task_id,
            trial=trial,
            outcome=outcome,
            error="not told" if outcome.has_traceback else None,
        )
        for number, task in enumerate(read.per_task)
        for trial, outcome in enumerate(
            [Outcome.SUCCESS if success else Outcome.FAILURE for success in task.metrics.successes]
            + [Outcome.ERROR] * task.n_errors
        )
    ]
    errors = sum(task.n_errors for task in read.per_task)
    if (graded := len(episodes) - errors) != read.overall.n_episodes:
        raise UsageError(
            f"{file}: overall.n_episodes is {read.overall.n_episodes}, and per_task has {graded}; "
            "give the whole file"
        )
    return ForeignResults(runner="LeRobot", episodes=episodes, names_states=False if errors else None)


class _VlaEvalEpisode(BaseModel):
    episode_id: Count
    metrics: dict[str, Any] = {}
    steps: Count | None = None
    elapsed_sec: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    failure_reason: str | None = None
    failure_detail: str | None = None
    suite: Name | None = None  # these four in this project's exports
    task_id: Count | None = None
    init_id: Count | None = None
    seed: Count | None = None


class _VlaEvalTask(BaseModel):
    task: str
    episodes: list[_VlaEvalEpisode]
    num_episodes: Count


class _VlaEvalFile(BaseModel):
    benchmark: str
    tasks: list[_VlaEvalTask]
    config: dict[str, Any] = {}
    seed: Count | None = None
    num_episodes_total: Count | None = None


def _read_vla_eval(content: Mapping[str, Any], file: str) -> ForeignResults:
    """An aggregate of vla-evaluation-harness, whose episode i of a task begins in initial state i."""
    read = check(_VlaEvalFile, content, source=file)
    parameters = read.config.get("params")
    suite = parameters.get("suite") if isinstance(parameters, Mapping) else None
    episodes = []
    for number, task in enumerate(read.tasks):
        if len(task.episodes) != task.num_episodes:
            raise UsageError(
                f"{file}: tasks[{number}].num_episodes is {task.num_episodes}, and it has "
                f"{len(task.episodes)}; give the whole file"
            )
        for place, episode in enumerate(task.episodes):
            where = f"tasks[{number}].episodes[{place}]"
            failed = episode.failure_reason
            success = episode.metrics.get("success", False if failed else None)
            if success not in (True, False):
                raise UsageError(f"{file}: {where}.metrics.success is {success!r}; give true or false")
            invalid = failed == Outcome.INVALID_ACTION
            raised = Outcome.INVALID_ACTION if invalid else Outcome.ERROR
            episodes.append(
                ForeignEpisode(
                    where=where,
                    suite=episode.suite or suite,
                    task=task.task if episode.task_id is None else episode.task_id,
                    name=task.task.removeprefix(f"{episode.suite}/"),
                    trial=episode.episode_id if episode.init_id is None else episode.init_id,
                    seed=read.seed if episode.seed is None else episode.seed,
                    outcome=raised if failed else Outcome.SUCCESS if success else Outcome.FAILURE,
                    steps=episode.steps or 0,
                    wall_s=episode.elapsed_sec or 0.0,
                    error=(episode.failure_detail or failed) if failed else None,
                )
            )
    return ForeignResults(runner="vla-evaluation-harness", episodes=episodes, names_states=True)


def _check_columns(columns: Sequence[str], file: str) -> None:
    """A column that is missing, there twice, or nearly named as a known one is a UsageError.

    Otherwise its states or seeds would be ignored without a word.
    """
    if twice := [column for column in columns if columns.count(column) > 1]:
        raise UsageError(f"{file}, line 1: has column {twice[0]!r} twice; give it once")
    if {"task", "task_id"}.isdisjoint(columns) or {"outcome", "success"}.isdisjoint(columns):
        raise UsageError(f"{file}, line 1: has columns {', '.join(columns) or 'none'}; give {_CSV_COLUMNS}")
    missing = sorted({"suite", "init_id", "seed", "steps"}.difference(columns))
    for column in {*columns} - _READ_COLUMNS:
        near = difflib.get_close_matches(column.lower().replace("initial", "init"), missing, n=1, cutoff=0.55)
        if near:
            raise UsageError(
                f"{file}, line 1: column {column!r} is not read; call it {near[0]!r}, or leave it out"
            )


def _seconds(said: str, where: str) -> float:
    """A wall time of a table; 0 if it is empty."""
    with contextlib.suppress(ValueError):
        if math.isfinite(seconds := float(said or 0)) and seconds >= 0:
            return seconds
    raise UsageError(f"{where}: wall_s is {said!r}; give seconds from 0, or leave it empty")


def _read_csv(text: str, file: str) -> ForeignResults:
    """A table of episodes."""
    lines = csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)  # Excel's mark
    columns = tuple(lines.fieldnames or ())
    _check_columns(columns, file)
    trials, episodes = defaultdict[Any, Iterator[int]](itertools.count), []
    try:
        for line in lines:
            where = f"line {lines.line_num}"
            if None in line or None in line.values():
                raise UsageError(f"{file}, {where}: has not {len(columns)} values, as the headings")

            def whole(name: str, line: Mapping[str, str] = line, where: str = where) -> int | None:
                value = line.get(name, "").strip()
                if not value:
                    return None
                if not value.isdecimal() or len(value) > 10:
                    raise UsageError(f"{file}, {where}: {name} is {value!r}; give a number from 0")
                return int(value)

            said = line.get("outcome", line.get("success", "")).strip().lower()
            if (outcome := _OUTCOMES.get(said)) is None:
                raise unknown(f"outcome in {file}, {where}:", said, list(_OUTCOMES))
            number, suite, seed = whole("task_id"), line.get("suite") or None, whole("seed")
            task: int | str = line.get("task", "") if number is None else number
            if number is None and isinstance(task, str) and task.isdecimal():
                task = int(task)
            state = whole("init_id")
            if state is None and "init_id" in columns:
                raise UsageError(f"{file}, {where}: init_id is empty; give the number of an initial state")
            episodes.append(
                ForeignEpisode(
                    where=where,
                    suite=suite,
                    task=task,
                    name=line.get("task", ""),
                    trial=next(trials[suite, task, seed]) if state is None else state,
                    seed=seed,
                    outcome=outcome,
                    steps=whole("steps") or 0,
                    wall_s=_seconds(line.get("wall_s", "").strip(), f"{file}, {where}"),
                    error=(line.get("error") or said) if outcome.has_traceback else None,
                )
            )
    except csv.Error as error:
        raise UsageError(f"{file}, line {lines.line_num}: {error}; give a CSV file") from None
    return ForeignResults(runner="CSV", episodes=episodes, names_states="init_id" in columns)


def read_results(path: Path) -> ForeignResults:
    """The episodes of a file, whose content says of which format it is.

    Raises:
        UsageError: The file is cut off, or of no known format; names the place and what is expected.
    """
    text, file = read_text(path), str(path)
    if path.suffix.lower() == ".csv":
        results = _read_csv(text, file)
    else:
        content = parse_json_object(text, file)
        if "per_task" in content:
            results = _read_lerobot(content, file)
        elif "tasks" in content:
            results = _read_vla_eval(content, file)
        else:
            raise UsageError(
                f"{file}: has neither per_task, as LeRobot's eval_info.json, nor tasks, as "
                f"vla-evaluation-harness's aggregate; give one of them, or a CSV file with {_CSV_COLUMNS}"
            )
    if not 0 < len(results.episodes) <= _MOST_EPISODES:
        raise UsageError(
            f"{file}: has {pluralize(len(results.episodes), 'episode')}; give 1 to {_MOST_EPISODES}"
        )
    return results


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Task:
    """A task of a suite."""

    task_id: int
    name: str
    instruction: str
    init_ids: InitIds


def _tasks_of(suite: str, episodes: Sequence[ForeignEpisode], file: str) -> dict[int | str, _Task]:
    """The tasks by number, name and instruction; those of a suite that is not ours are numbered by name."""
    if suite not in suite_names():
        names = sorted({episode.task for episode in episodes if isinstance(episode.task, str)})
        ids: dict[int | str, int] = {name: number for number, name in enumerate(names)}
        ids |= {episode.task: episode.task for episode in episodes if isinstance(episode.task, int)}
        called = {episode.task: episode.name for episode in episodes if episode.name}
        return {
            task: _Task(task_id=number, name=name, instruction=name, init_ids=InitIds(stored=_MOST_EPISODES))
            for task, number in ids.items()
            for name in [called.get(task, str(task))]
        }
    opened, meant = open_suite(suite), defaultdict[int | str, list[_Task]](list)
    for task in opened.tasks():
        known = _Task(
            task_id=task.task_id,
            name=task.name,
            instruction=task.language,
            init_ids=opened.init_ids(task),
        )
        for spelled in dict.fromkeys((task.task_id, task.name, task.language)):
            meant[spelled].append(known)
    for episode in episodes:
        place = f"{file}, {episode.where}"
        if episode.task not in meant:
            if isinstance(episode.task, int):
                last = max(task for task in meant if isinstance(task, int))
                raise UsageError(f"{place}: {suite} has no task {episode.task}; its task ids are 0 to {last}")
            raise unknown(f"task of {suite} in {place}:", episode.task, [*map(str, meant)])
        task, *others = meant[episode.task]
        if others:  # scenes of libero_90 share instructions
            raise UsageError(
                f"{place}: {len(others) + 1} tasks of {suite} are {episode.task!r}; give their numbers or "
                f"names, such as {task.task_id} or {task.name}"
            )
        if task not in meant.get(episode.name, [task]):
            raise UsageError(
                f"{place}: task {task.task_id} of {suite} is {task.instruction!r}, not {episode.name!r}; "
                "leave out the wrong column"
            )
    return {spelled: tasks[0] for spelled, tasks in meant.items()}


class _Suite(BaseModel):
    suite: Name


def _results(
    foreign: ForeignResults, file: str, *, suite: str | None, seed: int, names_states: bool
) -> list[EpisodeResult]:
    """The episodes as records, in the order of the file.

    Raises:
        UsageError: An episode is unknown or there twice, or a task lacks one that another has.
    """
    by_suite = defaultdict[str, list[ForeignEpisode]](list)
    for episode in foreign.episodes:
        if episode.suite is None and suite is None:
            raise UsageError(f"{file} does not name a suite; give --suite")
        by_suite[episode.suite or suite or ""].append(episode)
    results: dict[EpisodeKey, EpisodeResult] = {}
    places: dict[EpisodeKey, str] = {}
    for name, episodes in by_suite.items():
        check(_Suite, {"suite": name}, source=f"{file}, {episodes[0].where}")
        tasks = _tasks_of(name, episodes, file)
        for episode in episodes:
            task = tasks[episode.task]
            key = EpisodeKey(
                suite=name,
                task_id=task.task_id,
                init_id=episode.trial,
                seed=seed if episode.seed is None else episode.seed,
            )
            if key in places:
                raise UsageError(
                    f"{file}, {episode.where}: episode {key} is also {places[key]}; give it once"
                )
            stored, trial = task.init_ids.stored, episode.trial
            if names_states and trial >= stored and task.init_ids.source(trial) == "stored":
                raise UsageError(
                    f"{file}, {episode.where}: task {task.task_id} of {name} has {stored} initial states, 0 "
                    f"to {stored - 1}, not {trial}"
                )
            places[key] = episode.where
            results[key] = EpisodeResult(
                key=key,
                task=task.name,
                instruction=task.instruction,
                language=task.instruction,
                outcome=episode.outcome,
                steps=episode.steps,
                queries=0,
                latency_ms={},
                tokens=0,
                requests=RequestCounts(),
                policy_s=0.0,
                wall_s=episode.wall_s,
                error=episode.error,
                traceback=episode.error,
            )
        _check_complete([key for key in results if key.suite == name], file)
    return list(results.values())


def _check_complete(keys: Sequence[EpisodeKey], file: str) -> None:
    """Refuse a suite of which a task lacks an episode that another has."""
    known = set(keys)
    for first in {key.task_id: key for key in keys}.values():
        for init_id, seed in sorted({(key.init_id, key.seed) for key in keys}):
            if (key := dataclasses.replace(first, init_id=init_id, seed=seed)) not in known:
                raise UsageError(
                    f"{file}: episode {key} is missing, and other tasks have {init_id}; give every task the "
                    "same episodes"
                )


def _check_protocol(protocol: str, suites: Sequence[str]) -> None:
    """Refuse a protocol that is not for one of our suites; that of others may have any name."""
    ours = [find_suite(suite)[0] for suite in suites if suite in suite_names()]
    known = [load(ProtocolConfig, name) for name in names(ProtocolConfig)]
    named = [each for each in known if each.name == protocol]
    if not named and any((suite.base or suite.name) in each.max_steps for suite in ours for each in known):
        raise unknown("protocol", protocol, [each.name for each in known])
    for suite in ours if named else ():
        named[0].fields_of(suite)


def _manifest(
    config: Mapping[str, Any],
    seeds: Sequence[int],
    source: Mapping[str, Any],
    episodes: Sequence[EpisodeResult],
) -> dict[str, Any]:
    """The manifest of a run with these episodes, which another program played."""
    played = {name: value for name, value in config.items() if name != "policy"}
    stated = {**played, "names_states": source["names_states"]}
    suites = dict.fromkeys(each.key.suite for each in episodes)
    described = {name: {"assets": dataclasses.asdict(NO_ASSETS), "imported": stated} for name in suites}
    return {
        "command": provenance.command(),
        "mode": "actions",
        "policy": config["policy"],
        "assets": dataclasses.asdict(NO_ASSETS),
        "n_planned": len(episodes),
        "config": {**config, "seeds": list(seeds)},
        "protocol": described,
        "protocol_hash": protocol_hash(described),
        "suite_hashes": {name: suite_hash(each) for name, each in described.items()},
        "policy_inputs": {},
        "imported": source,
        "git": provenance.git_state(),
        "versions": provenance.versions(),
    }


def import_results(
    path: Path,
    output_dir: Path,
    *,
    policy: str,
    protocol: str,
    changes: Mapping[str, Any] | None = None,
    suite: str | None = None,
    seed: int = 7,
    in_order: bool = False,
) -> RunFolder:
    """Write the results in a file as a run.

    Args:
        path: The file.
        output_dir: Parent of the run's folder.
        policy: The policy's name.
        protocol: The protocol under which it was played.
        changes: Options that replace parts of that.
        suite: The suite, if the file does not name it.
        seed: The seed, where the file does not say it.
        in_order: Whether trial i began in initial state i, if the file does not say it.

    Raises:
        UsageError: Nothing is written; see `read_results` and `_results`.
    """
    foreign = read_results(path)
    if in_order and foreign.names_states is not None:
        why = "has initial states itself"
        if not foreign.names_states:
            why = "does not say which episodes were errors"
        raise UsageError(f"--in-order: {path} {why}; leave it out")
    names_states = in_order if foreign.names_states is None else foreign.names_states
    episodes = _results(foreign, str(path), suite=suite, seed=seed, names_states=names_states)
    _check_protocol(protocol, tuple(dict.fromkeys(episode.key.suite for episode in episodes)))
    source = {
        **dataclasses.asdict(Imported(runner=foreign.runner, names_states=names_states)),
        "file": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    seeds = tuple(dict.fromkeys(episode.key.seed for episode in episodes))
    manifest = _manifest({"policy": policy, "protocol": protocol, **(changes or {})}, seeds, source, episodes)
    config = check(RunConfig, {"policy": policy, "seeds": seeds}, source=str(path))
    with locked_run(new_run(output_dir, config, names_mode=False)) as run:
        begin([run], [manifest])
        for episode in episodes:
            run.folder.append(episode)
        write_json(run.folder.results_path, results_of(RunRows(RunRecords(run.folder))))
        end_attempt(run.folder, "complete")
    return run.folder
