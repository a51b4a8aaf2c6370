"""Makes a workload ready: compiles its programs once, then serves them in every mode that contends."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from eval.bench import memory
from eval.bench.lanes import PolicyLane, random_observations
from eval.bench.rows import Batch
from eval.bench.schedule import Work, most_births, work
from eval.bench.stages import Stages
from eval.bench.subject import Subject
from eval.bench.unending import Unending, instruction
from eval.bench.workloads import Contender, Workload
from oxygen.budget import Deadline, FixedTokens
from oxygen.config import Pi05Config
from oxygen.engine_config import EngineConfig
from oxygen.language import LanguageTask
from oxygen.pi05 import Weights
from oxygen.prompts import InstructionPrompt
from oxygen.runner import Runner, Sizes
from oxygen.sampling import GREEDY
from oxygen.scheduler import Mode
from oxygen.transforms import EMBODIMENTS, Transform, untrained
from oxygen.vector_policy import Parts, VectorPolicy
from oxygen.voice import Suffix
from oxygen.weights_source import load_weights

_ASKS = "Say: "
SUFFIX = Suffix(tokens=tuple(Unending().encode(_ASKS)), sampling=GREEDY)
"""What asks for every text."""


_OWN_PREFILL = (Mode.ISOLATED, Mode.PARALLEL)


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
    stages: Stages
    batches: Mapping[Contender, Batch]
    program_bytes: Mapping[Contender, Mapping[str, int] | None]


class Bench:
    """Opens workloads of one policy. Weights are loaded anew only for another number of denoising steps."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._loaded: tuple[Pi05Config, Weights] | None = None
        self._compiled: Runner | None = None

    @contextlib.contextmanager
    def open(self, workload: Workload, contenders: Sequence[Contender], queries: int) -> Iterator[Opened]:
        """Compile a workload's programs and serve them in every way.

        Args:
            workload: What is asked of all contenders.
            contenders: The ways.
            queries: How many each will answer, warm-up included; there is room for the texts of these.
        """
        rows = {contender: _rows(workload, contender, queries) for contender in contenders}
        slots = workload.slots or max(_widest(workload, contender, queries) for contender in contenders)
        parts = self._parts(workload, slots, rows.values(), most_births(workload, queries))
        sizes = parts.runner.sizes
        with contextlib.ExitStack() as stack:
            lanes = []
            for contender, most in rows.items():
                policy = VectorPolicy(parts, _engine(workload, contender, most, sizes.slots))
                stack.callback(policy.close)
                lanes.append(PolicyLane(contender, policy, self._observations(policy)))
            seen = parts.runner.blank(self._subject.bucket)
            yield Opened(
                lanes=lanes,
                stages=Stages(parts.runner, seen, SUFFIX.tokens),
                batches={contender: _batch(contender, most, sizes) for contender, most in rows.items()},
                program_bytes={
                    contender: self._program_bytes(parts.runner, contender, most)
                    for contender, most in rows.items()
                },
            )

    def runner(self, denoise_steps: int, sizes: Sizes) -> Runner:
        """The policy's programs for those sizes; the last ones are kept, since workloads often share them."""
        config = dataclasses.replace(self._subject.config, denoise_steps=denoise_steps)
        last = self._compiled
        if last is None or (last.config, last.sizes) != (config, sizes):
            self._compiled = None  # its programs go before others come
            self._compiled = last = Runner(config, self.weights(denoise_steps), sizes)
        return last

    def weights(self, denoise_steps: int) -> Weights:
        """What the programs read."""
        config = dataclasses.replace(self._subject.config, denoise_steps=denoise_steps)
        if self._loaded is None or self._loaded[0] != config:
            self._loaded = None  # the old ones go before the new ones come
            self._loaded = config, load_weights(self._subject.weights, config)
        return self._loaded[1]

    def _parts(self, workload: Workload, slots: int, rows: Iterable[int], births: int) -> Parts:
        births = max(1, births)
        sizes = Sizes(
            robots=workload.robots,
            slots=slots,
            rows=tuple(sorted({workload.robots, *rows})),
            births=tuple(sorted({min(births, workload.robots), births})),
            suffix=len(SUFFIX.tokens),
            limit=workload.text_tokens,
        )
        task = LanguageTask(
            name="text", prompt=_ASKS, arrivals=workload.arrivals, max_tokens=workload.text_tokens
        )
        return Parts(
            runner=self.runner(workload.denoise_steps, sizes),
            tokenizer=Unending(),
            tasks=(task,),
            suffixes=(SUFFIX,),
            transform=_transform(self._subject.config),
            weights=self._subject.weights,
        )

    def _program_bytes(self, runner: Runner, contender: Contender, rows: int) -> dict[str, int] | None:
        births = runner.sizes.births[0 if contender.mode in _OWN_PREFILL else -1]
        batch = None if contender.mode is Mode.ACTIONS else rows
        return memory.by_program(runner, bucket=self._subject.bucket, births=births, batch=batch)

    def _observations(self, policy: VectorPolicy) -> Iterator[Sequence[Mapping[str, Any]]]:
        state_size = policy.transform.embodiment.interface.observation.state_size
        prompt = instruction(self._subject.prompt_tokens)
        return random_observations(policy.runner.config, policy.engine.robots, state_size, prompt)


def _widest(workload: Workload, contender: Contender, queries: int) -> int:
    """The most texts that a contender could decode in one batch; a slot for every robot at least."""
    return max(workload.robots, *(query.texts for query in work(workload, contender, queries)))


def _rows(workload: Workload, contender: Contender, queries: int) -> int:
    """The widest batch that a contender decodes."""
    widest = _widest(workload, contender, queries)
    match contender.mode:
        case Mode.UNIFIED:
            return workload.rows or widest
        case Mode.SHARED:
            return min(widest, workload.rows or widest)
        case _:
            return widest


def _engine(workload: Workload, contender: Contender, rows: int, slots: int) -> EngineConfig:
    deadline = contender.deadline_ms
    return EngineConfig(
        mode=contender.mode,
        budget=FixedTokens(contender.least_tokens) if deadline is None else Deadline(deadline),
        slots=slots,
        rows=rows,
        robots=workload.robots,
    )


def _batch(contender: Contender, rows: int, sizes: Sizes) -> Batch:
    """The engine's own choice: `unified` always takes its widest, the others what the query needs."""

    def of_query(query: Work) -> int | None:
        if not query.decode_steps:
            return None
        wanted = min(query.texts, rows) if contender.mode is Mode.SHARED else sizes.robots
        wanted = rows if contender.mode is Mode.UNIFIED else wanted
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
