"""Trains a policy on demonstrations, with rollouts at every checkpoint."""

import contextlib
import dataclasses
import datetime as dt
import math
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.cli import format_option, option_arguments
from configs.console import TextConsole
from configs.errors import check
from configs.exits import INTERRUPTED, DeferredSignals
from configs.language_task import LanguageTaskConfig
from configs.load import load, names
from configs.paths import absolute, read_json_object, shown
from configs.schema import ExecutionConfig, PolicyConfig, RunConfig, SuiteConfig
from configs.training import TrainConfig
from contracts.errors import UsageError
from eval.monitors.console import EvaluationConsole
from eval.policies.resolved import policy_of, start_of
from eval.records.run_folders import new_run
from eval.rollout.evaluation import run_evaluation
from eval.rollout.executors.choice import choose_executor
from eval.rollout.plan import make_plan
from eval.rollout.prepare import check_feedback, check_playable, prepare
from oxygen.model.compile_cache import use_compile_cache
from oxygen.model.config import preset
from oxygen.presets.language_tasks import language_task
from oxygen.presets.policies import evaluation_command, learnt_tasks
from oxygen.robots import tokenizer as tokenizers
from oxygen.robots.transforms import embodiment
from oxygen.training import checkpoint, layout
from oxygen.training.config import TrainingConfig
from oxygen.training.demonstrations import Demonstrations
from oxygen.training.run import train
from oxygen.training.run_folder import CHECKPOINTS, has_rollouts
from oxygen.training.samples import Samples
from sim_envs.suite import load_object, open_suite, suite_names

_EMBODIMENTS = {
    **dict.fromkeys(("tiny", "tiny_memory"), "libero_compact"),
    "tiny_droid": "droid_compact",
    **dict.fromkeys(("pi05_droid", "small_droid"), "droid"),
}
"""Default robots of models; `libero` for all others."""


def run_training(options: TrainConfig, folder: Path, *, minutes: float | None = None) -> int:
    """Train, and print progress and how to resume. After the time limit, neither steps nor rollouts begin.

    Returns the exit code: 0, also after the time limit; 130 after Ctrl-C. Demonstrations, model, robot,
    rollouts and options that do not fit are a UsageError, and nothing is trained.
    """
    ends_at = math.inf if minutes is None else time.monotonic() + 60 * minutes
    if not options.trains_actions and options.start_from is not None:
        options = _of_policy(options)
    rollouts = rollouts_of(options)
    use_compile_cache()
    training, tokenizer = training_of(options), _tokenizer_of(options)
    if rollouts is not None:  # checked now rather than at the first checkpoint
        _check_rollouts(rollouts, training, options)
    samples = _read_samples(options, training)
    console = TextConsole()
    console.print(
        f"[bold]{options.model}[/] on {len(samples)} frames of {', '.join(options.data)} → {shown(folder)}",
        soft_wrap=True,
    )
    course = _Course(folder, rollouts, num_envs=options.eval_num_envs, ends_at=ends_at)
    with course.unsaved:
        try:
            train(
                folder,
                training,
                samples,
                tokenizer,
                on_checkpoint=course.roll_out,
                on_log=lambda step, numbers: console.print(_line(step, options, numbers)),
                should_stop=course.should_stop,
            )
            interrupted = course.signals.received
        except KeyboardInterrupt:  # in a rollout, after its checkpoint was saved
            interrupted = True
    _print_how_to_resume(console, folder, options, training.embodiment)
    return INTERRUPTED if interrupted else 0


class _Course:
    """When a training stops, and the rollouts of its checkpoints."""

    def __init__(self, folder: Path, rollouts: RunConfig | None, *, num_envs: int, ends_at: float) -> None:
        self._folder, self._rollouts, self._num_envs = folder, rollouts, num_envs
        self._ends_at = ends_at  # by `time.monotonic`, seconds
        self.signals = DeferredSignals()
        self.unsaved = contextlib.ExitStack()  # has `signals` while there are steps to be saved

    def should_stop(self) -> bool:
        """Whether the training stops after a step, which it then saves."""
        if not self.signals.entered:
            self.unsaved.enter_context(self.signals)
        return self._is_over()

    def roll_out(self, _: int, saved: Path) -> Mapping[str, float]:
        """Success rates of a checkpoint's rollouts, in percent, by suite."""
        self.unsaved.close()
        if self._rollouts is None or self._is_over():
            return {}
        config = self._rollouts.model_copy(update={"policy": shown(saved)})
        run = new_run(self._folder / "rollouts", config)
        executor = choose_executor(ExecutionConfig(num_envs=self._num_envs))
        (results,) = run_evaluation(prepare([run], executor=executor), monitor=EvaluationConsole)
        rates = {suite: row.pc_success for suite, row in results.suites.items()}
        return {f"{suite}_pc_success": rate for suite, rate in rates.items() if rate is not None}

    def _is_over(self) -> bool:
        return self.signals.received or time.monotonic() > self._ends_at


def _read_samples(options: TrainConfig, training: TrainingConfig) -> Samples:
    """The frames of all demonstrations, which must be of the robot that is trained."""
    demonstrations = [Demonstrations(data) for data in options.data]
    for dataset in demonstrations if options.trains_actions else ():
        dataset.check_robot(training.embodiment)
    return Samples.joined([dataset.samples(training.model) for dataset in demonstrations])


def _tokenizer_of(options: TrainConfig) -> tokenizers.SentencePieceTokenizer:
    vocabulary = options.tokenizer
    if vocabulary is None and options.model in names(PolicyConfig):
        vocabulary = load(PolicyConfig, options.model).tokenizer
    return tokenizers.load(vocabulary) if vocabulary else tokenizers.tiny()


def _check_rollouts(rollouts: RunConfig, training: TrainingConfig, options: TrainConfig) -> None:
    """Refuse rollouts that the trained policy could not play."""
    choose_executor(ExecutionConfig(num_envs=options.eval_num_envs))
    interface = dataclasses.replace(
        embodiment(training.embodiment).interface, name=options.model, horizon=training.model.horizon
    )
    fields = {task.name: task.feedback for task in training.tasks if task.feedback}
    check_feedback([rollouts], fields, policy=options.model)
    check_playable(make_plan(rollouts), interface=interface)


def training_of(options: TrainConfig) -> TrainingConfig:
    """The training of these options, with presets resolved."""
    if options.texts_only and options.start_from is None:
        raise UsageError("--texts-only needs a trained policy: give --start-from, such as tiny")
    if options.texts_only and not options.language_tasks:
        raise UsageError("--texts-only, but --language-tasks none: name some, or leave it out")
    start, own_stats = (None, None) if options.start_from is None else start_of(options.start_from)
    base = None if options.adapter is None else _adapted_policy(options)
    chosen, acting = options.language_tasks, base
    if options.texts_only:
        acting = policy_of(str(options.start_from))
    # Where actions are not trained, their prompts stay as they are.
    tasks = learnt_tasks(acting, chosen) if acting else [load(LanguageTaskConfig, name) for name in chosen]
    stats = options.norm_stats or ("measured" if options.trains_actions else "from-start")
    if stats == "from-start" and own_stats is None:
        raise UsageError("--norm-stats from-start needs a policy to start from: give --start-from")
    return TrainingConfig(
        model=preset(options.model),
        embodiment=options.embodiment or _EMBODIMENTS.get(options.model, "libero"),
        tasks=tuple(language_task(task) for task in tasks),
        options=options,
        start_from=start,
        norm_stats={"measured": None, "from-start": own_stats}.get(stats, stats),
        wordings=_training_wordings(options.data) if options.wordings == "training" else {},
        base=base.model_dump(mode="json", exclude_none=True, exclude_defaults=True) if base else None,
    )


def _adapted_policy(options: TrainConfig) -> PolicyConfig:
    """The policy whose texts an adapter is trained for; it has a model, a card and no adapter yet."""
    policy = policy_of(str(options.start_from))
    if policy is None or policy.kind != "oxygen" or policy.adapter is not None:
        raise UsageError(
            f"--policy {options.start_from}: an adapter needs a policy with a model, a card and no adapter "
            "yet, such as tiny or pi05_libero"
        )
    return policy


def _of_policy(options: TrainConfig) -> TrainConfig:
    """The options with the model, robot and vocabulary of the policy whose texts are trained."""
    start = str(options.start_from)
    policy = policy_of(start) if options.adapter is None else _adapted_policy(options)
    if policy is None or policy.kind != "oxygen":  # names no model; without weights, it is refused later
        return options
    own = {
        "model": policy.model or policy.name,
        "embodiment": policy.embodiment,
        "tokenizer": policy.tokenizer,
    }
    default = TrainConfig()
    for option, value in own.items():
        given = getattr(options, option)
        if given not in (getattr(default, option), value):
            raise UsageError(f"{format_option(option, given)}, but {start} has {value}; leave it out")
    return options.model_copy(update=own)


def rollouts_of(options: TrainConfig) -> RunConfig | None:
    """The evaluation at every checkpoint; None if no suite is named."""
    if not options.eval_suite:
        return None
    given = {name.removeprefix("eval_"): value for name, value in options if name.startswith("eval_")}
    given["suites"] = given.pop("suite")
    del given["num_envs"]
    values = {**given, "language_tasks": options.language_tasks, "video": "none"}
    return check(RunConfig, values, source="the command line")


def _manifests(data: Sequence[str]) -> dict[Path, dict[str, Any]]:
    """The manifests of the demonstrations that `oxygen-eval collect` wrote, by file; others have none."""
    files = [absolute(folder) / layout.MANIFEST for folder in data]
    return {file: read_json_object(file) for file in files if file.is_file()}


def _training_wordings(data: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The training wordings of each instruction, of the suites that the demonstrations name."""
    found: dict[str, tuple[str, ...]] = {}
    for file, manifest in _manifests(data).items():
        suites = manifest.get("suites", {})
        for name, protocol in check(dict[str, Any], suites, source=f"{file}: suites").items():
            if name in suite_names():
                suite = open_suite(name)
            else:  # one from a YAML file
                recorded = check(SuiteConfig, protocol, source=f"suite {name} of the demonstrations")
                suite = load_object(recorded.world, what=f"world of suite {name}")(recorded)
            found |= {text: tuple(wordings) for text, wordings in suite.training_wordings().items()}
    return found


def _line(step: int, options: TrainConfig, numbers: Mapping[str, float]) -> str:
    """Progress, metrics and, except for rollouts and the last step, the remaining time without rollouts."""
    values = [f"{name.replace('_', ' ')} {number:.4g}" for name, number in sorted(numbers.items())]
    rate, left = numbers.get("samples_per_s"), ""
    if rate is not None and step < options.steps:
        left = f"{dt.timedelta(seconds=round((options.steps - step) * options.batch / rate))} left"
    return f"{step:>7}/{options.steps}  {left:>12}  {', '.join(values)}"


def _print_how_to_resume(console: TextConsole, folder: Path, options: TrainConfig, robot: str) -> None:
    saved = checkpoint.newest(folder / CHECKPOINTS)
    if saved is None:
        return
    step = checkpoint.step_of(saved)
    resuming = shlex.join(["oxygen-eval", "train", "--resume", "--output-dir", shown(folder)])
    if step < options.steps:
        console.print(f"Stopped at step {step} of {options.steps}; resume with {resuming}", soft_wrap=True)
    elif options.eval_suite and not has_rollouts(folder, step):
        console.print(f"Its rollouts are missing; play them with {resuming}", soft_wrap=True)
    suites, fitting = _as_demonstrated(options.data)
    command = evaluation_command(shown(saved), robot, suites)
    console.print(f"The policy: {shlex.join([*shlex.split(command), *fitting])}", soft_wrap=True)


def _as_demonstrated(data: Sequence[str]) -> tuple[list[str], list[str]]:
    """The suites of the demonstrations, and options for their tasks and assets, with a trial of each task."""
    manifests = list(_manifests(data).values())
    suites = list(dict.fromkeys(name for each in manifests for name in each.get("suites", {})))
    configs = [each.get("config", {}) for each in manifests]
    chosen: list[str] = ["--num-trials-per-task", "1"] if suites else []
    for option in ("task_ids", "assets"):
        values = [config.get(option) for config in configs]
        if values and values[0] and all(value == values[0] for value in values):
            chosen += option_arguments(option, values[0])
    return suites if all(name in suite_names() for name in suites) else [], chosen
