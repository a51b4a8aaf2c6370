"""The policy under test: its sizes and weights, its programs, and queries of it in each configuration."""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from contracts.errors import UsageError
from contracts.mode import BUDGETED, Mode
from contracts.text import DecodeWork, Reply
from eval.bench.workloads import OFF, BenchConfiguration, Workload, parse_arrivals, running_texts
from oxygen.model import config as model_configs
from oxygen.model.adapter import Mask
from oxygen.model.config import Pi05Config
from oxygen.model.pi05 import Weights
from oxygen.policy.vector_policy import Observations, VectorPolicy
from oxygen.robots.tokenizer import InstructionPrompt
from oxygen.robots.transforms import EMBODIMENTS, untrained
from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.language import LanguageTask
from oxygen.serving.runner import ProgramSizes, Runner
from oxygen.serving.scheduler import Deadline, FixedTokens
from oxygen.weights.adapter import AdapterSource
from oxygen.weights.loading import Loadable, load_weights
from oxygen.weights.loading import load as load_checkpoint

SPECIAL_TOKENS = 2
"""Tokens of a prompt without its instruction: the start token and the line break."""


class _ByteTokenizer:
    """One token per byte, and no end token. Texts are not used, so `decode` returns an empty string."""

    vocab_size = 256
    bos = 1
    eos = -1

    def byte(self, value: int) -> int:
        return value

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        del tokens
        return ""


_SEED = 0
_TEXT_PROMPT = "Say: "
SUFFIX = tuple(_ByteTokenizer().encode(_TEXT_PROMPT))
"""Tokens of the prompt of every text, after the shared prefix."""
_DISTINCT_OBSERVATIONS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelUnderTest:
    """The measured policy."""

    name: str  # its preset
    config: Pi05Config  # its sizes, with the prompt bucket that is used, so that no other is compiled
    weights: Loadable  # the seed of random weights, or a function that loads them
    weights_from: str  # `random`, or their source
    prompt_tokens: int  # tokens in the prompt, before padding
    adapter: AdapterSource | None = None  # its adapter; None for a random one

    @property
    def bucket(self) -> int:
        """Length of the padded prompt, in tokens."""
        return self.config.bucket(self.prompt_tokens)


def find_model(
    name: str, *, random_weights: bool, dtype: str | None = None, prompt_tokens: int = 24
) -> ModelUnderTest:
    """The policy `name`, with random weights or its own; refuses a longer prompt than it takes."""
    if prompt_tokens <= SPECIAL_TOKENS:
        raise UsageError(f"--prompt-tokens {prompt_tokens}: at least {SPECIAL_TOKENS + 1}")
    config, weights, weights_from, adapter = _find_weights(name, dtype, is_random=random_weights)
    used = (config.bucket(prompt_tokens),)
    return ModelUnderTest(
        name=name,
        config=dataclasses.replace(config, prompt_buckets=used, dtype=dtype or config.dtype),
        weights=weights,
        weights_from=weights_from,
        prompt_tokens=prompt_tokens,
        adapter=adapter,
    )


def _find_weights(
    name: str, dtype: str | None, *, is_random: bool
) -> tuple[Pi05Config, Loadable, str, AdapterSource | None]:
    """Sizes, weights and adapter. Those of a YAML preset need a package that random weights do not."""
    if is_random and name in model_configs.PRESETS:
        return model_configs.preset(name), _SEED, "random", None
    try:
        from eval.policies.resolved import read_policy
        from oxygen.presets.loading import adapter_source
    except ModuleNotFoundError as error:
        raise UsageError(
            f"reading preset {name!r} needs {error.name}; install it, or measure "
            f"{', '.join(model_configs.PRESETS)} with --random-weights"
        ) from None
    preset = read_policy(name)
    if preset.model is None:
        raise UsageError(f"policy {name!r} has no model to measure; name one that has")
    config = model_configs.preset(preset.model)
    config = dataclasses.replace(config, dtype=dtype or config.dtype)
    if is_random or preset.weights is None:
        return config, _SEED if is_random else preset.weights_seed, "random", None
    loader = functools.partial(load_checkpoint, preset.weights, config)
    return config, loader, preset.weights, adapter_source(preset)


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueryTimes:
    """Latencies, in milliseconds, and results of one query of all robots."""

    actions_sha256: str  # digest of the actions of all robots
    action_ms: float  # action latency
    frame_ms: float  # frame latency
    tokens: int  # tokens decoded, of all robots
    decode_steps: int  # decode steps of each text in modes `unified` and `interleaved`; 0 in the other modes
    work: Sequence[DecodeWork]  # its decode jobs, beside one prefill and one denoising
    submitted: int  # texts requested in this query
    # Latency of the first token of each text finished in this query, since its request.
    first_token_ms: Sequence[float]
    request_ms: Sequence[float]  # latency of its last token, likewise


class PolicyRunner:
    """Queries a policy in one configuration with random observations."""

    def __init__(
        self, configuration: BenchConfiguration, policy: VectorPolicy, observations: Iterator[Observations]
    ) -> None:
        self.configuration = configuration
        self.programs = policy.runner
        self.compiles_after_warm_up = 0  # during its own runs, in all its processes
        self._policy = policy
        self._observations = observations
        self._run_intervals: list[tuple[float, float]] = []
        for robot in range(policy.engine.robots):
            policy.reset(robot, robot)

    def run(self, queries: int) -> list[QueryTimes]:
        """Answer `queries` queries, each as soon as the previous one is complete."""
        compiled_before = self._policy.compiles_after_warm_up
        answers = []
        first = began = time.perf_counter()
        for observations in itertools.islice(self._observations, queries):
            actions = list(self._policy.act(observations).values())
            replies = list(self._policy.complete().values())
            now = time.perf_counter()
            answers.append((1e3 * (now - began), actions, replies, self._policy.work))
            began = now
        self._run_intervals.append((first, began))
        self.compiles_after_warm_up += self._policy.compiles_after_warm_up - compiled_before
        return [self._query(*answer) for answer in answers]

    def _query(
        self,
        frame_ms: float,
        actions: Sequence[np.ndarray],
        replies: Sequence[Reply],
        work: Sequence[DecodeWork],
    ) -> QueryTimes:
        """One query of all robots, which share its times; an action chunk is [horizon, action]."""
        texts = [text.times for reply in replies for text in reply.finished if text.times is not None]
        return QueryTimes(
            actions_sha256=hashlib.sha256(b"".join(chunk.tobytes() for chunk in actions)).hexdigest(),
            action_ms=replies[0].timings_ms["action"],
            frame_ms=frame_ms,
            tokens=sum(reply.tokens for reply in replies),
            decode_steps=max(reply.tokens_per_frame for reply in replies),
            work=work,
            submitted=sum(len(reply.requested) for reply in replies),
            first_token_ms=[self._running_ms(text.requested_s, text.first_token_s) for text in texts],
            request_ms=[self._running_ms(text.requested_s, text.finished_s) for text in texts],
        )

    def _running_ms(self, since: float, until: float) -> float:
        """Milliseconds between two times in which this configuration ran, and no other."""
        return 1e3 * sum(max(0.0, min(until, end) - max(since, start)) for start, end in self._run_intervals)


class Bench:
    """Prepares workloads of one policy. Reloads weights only for another number of denoising steps."""

    def __init__(self, model: ModelUnderTest) -> None:
        self.model = model
        self._loaded: tuple[int, Weights] | None = None
        self._compiled: dict[ProgramSizes, Runner] = {}

    @contextlib.contextmanager
    def prepare(
        self, workload: Workload, configurations: Sequence[BenchConfiguration]
    ) -> Iterator[list[PolicyRunner]]:
        """Compile a workload's programs, and serve them in each configuration.

        Each configuration has a KV pool with room for the texts of all its queries, and fork and decode
        programs of its own; all share prefill and denoise.
        """
        sizes = [sizes_of(workload, configuration) for configuration in configurations]
        by_size = self.runners(workload.denoise_steps, sizes)
        with contextlib.ExitStack() as stack:
            runners = []
            for configuration, size in zip(configurations, sizes, strict=True):
                policy = self._policy(workload, configuration, by_size[size])
                stack.callback(policy.close)
                runners.append(PolicyRunner(configuration, policy, self._observations(policy)))
            yield runners

    def runners(self, denoise_steps: int, every: Sequence[ProgramSizes]) -> Mapping[ProgramSizes, Runner]:
        """The policy's programs for each of the sizes, which have the same number of robots.

        Reuses those of the previous call, since workloads often share them.
        """
        config = dataclasses.replace(self.model.config, denoise_steps=denoise_steps)
        kept = {
            sizes: runner
            for sizes, runner in self._compiled.items()
            if (runner.config, sizes.robots) == (config, every[0].robots)
        }
        self._compiled = {}  # frees the other programs before new ones are compiled
        for sizes in dict.fromkeys(every):
            similar = next(iter([*self._compiled.values(), *kept.values()]), None)
            if sizes in kept:
                self._compiled[sizes] = kept[sizes]
            elif similar is not None:
                self._compiled[sizes] = similar.resized(sizes, None)
            else:
                self._compiled[sizes] = Runner(config, self.weights(denoise_steps), sizes)
        return self._compiled

    def weights(self, denoise_steps: int) -> Weights:
        """The weights, prepared for a number of denoising steps."""
        if self._loaded is None or self._loaded[0] != denoise_steps:
            self._loaded = None  # frees the old weights before the new ones are loaded
            config = dataclasses.replace(self.model.config, denoise_steps=denoise_steps)
            self._loaded = denoise_steps, load_weights(self.model.weights, config)
        return self._loaded[1]

    def _policy(self, workload: Workload, configuration: BenchConfiguration, runner: Runner) -> VectorPolicy:
        adapter, deadline, sizes = None, configuration.deadline_ms, runner.sizes
        if configuration.adapter != OFF:
            source = self.model.adapter or AdapterSource()
            adapter = dataclasses.replace(source, mask=cast("Mask", configuration.adapter))
            runner = runner.resized(sizes, adapter.load(runner.config, self.weights(workload.denoise_steps)))
        cameras = set(self.model.config.cameras)
        robot = max(  # the first one that has all of them
            EMBODIMENTS.values(),
            key=lambda robot: len(cameras & set(robot.interface.observation.camera_names)),
        )
        task = LanguageTask(
            name="text",
            prompt=_TEXT_PROMPT,
            arrivals=parse_arrivals(workload.arrivals),
            max_tokens=workload.text_tokens,
        )
        engine = EngineConfig(
            mode=configuration.mode,
            budget=FixedTokens(configuration.min_decode_steps) if deadline is None else Deadline(deadline),
            slots=sizes.slots // sizes.robots,
            rows=sizes.rows[-1] // sizes.robots,
            robots=workload.robots,
        )
        return VectorPolicy(
            runner,
            engine,
            tokenizer=_ByteTokenizer(),
            tasks=(task,),
            transform=untrained(dataclasses.replace(robot, prompt=InstructionPrompt())),
            weights=self.model.weights,
            adapter=adapter,
        )

    def _observations(self, policy: VectorPolicy) -> Iterator[Observations]:
        """Endless random observations with one prompt; images have the model's size."""
        random = np.random.default_rng(0)
        config, interface = policy.runner.config, policy.transform.embodiment.interface
        shape = (config.image_size, config.image_size, 3)
        prompt = "x" * (self.model.prompt_tokens - SPECIAL_TOKENS)

        def observe() -> Mapping[str, Any]:
            images = {camera: random.integers(0, 256, shape, dtype=np.uint8) for camera in config.cameras}
            state = random.uniform(-1, 1, interface.observation.state_size)
            return {"images": images, "state": state, "prompt": prompt}

        robots = range(policy.engine.robots)
        return itertools.cycle(
            [{robot: observe() for robot in robots} for _ in range(_DISTINCT_OBSERVATIONS)]
        )


def sizes_of(workload: Workload, configuration: BenchConfiguration) -> ProgramSizes:
    """Program sizes of one configuration: no more slots and forks than it can fill, and none too few."""
    mode, robots = configuration.mode, workload.robots
    new = most = 1  # texts requested in one query, and unfinished ones
    if mode is not Mode.ACTIONS:
        new = most = max(1, running_texts(workload, workload.text_tokens, workload.total_queries))
    if mode in BUDGETED:
        most = max(1, running_texts(workload, configuration.min_decode_steps, workload.total_queries))
    batches, forks = {1}, 1
    if mode in (Mode.UNIFIED, Mode.SHARED):
        batches, forks = ({most} if mode is Mode.UNIFIED else {1, most}), new
    return ProgramSizes(
        robots=robots,
        slots=robots * most,
        rows=tuple(robots * batch for batch in sorted(batches)),
        forks=(robots * forks,),
        suffix=len(SUFFIX),
        limit=workload.text_tokens,
        guided=True,  # for its stage time; no mode runs it
    )
