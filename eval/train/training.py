"""What `python -m eval.train` does: demonstrations to a trained policy, with rollouts at every checkpoint."""

import dataclasses
import datetime as dt
import json
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console as RichConsole

from configs.cli import INTERRUPTED, spelt
from configs.errors import UsageError
from configs.load import check, load, names
from configs.schema import LanguageTaskConfig, PolicyConfig, RunConfig, SuiteConfig, Wordings
from eval.policies.language_tasks import language_task
from eval.policies.names import Start, policy_of, start_of
from eval.records.run_folders import new_run
from eval.report.console import Console
from eval.rollout.evaluation import run_evaluation
from eval.rollout.executors.choice import choose_executor
from eval.rollout.interrupts import Interrupts
from eval.rollout.plan import check_playable, make_plan
from oxygen.model.compile_cache import use_compile_cache
from oxygen.model.config import preset
from oxygen.robots import tokenizer as tokenizers
from oxygen.robots.transforms import embodiment
from oxygen.training import checkpoint, layout
from oxygen.training.demonstrations import Demonstrations
from oxygen.training.recipe import CHECKPOINTS, Recipe
from oxygen.training.run import Training, train
from oxygen.training.samples import Mixture
from oxygen.training.sources import samples_of
from oxygen.training.trainer import Schedule
from sim_envs.suite import Suite, load_object, open_suite, suite_names


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assignment:
    """A training as the command line describes it.

    Attributes:
        folder: For checkpoints, logs and the rollouts' records.
        data: Folders of demonstrations.
        model: Name of the model configuration.
        embodiment: Name of the robot.
        language_tasks: Names of the language tasks to learn.
        start_from: A policy or a checkpoint to begin with, or None.
        norm_stats: `measured`, `from-start`, or where the robot's statistics are.
        wordings: In which words instructions are given, `training` or `benchmark`.
        tokenizer: A SentencePiece model; that of the policy preset named as the model if None.
        recipe: How it is trained.
        rollouts: What to run at every checkpoint, whatever policy it names; nothing if None.
        num_envs: Worlds that are rolled out in at once.
        save_every: Steps between two checkpoints.
        log_every: Steps between two lines of the log.
        minutes: Time limit, rollouts included; None for none.
        asked: The options that led to all this, for the folder to keep.
    """

    folder: Path
    data: tuple[str, ...]
    model: str
    embodiment: str
    language_tasks: tuple[str, ...]
    start_from: str | None
    norm_stats: str
    wordings: Wordings
    tokenizer: str | None
    recipe: Recipe
    rollouts: RunConfig | None
    save_every: int
    log_every: int
    minutes: float | None
    asked: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    num_envs: int = 1


def run_training(assignment: Assignment) -> int:
    """Train, and say how it goes and how to go on.

    Returns:
        The exit code: 0 also when time was up, 130 after Ctrl-C.

    Raises:
        UsageError: Demonstrations, model, robot, rollouts and options do not go together; before anything
            is trained.
    """
    began = time.monotonic()
    use_compile_cache()
    training, tokenizer = training_of(assignment), _tokenizer(assignment)
    if assignment.recipe.texts_only:
        _check_acts_as_before(assignment, tokenizer)
    _check_rollouts(assignment)
    mixture = Mixture(tuple(samples_of(Demonstrations(folder), training.model) for folder in assignment.data))
    console = RichConsole(highlight=False)
    console.print(
        f"[bold]{assignment.model}[/] on {len(mixture)} frames of {', '.join(assignment.data)} "
        f"→ {assignment.folder}",
        soft_wrap=True,
    )
    with Interrupts() as interrupts:
        schedule = Schedule(
            log_every=assignment.log_every,
            save_every=assignment.save_every,
            should_stop=lambda: interrupts.noted or _time_is_up(assignment, began),
            on_note=lambda step, numbers: console.print(_line(step, assignment.recipe, numbers)),
        )
        try:
            train(
                assignment.folder,
                training,
                mixture,
                tokenizer,
                schedule=schedule,
                on_checkpoint=lambda _, saved: {} if interrupts.noted else _rolled_out(assignment, saved),
            )
            interrupted = interrupts.noted
        except KeyboardInterrupt:  # in a rollout: its checkpoint is safe
            interrupted = True
    _say_how_to_go_on(console, assignment, interrupted=interrupted)
    return INTERRUPTED if interrupted else 0


def training_of(assignment: Assignment) -> Training:
    """What is trained on what, with the presets that the names stand for."""
    tasks = [load(LanguageTaskConfig, name) for name in assignment.language_tasks]
    _check_texts_only(assignment)
    start = None if assignment.start_from is None else start_of(assignment.start_from)
    return Training(
        model=preset(assignment.model),
        embodiment=assignment.embodiment,
        tasks=tuple(language_task(task) for task in tasks),
        recipe=assignment.recipe,
        data=assignment.data,
        start_from=None if start is None else start.weights,
        norm_stats=_norm_stats(assignment.norm_stats, start),
        wordings=_training_wordings(assignment.data) if assignment.wordings == "training" else {},
        asked=assignment.asked,
    )


def _training_wordings(data: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The wordings of every instruction of the suites that the demonstrations are of, as far as they say."""
    suites = {name: protocol for folder in data for name, protocol in _suites_of(Path(folder)).items()}
    return {
        instruction: tuple(said)
        for name, protocol in suites.items()
        for instruction, said in _open_recorded(name, protocol).training_wordings().items()
    }


def _suites_of(demonstrations: Path) -> Mapping[str, Mapping[str, Any]]:
    """The suites that demonstrations were collected in, by name; none where somebody else recorded them."""
    manifest = demonstrations / layout.MANIFEST
    if not manifest.is_file():
        return {}
    suites: Mapping[str, Mapping[str, Any]] = json.loads(manifest.read_text(encoding="utf-8"))["suites"]
    return suites


def _open_recorded(name: str, protocol: Mapping[str, Any]) -> Suite:
    """The suite of that name, or, of one from a YAML file, the class that its protocol names."""
    if name in suite_names():
        return open_suite(name)
    recorded = check(SuiteConfig, protocol, source=f"suite {name} of the demonstrations")
    suite: Suite = load_object(recorded.world, what=f"world of suite {name}")(recorded)
    return suite


def _check_texts_only(assignment: Assignment) -> None:
    """Where only texts are learnt there must be a policy that acts already, and texts.

    Raises:
        UsageError: One of the two is missing.
    """
    if not assignment.recipe.texts_only:
        return
    if assignment.start_from is None:
        raise UsageError("--texts-only, but nothing that acts already: give --start-from, such as tiny")
    if not assignment.language_tasks:
        raise UsageError("--texts-only, but --language-tasks none: name some, or leave it out")


def _check_acts_as_before(assignment: Assignment, tokenizer: tokenizers.SentencePieceTokenizer) -> None:
    """Where only texts are learnt, all else that a policy acts by must be what it begins with.

    Raises:
        UsageError: Its model, robot or vocabulary would be another.
    """
    assert assignment.start_from is not None
    policy = policy_of(assignment.start_from)
    if policy is None:  # somebody else's checkpoint, which does not say
        return
    theirs = {"model": policy.model or policy.name, "embodiment": policy.embodiment}
    for option, value in theirs.items():
        ours = getattr(assignment, option)
        if ours != value:
            raise UsageError(
                f"--texts-only, but {assignment.start_from} has {option} {value}, not {ours}: give "
                f"{spelt(option, value)}"
            )
    learnt = tokenizers.load(policy.tokenizer) if policy.tokenizer else tokenizers.tiny()
    if learnt.serialized != tokenizer.serialized:
        raise UsageError(
            f"--texts-only, but {assignment.start_from} has another vocabulary: give "
            f"{spelt('tokenizer', policy.tokenizer or 'tiny')}"
        )


def _norm_stats(choice: str, start: Start | None) -> str | None:
    """Where the robot's statistics are; None if they are to be measured."""
    if choice == "measured":
        return None
    if choice != "from-start":
        return choice
    if start is None:
        raise UsageError("--norm-stats from-start, but nothing to start from: give --start-from")
    return start.norm_stats


def _tokenizer(assignment: Assignment) -> tokenizers.SentencePieceTokenizer:
    given = assignment.tokenizer
    if given is None and assignment.model in names(PolicyConfig):
        given = load(PolicyConfig, assignment.model).tokenizer
    return tokenizers.load(given) if given else tokenizers.tiny()


def _check_rollouts(assignment: Assignment) -> None:
    """Refuse now what would be refused at the first checkpoint: a robot, or rollouts, that cannot be."""
    if assignment.rollouts is None:
        embodiment(assignment.embodiment)
        return
    choose_executor(num_envs=assignment.num_envs)
    horizon = preset(assignment.model).horizon
    interface = dataclasses.replace(embodiment(assignment.embodiment).interface, name=assignment.model)
    plan = make_plan(assignment.rollouts)
    check_playable(plan, policy=assignment.model, interface=interface, horizon=horizon)


def _time_is_up(assignment: Assignment, began: float) -> bool:
    return assignment.minutes is not None and time.monotonic() - began > 60 * assignment.minutes


def _rolled_out(assignment: Assignment, saved: Path) -> Mapping[str, float]:
    """How often the policy of a checkpoint solves its tasks, suite by suite."""
    if assignment.rollouts is None:
        return {}
    config = assignment.rollouts.model_copy(update={"policy": str(saved)})
    run = new_run(assignment.folder / "rollouts", config)
    executor = choose_executor(num_envs=assignment.num_envs)
    (results,) = run_evaluation(run, monitor=Console, executor=executor)
    rates = {suite: row["pc_success"] for suite, row in results["per_suite"].items()}
    return {f"{suite}_pc_success": rate for suite, rate in rates.items() if rate is not None}


def _line(step: int, recipe: Recipe, numbers: Mapping[str, float]) -> str:
    told = [f"{name.replace('_', ' ')} {number:.4g}" for name, number in sorted(numbers.items())]
    return f"{step:>7}/{recipe.steps}  {_time_left(step, recipe, numbers):>12}  {', '.join(told)}"


def _time_left(step: int, recipe: Recipe, numbers: Mapping[str, float]) -> str:
    """How long the rest takes at the rate of the last steps, rollouts apart; of a rollout's line, nothing."""
    rate = numbers.get("samples_per_s")
    if rate is None or step == recipe.steps:
        return ""
    return f"{dt.timedelta(seconds=round((recipe.steps - step) * recipe.batch / rate))} left"


def _say_how_to_go_on(console: RichConsole, assignment: Assignment, *, interrupted: bool) -> None:
    saved = checkpoint.newest(assignment.folder / CHECKPOINTS)
    if saved is None:
        return
    step, resuming = checkpoint.step_of(saved), shlex.join(_resuming(assignment))
    if step < assignment.recipe.steps:
        console.print(
            f"Stopped at step {step} of {assignment.recipe.steps}; go on with {resuming}",
            soft_wrap=True,
        )
    elif interrupted and assignment.rollouts is not None:
        console.print(f"Its rollouts were cut short; play them with {resuming}", soft_wrap=True)
    console.print(f"The policy: python -m eval.libero --policy {saved}", soft_wrap=True)


def _resuming(assignment: Assignment) -> list[str]:
    return ["python", "-m", "eval.train", "--resume", "--output-dir", str(assignment.folder)]
