"""Makes a workload ready: compiles its programs once, then serves them in every mode that contends."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eval.bench import memory
from eval.bench.lanes import PolicyLane, random_observations
from eval.bench.rows import Batch
from eval.bench.schedule import Work, most_births, work
from eval.bench.stages import EveryStage
from eval.bench.subject import Subject
from eval.bench.unending import Unending, instruction
from eval.bench.workloads import Contender, Workload
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
from oxygen.weights.weights_source import load_weights

_ASKS = "Say: "
SUFFIX = tuple(Unending().encode(_ASKS))
"""The tokens that ask for every text."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opened:
    """A workload, compiled and ready to be measured.

    Attributes:
        lanes: Its contenders.
        stages: Its programs by themselves.
        batches: Which decode program the work of a query takes, by contender.
        program_bytes: What each of a contender's programs takes of memory; None where nobody tells.
    """

    lanes: Sequence[PolicyLane]
    stages: EveryStage
    batches: Mapping[Contender, Batch]
    program_bytes: Mapping[Contender, Mapping[str, int] | None]


class Bench:
    """Opens workloads of one policy. Weights are loaded anew only for another number of denoising steps."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._loaded: tuple[int, Weights] | None = None
        self._compiled: dict[ProgramSizes, Runner] = {}

    @contextlib.contextmanager
    def open(self, workload: Workload, contenders: Sequence[Contender], queries: int) -> Iterator[Opened]:
        """Compile a workload's programs and serve them in every way.

        Every contender has a pool of its own size, and the programs that write it, as if it were alone; what
        reads observations and what draws actions are the same programs for all.

        Args:
            workload: What is asked of all contenders.
            contenders: The ways.
            queries: How many each will answer, warm-up included; there is room for the texts of these.
        """
        sizes = {contender: sizes_of(workload, contender, queries) for contender in contenders}
        by_size = self.runners(workload.denoise_steps, list(sizes.values()), cameras=workload.cameras)
        runners = {contender: by_size[size] for contender, size in sizes.items()}
        with contextlib.ExitStack() as stack:
            lanes = []
            for contender, runner in runners.items():
                policy = VectorPolicy(
                    self._parts(workload, runner), _engine(workload, contender, runner.sizes)
                )
                stack.callback(policy.close)
                lanes.append(PolicyLane(contender, policy, self._observations(policy)))
            inputs = next(iter(runners.values())).blank(self._subject.bucket)
            yield Opened(
                lanes=lanes,
                stages=EveryStage(runners, inputs, SUFFIX),
                batches={contender: _batch(contender, size) for contender, size in sizes.items()},
                program_bytes={
                    contender: self._program_bytes(contender, runner) for contender, runner in runners.items()
                },
            )

    def runners(
        self, denoise_steps: int, every: Sequence[ProgramSizes], *, cameras: int | None = None
    ) -> Mapping[ProgramSizes, Runner]:
        """The policy's programs for each of those sizes, all for as many robots.

        Those of the last call are kept where they serve again, since workloads often share them.
        """
        seen = self._subject.with_cameras(cameras).config
        config = dataclasses.replace(seen, denoise_steps=denoise_steps)
        wanted = dict.fromkeys(every)
        robots = next(iter(wanted)).robots
        there = {
            sizes: runner
            for sizes, runner in self._compiled.items()
            if (runner.config, sizes.robots) == (config, robots)
        }
        self._compiled = {}  # the other ones' programs go before new ones come
        like = next(iter(there.values()), None)
        for sizes in wanted:
            if sizes not in there:
                there[sizes] = (
                    like.resized(sizes) if like else Runner(config, self.weights(denoise_steps), sizes)
                )
            like = like or there[sizes]
        self._compiled = {sizes: there[sizes] for sizes in wanted}
        return self._compiled

    def weights(self, denoise_steps: int) -> Weights:
        """What the programs read."""
        if self._loaded is None or self._loaded[0] != denoise_steps:
            self._loaded = None  # the old ones go before the new ones come
            config = dataclasses.replace(self._subject.config, denoise_steps=denoise_steps)
            self._loaded = denoise_steps, load_weights(self._subject.weights, config)
        return self._loaded[1]

    def _parts(self, workload: Workload, runner: Runner) -> PolicyParts:
        task = LanguageTask(
            name="text", prompt=_ASKS, arrivals=workload.arrivals, max_tokens=workload.text_tokens
        )
        return PolicyParts(
            runner=runner,
            tokenizer=Unending(),
            tasks=(task,),
            transform=_transform(self._subject.config),
            weights=self._subject.weights,
        )

    def _program_bytes(self, contender: Contender, runner: Runner) -> dict[str, int] | None:
        batch = None if contender.mode is Mode.ACTIONS else runner.sizes.rows[-1]
        return memory.by_program(
            runner, bucket=self._subject.bucket, births=runner.sizes.forks[-1], batch=batch
        )

    def _observations(self, policy: VectorPolicy) -> Iterator[Sequence[Mapping[str, Any]]]:
        state_size = policy.transform.embodiment.interface.observation.state_size
        prompt = instruction(self._subject.prompt_tokens)
        return random_observations(policy.runner.config, policy.engine.robots, state_size, prompt)


def sizes_of(workload: Workload, contender: Contender, queries: int) -> ProgramSizes:
    """The shapes that a contender needs by itself: no more slots, rows and births than it can fill."""
    widest = max(workload.robots, *(query.texts for query in work(workload, contender, queries)))
    slots = workload.slots or max(widest, _born_at_once(workload, contender, queries))
    births = max(1, min(most_births(workload, queries), slots))
    rows = min(widest, slots, workload.rows or widest)
    match contender.mode:
        case Mode.UNIFIED:
            batches, at_once = {rows}, births
        case Mode.SHARED:
            batches, at_once = {min(workload.robots, rows), rows}, births
        case _:
            batches, at_once = {workload.robots}, min(births, workload.robots)
    return ProgramSizes(
        robots=workload.robots,
        slots=slots,
        rows=tuple(sorted(batches)),
        forks=(at_once,),
        suffix=len(SUFFIX),
        limit=workload.text_tokens,
        guided=True,  # timed by itself, though no mode needs it
    )


def _born_at_once(workload: Workload, contender: Contender, queries: int) -> int:
    """Slots for the texts of one query, though a batch may hold fewer of them; none where none is begun."""
    return 0 if contender.mode is Mode.ACTIONS else most_births(workload, queries)


def _engine(workload: Workload, contender: Contender, sizes: ProgramSizes) -> EngineConfig:
    deadline = contender.deadline_ms
    return EngineConfig(
        mode=contender.mode,
        budget=FixedTokens(contender.least_tokens) if deadline is None else Deadline(deadline),
        slots=sizes.slots,
        rows=sizes.rows[-1],
        robots=workload.robots,
    )


def _batch(contender: Contender, sizes: ProgramSizes) -> Batch:
    """The engine's own choice: `unified` always takes its widest, the others what the query needs."""
    widest = sizes.rows[-1]

    def of_query(query: Work) -> int | None:
        if not query.decode_steps:
            return None
        wanted = min(query.texts, widest) if contender.mode is Mode.SHARED else widest
        return next(size for size in sizes.rows if size >= wanted)

    return of_query


def _transform(config: Pi05Config) -> Transform:
    """The robot that has the policy's cameras; no statistics, and prompts of the length asked for."""
    robot = next(
        robot
        for robot in EMBODIMENTS.values()
        if set(config.cameras) <= set(robot.interface.observation.camera_names)
    )
    return untrained(dataclasses.replace(robot, prompt=InstructionPrompt()))
