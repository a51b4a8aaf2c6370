"""Prepares a workload: compiles its programs once, and serves them in each of its configurations."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from eval.bench.measurement import ConfigurationStageTimer
from eval.bench.memory import bytes_by_program
from eval.bench.model_under_test import ByteTokenizer, ModelUnderTest
from eval.bench.policy_runner import DISTINCT_OBSERVATIONS, PolicyRunner, random_observations
from eval.bench.rows import DecodeBatchSize
from eval.bench.schedule import QueryPrograms, max_new_requests, programs_by_query
from eval.bench.workloads import OFF, BenchConfiguration, Workload
from oxygen.model.adapter import Mask
from oxygen.model.config import Pi05Config
from oxygen.model.pi05 import Weights
from oxygen.policy.vector_policy import PolicyParts, VectorPolicy
from oxygen.robots.prompts import InstructionPrompt
from oxygen.robots.transforms import EMBODIMENTS, Transform, untrained
from oxygen.serving.budget import Deadline, FixedTokens
from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.language import LanguageTask
from oxygen.serving.runner import ProgramSizes, Runner
from oxygen.serving.scheduler import Mode
from oxygen.weights.adapter import AdapterSource
from oxygen.weights.weights_source import load_weights

_TEXT_PROMPT = "Say: "
SUFFIX = tuple(ByteTokenizer().encode(_TEXT_PROMPT))
"""Tokens of the prompt of every text, after the shared prefix."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparedWorkload:
    """A compiled workload, ready to be measured.

    Attributes:
        runners: One per configuration.
        stages: Times its programs alone.
        batches: The decode batch size of a query, by configuration.
        program_bytes: Memory of each program, by configuration; None if the backend does not report it.
    """

    runners: Sequence[PolicyRunner]
    stages: ConfigurationStageTimer
    batches: Mapping[BenchConfiguration, DecodeBatchSize]
    program_bytes: Mapping[BenchConfiguration, Mapping[str, int] | None]


class Bench:
    """Prepares workloads of one policy. Reloads weights only for another number of denoising steps."""

    def __init__(self, model: ModelUnderTest) -> None:
        self._model = model
        self._loaded: tuple[int, Weights] | None = None
        self._compiled: dict[ProgramSizes, Runner] = {}

    @contextlib.contextmanager
    def prepare(
        self, workload: Workload, configurations: Sequence[BenchConfiguration], queries: int
    ) -> Iterator[PreparedWorkload]:
        """Compile a workload's programs, and serve them in each configuration.

        Each configuration has a KV pool of its own size, and its own fork and decode programs;
        all share prefill and denoise.

        Args:
            workload: The work.
            configurations: Modes and token budgets.
            queries: Queries that each will answer, warm-up included; the pools have room for their texts.
        """
        sizes = {
            configuration: sizes_of(workload, configuration, queries) for configuration in configurations
        }
        by_size = self.runners(workload.denoise_steps, list(sizes.values()), cameras=workload.cameras)
        runners = {}
        for configuration, size in sizes.items():
            base, source = by_size[size], self._source(configuration)
            if source is None:
                runners[configuration] = base
            else:
                adapter = source.load(base.config, self.weights(workload.denoise_steps))
                runners[configuration] = base.resized(size, adapter)
        with contextlib.ExitStack() as stack:
            policy_runners = []
            for configuration, runner in runners.items():
                policy = VectorPolicy(
                    self._parts(workload, configuration, runner),
                    _engine(workload, configuration, runner.sizes),
                )
                stack.callback(policy.close)
                policy_runners.append(PolicyRunner(configuration, policy, self._observations(policy)))
            inputs = next(iter(runners.values())).blank(self._model.bucket)
            yield PreparedWorkload(
                runners=policy_runners,
                stages=ConfigurationStageTimer(runners, inputs, SUFFIX),
                batches={configuration: _batch(configuration, size) for configuration, size in sizes.items()},
                program_bytes={
                    configuration: self._program_bytes(configuration, runner)
                    for configuration, runner in runners.items()
                },
            )

    def runners(
        self, denoise_steps: int, every: Sequence[ProgramSizes], *, cameras: int | None = None
    ) -> Mapping[ProgramSizes, Runner]:
        """The policy's programs for each of the sizes, which have the same number of robots.

        Reuses those of the previous call, since workloads often share them.
        """
        config = dataclasses.replace(self._model.with_cameras(cameras).config, denoise_steps=denoise_steps)
        robots = every[0].robots
        compiled = {
            sizes: runner
            for sizes, runner in self._compiled.items()
            if (runner.config, sizes.robots) == (config, robots)
        }
        self._compiled = {}  # frees the other programs before new ones are compiled
        first = next(iter(compiled.values()), None)
        for sizes in every:
            if sizes not in compiled:
                compiled[sizes] = (
                    first.resized(sizes, None)
                    if first
                    else Runner(config, self.weights(denoise_steps), sizes)
                )
            first = first or compiled[sizes]
        self._compiled = {sizes: compiled[sizes] for sizes in every}
        return self._compiled

    def weights(self, denoise_steps: int) -> Weights:
        """The weights, prepared for a number of denoising steps."""
        if self._loaded is None or self._loaded[0] != denoise_steps:
            self._loaded = None  # frees the old weights before the new ones are loaded
            config = dataclasses.replace(self._model.config, denoise_steps=denoise_steps)
            self._loaded = denoise_steps, load_weights(self._model.weights, config)
        return self._loaded[1]

    def _source(self, configuration: BenchConfiguration) -> AdapterSource | None:
        if configuration.adapter == OFF:
            return None
        return dataclasses.replace(
            self._model.adapter or AdapterSource(), mask=cast("Mask", configuration.adapter)
        )

    def _parts(self, workload: Workload, configuration: BenchConfiguration, runner: Runner) -> PolicyParts:
        task = LanguageTask(
            name="text", prompt=_TEXT_PROMPT, arrivals=workload.arrivals, max_tokens=workload.text_tokens
        )
        return PolicyParts(
            runner=runner,
            tokenizer=ByteTokenizer(),
            tasks=(task,),
            transform=_transform(self._model.config),
            weights=self._model.weights,
            adapter=self._source(configuration),
        )

    def _program_bytes(self, configuration: BenchConfiguration, runner: Runner) -> dict[str, int] | None:
        batch = None if configuration.mode is Mode.ACTIONS else runner.sizes.rows[-1]
        return bytes_by_program(
            runner, bucket=self._model.bucket, new_requests=runner.sizes.forks[-1], batch=batch
        )

    def _observations(self, policy: VectorPolicy) -> Iterator[Sequence[Mapping[str, Any]]]:
        state_size = policy.transform.embodiment.interface.observation.state_size
        prompts = self._model.prompts(DISTINCT_OBSERVATIONS)
        return random_observations(policy.runner.config, policy.engine.robots, state_size, prompts)


def sizes_of(workload: Workload, configuration: BenchConfiguration, queries: int) -> ProgramSizes:
    """Program sizes of one configuration: no more slots, rows and forks than it can fill."""
    programs = programs_by_query(workload, configuration, queries)
    widest = max(workload.robots, *(query.texts for query in programs))
    new_requests = max_new_requests(workload, queries)
    # Texts of one query wait in slots, even where a batch holds fewer of them; mode `actions` has none.
    slots = workload.slots or max(widest, 0 if configuration.mode is Mode.ACTIONS else new_requests)
    forks = max(1, min(new_requests, slots))
    rows = min(widest, slots, workload.rows or widest)
    match configuration.mode:
        case Mode.UNIFIED:
            batches = {rows}
        case Mode.SHARED:
            batches = {min(workload.robots, rows), rows}
        case _:
            batches, forks = {workload.robots}, min(forks, workload.robots)
    return ProgramSizes(
        robots=workload.robots,
        slots=slots,
        rows=tuple(sorted(batches)),
        forks=(forks,),
        suffix=len(SUFFIX),
        limit=workload.text_tokens,
        guided=True,  # for its stage time; no mode runs it
    )


def _engine(workload: Workload, configuration: BenchConfiguration, sizes: ProgramSizes) -> EngineConfig:
    deadline = configuration.deadline_ms
    return EngineConfig(
        mode=configuration.mode,
        budget=FixedTokens(configuration.min_decode_steps) if deadline is None else Deadline(deadline),
        slots=sizes.slots,
        rows=sizes.rows[-1],
        robots=workload.robots,
    )


def _batch(configuration: BenchConfiguration, sizes: ProgramSizes) -> DecodeBatchSize:
    """The engine's choice: `shared` takes the smallest batch that holds the texts, the others the largest."""
    widest = sizes.rows[-1]

    def of_query(query: QueryPrograms) -> int | None:
        if not query.decode_steps:
            return None
        wanted = min(query.texts, widest) if configuration.mode is Mode.SHARED else widest
        return next(size for size in sizes.rows if size >= wanted)

    return of_query


def _transform(config: Pi05Config) -> Transform:
    """The robot that has the policy's cameras, without statistics; the prompt is the instruction alone."""
    robot = next(
        robot
        for robot in EMBODIMENTS.values()
        if set(config.cameras) <= set(robot.interface.observation.camera_names)
    )
    return untrained(dataclasses.replace(robot, prompt=InstructionPrompt()))
