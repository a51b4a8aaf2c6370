"""The policy for any number of robots in one batch: observations in, actions and finished texts out."""

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from contracts.errors import UsageError
from contracts.mode import Mode
from contracts.observation import ActionPrefix
from contracts.text import DecodeWork, EpisodeEnd, Reply, Text, TextRequest, TextTimes
from oxygen.model.config import Pi05Config, batched
from oxygen.model.guidance import Guidance
from oxygen.robots.tokenizer import Tokenizer, check_fits
from oxygen.robots.transforms import LIBERO, Transform, untrained
from oxygen.serving.engine import Engine, EngineStep
from oxygen.serving.engine_config import EngineConfig, check_serves, sizes_for
from oxygen.serving.language import LanguageTask, tokenized
from oxygen.serving.requests import DecodeJob, Request, RequestState
from oxygen.serving.runner import ProgramSizes, Runner
from oxygen.serving.scheduler import Scheduler
from oxygen.serving.text_decoder import LocalTextDecoder, RemoteTextDecoder, TextDecoder
from oxygen.typing import Float32, Float64
from oxygen.weights.adapter import AdapterSource
from oxygen.weights.loading import Loadable, WeightsSource, load_weights, loadable

Observations = Mapping[int, Mapping[str, Any]]
"""Robot to observation, for the robots with a query."""


class VectorPolicy:
    """π0.5 for several robots, with texts beside their actions.

    Robots share one batch for actions, and one KV pool and decode batch for texts. They run different
    episodes at their own pace: which of them have a query in one step does not affect their replies. Actions
    are equal to the bit in every mode, and a robot's actions and texts do not depend on the other robots, its
    slot or the engine step. With several robots this needs a single prompt bucket, as `create_vector_policy`
    compiles: otherwise the longest prompt would change the padding, and the last bits, of all. Texts of two
    modes may differ where two tokens are almost equally likely; see `EngineConfig.rows`.

    A query is one `act`, which returns the actions as soon as they are ready, then one `complete`, which
    returns the reply. In modes `unified` and `parallel`, texts are decoded while the caller does something
    else in between; in the others, in `complete`.

    Attributes:
        runner: Its compiled programs, without episode state.
        engine: How it is served.
        tokenizer: The vocabulary the weights were trained with.
        tasks: The language tasks.
        transform: Conversion of the robots' observations and actions.
        work: Decode jobs of the last query, of all robots together.
    """

    def __init__(
        self,
        runner: Runner,
        engine: EngineConfig,
        *,
        tokenizer: Tokenizer,
        tasks: Sequence[LanguageTask],
        transform: Transform,
        weights: Loadable | None = None,
        adapter: AdapterSource | None = None,
    ) -> None:
        """Serve compiled programs, which `engine` must not exceed; see `create_vector_policy`.

        Args:
            weights: Loads the weights in a second process; None if not possible.
            adapter: Loads the runner's adapter, likewise; None without one.
        """
        check_serves(engine, runner.sizes)
        self.runner, self.engine = runner, engine
        self.tokenizer, self.tasks, self.transform = tokenizer, tuple(tasks), transform
        self._weights, self._adapter = weights, adapter
        in_tokens = [tokenized(task, tokenizer) for task in tasks]
        self._schedulers = [
            Scheduler(mode=engine.mode, tasks=in_tokens, slots=engine.slots, rows=engine.rows, robot=robot)
            for robot in range(engine.robots)
        ]
        self._engine = Engine(runner, self._schedulers, self._text_decoder(), engine.budget)
        self._single_sizes = runner.sizes
        if engine.robots > 1:
            self._single_sizes = sizes_for(dataclasses.replace(engine, robots=1), in_tokens)
        self._sessions = [self._new_session(robot, 0) for robot in range(engine.robots)]
        self._delivered_s = 0.0
        self.work: tuple[DecodeWork, ...] = ()

    @property
    def compiles_after_warm_up(self) -> int:
        """Compilations since the policy's programs were ready, in all its processes; should stay 0."""
        return self.runner.compiles_after_warm_up + self._engine.compiles_in_second_process

    def with_engine(
        self,
        engine: EngineConfig,
        *,
        tasks: Sequence[LanguageTask] | None = None,
        runner: Runner | None = None,
    ) -> "VectorPolicy":
        """The same policy with another engine configuration, sharing weights and compiled programs.

        Language tasks and programs are the policy's own if None. Refuses an engine that exceeds the compiled
        programs.
        """
        return VectorPolicy(
            runner or self.runner,
            engine,
            tokenizer=self.tokenizer,
            tasks=self.tasks if tasks is None else tasks,
            transform=self.transform,
            weights=self._weights,
            adapter=self._adapter,
        )

    def with_tasks(self, tasks: Sequence[LanguageTask], engine: EngineConfig) -> "VectorPolicy":
        """The same policy with other language tasks, sharing weights, prefill and denoise programs.

        Fork and decode programs are compiled again if their shapes change. The number of robots stays.
        """
        sizes, runner = sizes_for(engine, [tokenized(task, self.tokenizer) for task in tasks]), self.runner
        if sizes != runner.sizes:
            runner = runner.resized(sizes, runner.adapter)
        return self.with_engine(engine, tasks=tasks, runner=runner)

    def reset(self, robot: int, episode_seed: int, first_query: int = 0) -> None:
        """Start an episode of a robot: cancel its requests, count its request ids from 0.

        The noise of its actions is a function of the lowest 64 bits of the seed and the query's number.
        `first_query` is the number of its next query; above 0 to resume an episode.
        """
        self._complete()
        self._schedulers[robot].reset(episode_seed % 2**64)
        self._sessions[robot] = self._new_session(robot, first_query)

    def act(self, observations: Observations) -> dict[int, Float64[np.ndarray, "horizon action"]]:
        """Return the actions of a query of some robots, in the robot's units, as soon as they are ready.

        Args:
            observations: For each robot with a query `images` (camera to uint8 [height, width, 3]), `state`
                (finite numbers) and `prompt`. With `action_prefix` (a `contracts.interface.ActionPrefix`),
                the new chunk is guided towards the last one, which is still being executed.

        Raises:
            UsageError: An observation is incomplete or invalid, or the previous query has not been completed.
        """
        if any(session.timings_ms is not None or session.reply is not None for session in self._sessions):
            raise UsageError("the previous query is not complete; call complete() after every act()")
        arrived_s = time.perf_counter()
        robots, config = range(self.engine.robots), self.runner.config
        if not observations or not observations.keys() <= set(robots):
            raise UsageError(
                f"observations of robots {sorted(observations)}; give some of {len(robots)}, numbered from 0"
            )
        rows = {
            robot: self.transform.inputs(one, self.tokenizer, config) for robot, one in observations.items()
        }
        inputs = batched([rows.get(robot) for robot in robots], config)
        states = {robot: self.transform.state(one) for robot, one in observations.items()}
        guidance = self._guidance(observations, states)
        queries = {robot: self._sessions[robot].queries for robot in robots if robot in states}
        ready_s = time.perf_counter()
        step = self._engine.act(inputs, queries, arrived_s=arrived_s, guidance=guidance)
        chunks = {robot: self.transform.outputs(step.actions[robot], states[robot]) for robot in queries}
        self._delivered_s = time.perf_counter()
        for robot in queries:
            guided = guidance is not None and bool(guidance.guides[robot])
            seconds = {
                "preprocess": ready_s - arrived_s,
                "prefill": step.prefilled_s - step.started_s,
                "guided_denoise" if guided else "denoise": step.actions_ready_s - step.prefilled_s,
                "action": self._delivered_s - arrived_s,
            }
            timings_ms = {stage: 1e3 * duration for stage, duration in seconds.items()}
            kept, prompt_cut = int(inputs.length[robot]), 0
            if kept == config.max_prompt:
                prompt_cut = self.transform.prompt_length(observations[robot], self.tokenizer) - kept
            session = self._sessions[robot]
            session.last, session.prompt_cut = (step.actions[robot], states[robot]), prompt_cut
            session.timings_ms = session.acted_ms = timings_ms
            session.queries += 1
        return chunks

    def acted_ms(self, robot: int) -> Mapping[str, float]:
        """Stage times of a robot's last query until its actions; see `Reply.timings_ms`."""
        return self._sessions[robot].acted_ms

    def prompt_cut(self, robot: int) -> int:
        """Tokens cut from the prompt of a robot's last query; see `Reply.prompt_cut`."""
        return self._sessions[robot].prompt_cut

    def complete(self) -> dict[int, Reply]:
        """Wait for the texts of the current queries; the reply to each robot with a query."""
        self._complete()
        replies = {}
        for robot, session in enumerate(self._sessions):
            if session.reply is not None:
                replies[robot], session.reply = session.reply, None
        return replies

    def finish(self, robot: int) -> EpisodeEnd:
        """End a robot's episode: complete its query and cancel its active requests."""
        self._complete()
        return self._sessions[robot].end(self._schedulers[robot].cancel(), self.compiles_after_warm_up)

    def close(self) -> None:
        """End the second process of mode `parallel`, if any."""
        self._engine.close()

    def _complete(self) -> None:
        step = self._engine.complete(delivered_s=self._delivered_s)
        if step is not None:
            self.work = step.work
            for session in self._sessions:
                session.add(step)

    def _guidance(
        self, observations: Observations, states: Mapping[int, Float64[np.ndarray, " state"]]
    ) -> Guidance | None:
        """Guidance from the observations' `action_prefix`; None if there is none."""
        prefixes = {robot: one.get("action_prefix") for robot, one in observations.items()}
        if not any(prefixes.values()):
            return None
        if not self.engine.guided:
            raise UsageError("an observation has an `action_prefix`; serve the policy with `guided=True`")
        nothing = Guidance.none((1, self.runner.config.horizon, self.runner.config.action_dim))
        rows = [nothing] * len(self._sessions)
        for robot, prefix in prefixes.items():
            if prefix:
                rows[robot] = self._sessions[robot].guidance(prefix, self.transform, states[robot])
        return jax.tree.map(lambda *of_robots: np.concatenate(of_robots), *rows)

    def _new_session(self, robot: int, first_query: int) -> "_Session":
        names = [task.name for task in self.tasks]
        return _Session(
            robot, names, self.tokenizer, single_sizes=self._single_sizes, first_query=first_query
        )

    def _text_decoder(self) -> TextDecoder | None:
        if self.engine.mode is Mode.ACTIONS or not self.tasks:
            return None
        if self.engine.mode is not Mode.PARALLEL:
            return LocalTextDecoder(self.runner)
        sizes = dataclasses.replace(self.runner.sizes, guided=False)  # it computes no actions
        return RemoteTextDecoder(self.runner.config, loadable(self._weights), sizes, self._adapter)


class _Session:
    """The state of one robot's episode."""

    def __init__(
        self,
        robot: int,
        tasks: Sequence[str],
        tokenizer: Tokenizer,
        *,
        single_sizes: ProgramSizes,  # of programs for one robot; replies report the work there
        first_query: int,
    ) -> None:
        self._single_sizes = single_sizes
        self._robot = robot
        self._tasks = tasks
        self._tokenizer = tokenizer
        self.queries = first_query
        # The normalised chunk and the state of the last query.
        self.last: tuple[Float32[np.ndarray, "horizon action"], Float64[np.ndarray, " state"]] | None = None
        self.timings_ms: Mapping[str, float] | None = None  # of a query that waits for its reply
        self.acted_ms: Mapping[str, float] = {}
        self.reply: Reply | None = None
        self.prompt_cut = 0  # tokens cut from its prompt
        self._finished: list[Text] = []
        self._dropped: list[TextRequest] = []
        self._tokens = 0

    def guidance(
        self, prefix: ActionPrefix, transform: Transform, state: Float64[np.ndarray, " state"]
    ) -> Guidance:
        """Guidance of the next chunk towards the part of the last one, kept normalised, in execution."""
        horizon = 0 if self.last is None else len(self.last[0])
        if self.last is None or prefix.first >= horizon:
            raise UsageError(
                f"action prefix {prefix}: the last chunk of the episode has {horizon} actions; leave it out "
                "if no chunk is being executed"
            )
        chunk = transform.moved(*self.last, state)
        return Guidance.towards(chunk, first=prefix.first, delay=prefix.delay)

    def add(self, step: EngineStep) -> None:
        """Add the texts of a completed engine step; if it served a query of this robot, prepare the reply."""
        plan = step.plans.get(self._robot)
        if plan is None:
            return
        for request, tokens in step.new_tokens.items():
            if request.robot == self._robot:
                self._tokens += tokens
                if request.state is RequestState.FINISHED:
                    self._finished.append(self._text(request))
        self._dropped += self._named(plan.dropped)
        assert self.timings_ms is not None, "it has a query in this step"
        finished, dropped, tokens = self._collected()
        decode_ms = 1e3 * step.decode_s
        frame_ms = self.timings_ms["action"] + decode_ms
        self.reply = Reply(
            timings_ms={**self.timings_ms, "decode": decode_ms, "frame": frame_ms},
            requested=self._named(plan.requested),
            finished=finished,
            dropped=dropped,
            tokens=tokens,
            tokens_per_frame=step.decode_steps,
            work=tuple(_work_of(job, step, self._single_sizes) for job in plan.jobs),
            prompt_cut=self.prompt_cut,
        )
        self.timings_ms = None

    def end(self, cancelled: Sequence[Request], compiles: int) -> EpisodeEnd:
        """The unfinished and unreported rest of the episode."""
        finished, dropped, tokens = self._collected()
        reply, self.reply = self.reply, None
        return EpisodeEnd(
            cancelled=len(cancelled),
            requests=self._named(cancelled),
            reply=reply,
            finished=finished,
            dropped=dropped,
            tokens=tokens,
            compiles_after_warm_up=compiles,
        )

    def _collected(self) -> tuple[tuple[Text, ...], tuple[TextRequest, ...], int]:
        """Texts finished, requests dropped and tokens decoded since the last call."""
        collected = tuple(self._finished), tuple(self._dropped), self._tokens
        self._finished, self._dropped, self._tokens = [], [], 0
        return collected

    def _text(self, request: Request) -> Text:
        tokens = request.tokens[:-1] if request.stopped else request.tokens
        return Text(
            task=self._tasks[request.task],
            request_id=request.request_id,
            requested_query=request.query,
            finished_query=self.queries - 1,
            text=self._tokenizer.decode(tokens).strip(),
            tokens=len(request.tokens),
            reason="stop" if request.stopped else "length",
            latency_ms=1e3 * request.latency_s,
            after_ms=1e3 * request.after_s,
            job=request.job,
            job_steps=request.job_steps,
            times=TextTimes(
                requested_s=request.requested_s,
                first_token_s=request.first_token_s,
                finished_s=request.finished_s,
            ),
        )

    def _named(self, requests: Iterable[Request]) -> tuple[TextRequest, ...]:
        return tuple(
            TextRequest(task=self._tasks[request.task], request_id=request.request_id, query=request.query)
            for request in requests
        )


def _work_of(job: DecodeJob, step: EngineStep, sizes: ProgramSizes) -> DecodeWork:
    """The work of a robot's decode job by programs of these sizes, without other robots."""
    steps = min(step.decode_steps, job.steps)
    if job.to_the_end:  # a stop token is noticed one step later, a limit at once
        steps = min(1 + max(len(request.tokens) for request in job.rows), job.steps)
    fork = sizes.forks[0] if job.own_prefill else sizes.forks[-1]
    return DecodeWork(
        prefills=int(job.own_prefill and bool(job.new)),
        forks=-(-len(job.new) // fork),
        steps=steps,
        batch=sizes.batch_of(job.batch),
    )


def create_vector_policy(
    config: Pi05Config,
    *,
    weights: WeightsSource,
    tokenizer: Tokenizer,
    tasks: Sequence[LanguageTask] = (),
    engine: EngineConfig | None = None,
    transform: Transform | None = None,
    adapter: AdapterSource | None = None,
) -> VectorPolicy:
    """Build a policy and compile its programs; refuses parts that do not fit together.

    Args:
        config: The model's sizes. With several robots, all prompts are padded to the longest bucket; remove
            long buckets that are not needed.
        weights: Parameters in openpi's layout, a function that loads them, or a seed for random ones. Mode
            `parallel` loads them in a second process as well, so it needs a seed or a picklable function.
        tokenizer: The vocabulary the weights were trained with.
        tasks: The language tasks. Mode `actions` ignores them.
        engine: Its default if None.
        transform: Conversion of observations and actions; LIBERO's without normalisation if None.
        adapter: A suffix adapter, which changes texts but no action; None without one.
    """
    engine = engine or EngineConfig()
    if engine.robots > 1:  # the padding of a prompt must not depend on other robots
        config = dataclasses.replace(config, prompt_buckets=(config.max_prompt,))
    check_fits(tokenizer, config)
    for task in tasks:
        if not task.sampling.greedy and (task.sampling.top_k or 0) > config.vocab_size:
            raise UsageError(
                f"language task {task.name!r}: top_k is {task.sampling.top_k}, the model has "
                f"{config.vocab_size} tokens; give no more, or leave it out to draw among all"
            )
    transform = transform or untrained(LIBERO)
    transform.check_fits(config)
    in_tokens = [tokenized(task, tokenizer) for task in tasks]
    # Refused before weights are loaded and programs compiled: too few slots, and what cannot be loaded twice.
    Scheduler(mode=engine.mode, tasks=in_tokens, slots=engine.slots, rows=engine.rows)
    if engine.mode is Mode.PARALLEL:
        loadable(weights)
    loaded = load_weights(weights, config)
    beside = None if adapter is None else adapter.load(config, loaded)
    runner = Runner(config, loaded, sizes_for(engine, in_tokens), adapter=beside)
    policy = VectorPolicy(
        runner,
        engine,
        tokenizer=tokenizer,
        tasks=tasks,
        transform=transform,
        weights=weights if isinstance(weights, int) or callable(weights) else None,
        adapter=adapter,
    )
    _warm_up(policy)
    return policy


def _warm_up(policy: VectorPolicy) -> None:
    """Answer one query, so that the caller's first one needs no imports and allocations."""
    config, robots = policy.runner.config, range(policy.engine.robots)
    black = np.zeros((2 * config.image_size, config.image_size, 3), np.uint8)
    state = np.zeros(policy.transform.state_norm.size)
    observation = {"images": dict.fromkeys(config.cameras, black), "state": state, "prompt": ""}
    policy.act(dict.fromkeys(robots, observation))
    policy.complete()
    for robot in robots:
        policy.reset(robot, 0)
