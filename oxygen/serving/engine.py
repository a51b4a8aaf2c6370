"""The serving engine: plans, runs and commits one step. Actions come first; texts are decoded behind them."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np

from contracts.text import DecodeWork
from oxygen.model.config import ModelInput
from oxygen.model.guidance import Guidance
from oxygen.model.pi05 import Prefix
from oxygen.serving.requests import DecodeJob, Request, RequestState, StepPlan
from oxygen.serving.runner import Runner
from oxygen.serving.scheduler import Budget, Scheduler, joined
from oxygen.serving.text_decoder import DecodeResult, TextDecoder
from oxygen.typing import Array, Float32

_MIN_S = 1e-6  # time recorded for decode steps that were done before the host read the actions
_NEW_WEIGHT = 0.2  # weight of a new sample in the exponential moving averages


@dataclasses.dataclass(kw_only=True)
class EngineStep:
    """One step of the engine: the actions of some queries, then their texts."""

    plans: Mapping[int, StepPlan]  # robot to its text requests and decode jobs, for those with a query
    jobs: Sequence[DecodeJob]  # the decode jobs of all robots together
    actions: Float32[np.ndarray, "robot horizon action"]  # every robot's chunk, normalised
    arrived_s: float  # when the queries arrived, in seconds of the engine's clock
    started_s: float  # when the step started
    prefilled_s: float  # when the prefix was ready
    actions_ready_s: float  # when the actions were on the host
    decode_steps: int  # decode steps of each text, in modes `unified` and `interleaved`; else 0
    decode_batch: int  # size of their batch
    # Request to its number of new tokens, if any. This and the next two are set by `Engine.complete`.
    new_tokens: Mapping[Request, int] = dataclasses.field(default_factory=dict)
    decode_s: float = 0.0  # seconds of decoding after the actions were delivered
    work: tuple[DecodeWork, ...] = ()  # work of the decode jobs, in order


class Engine:
    """Serves the queries of one or more robots. A step is one `act`, then one `complete`."""

    def __init__(
        self,
        runner: Runner,
        schedulers: Sequence[Scheduler],
        decoder: TextDecoder | None,
        budget: Budget,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Create an engine, with a scheduler for each robot; without a decoder, they must plan no texts.

        The budget is for modes `unified` and `interleaved`.
        """
        self._runner = runner
        self._schedulers = schedulers
        self._decoder = decoder
        self._budget = budget
        self._clock = clock
        self._step_ms: dict[int, float] = {}  # moving average of a decode step, by batch size
        self._acting_ms: float | None = None  # likewise, from a query's arrival to its actions
        self._busy_s = 0.0
        self._step: EngineStep | None = None
        self.compiles_in_second_process = 0

    def act(
        self,
        inputs: ModelInput,
        queries: Mapping[int, int],
        *,
        arrived_s: float,
        guidance: Guidance | None = None,
    ) -> EngineStep:
        """Return the actions of some queries as soon as they are on the host.

        While the device runs the prefill, the host plans the texts and queues them behind the actions. The
        device runs programs in order, so texts cannot delay the actions. (If host and device share CPU cores,
        planning takes some of the actions' time.)

        Args:
            inputs: The robots' observations; a padded row for a robot without a query.
            queries: Robot to the number of its query.
            arrived_s: When the queries arrived, in seconds of the engine's clock; deadlines count from it.
            guidance: Chunks in execution to guide towards; None if there are none. Robots without one are not
                guided.
        """
        assert self._step is None, "complete() comes before the next act()"
        started_s = self._clock()
        prefix = self._runner.prefill(inputs)
        chunks = self._denoise(prefix, queries, guidance)
        plans = {robot: self._schedulers[robot].plan(query) for robot, query in queries.items()}
        jobs = joined(plans.values(), robots=len(self._schedulers), width=self._schedulers[0].width)
        for plan in plans.values():
            for request in plan.requested:
                request.requested_s, request.requested_busy_s = arrived_s, self._busy_s
        steps, batch = self._budgeted(jobs, arrived_s)
        if self._decoder is not None and jobs:
            self._decoder.begin(inputs, jobs, prefix, steps)
        jax.block_until_ready(prefix.k[-1])
        prefilled_s = self._clock()
        on_host = [np.asarray(chunk) for chunk in chunks]
        actions = on_host[0]
        if guidance is not None and len(on_host) == 2:
            actions = np.where(guidance.guides[:, None, None], *on_host)
        actions_ready_s = self._clock()
        self._acting_ms = _averaged(self._acting_ms, 1e3 * (actions_ready_s - arrived_s))
        self._step = EngineStep(
            plans=plans,
            jobs=jobs,
            actions=actions,
            arrived_s=arrived_s,
            started_s=started_s,
            prefilled_s=prefilled_s,
            actions_ready_s=actions_ready_s,
            decode_steps=steps,
            decode_batch=batch,
        )
        return self._step

    def _denoise(
        self, prefix: Prefix, queries: Mapping[int, int], guidance: Guidance | None
    ) -> list[Float32[Array, "robot horizon action"]]:
        """Every robot's chunk, guided, not guided, or both ways in this order, as the robots need."""
        seeds = [scheduler.seed for scheduler in self._schedulers]
        numbers = [queries.get(robot, 0) for robot in range(len(seeds))]
        chunks = []
        if guidance is not None:
            chunks.append(self._runner.denoise(prefix, seeds, numbers, guidance))
        if guidance is None or not all(guidance.guides[robot] for robot in queries):
            chunks.append(self._runner.denoise(prefix, seeds, numbers))
        for chunk in chunks:
            chunk.copy_to_host_async()
        return chunks

    def _budgeted(self, jobs: Sequence[DecodeJob], arrived_s: float) -> tuple[int, int]:
        """Decode steps and batch size of the jobs that do not run to their end; zeros if there are none."""
        budgeted = [job for job in jobs if not job.to_the_end]
        if not budgeted:
            return 0, 0
        batch = self._runner.sizes.batch_of(budgeted[0].batch)
        spent_ms = max(1e3 * (self._clock() - arrived_s), self._acting_ms or 0.0)
        steps = self._budget.steps(spent_ms=spent_ms, step_ms=self._step_ms.get(batch))
        return min(steps, max(job.steps for job in budgeted)), batch

    def complete(self, *, delivered_s: float) -> EngineStep | None:
        """Finish the texts of the current step, commit it and return it; None if there is no step.

        Its actions were delivered at `delivered_s`, in seconds of the engine's clock.
        """
        if self._step is None:
            return None
        step, self._step = self._step, None
        decoded = DecodeResult(tokens={})
        if self._decoder is not None and step.jobs:
            decoded = self._decoder.finish()
            self.compiles_in_second_process = decoded.compiles
        if step.decode_steps:  # forks included: their time is spread over the steps
            batch, decode_ms = step.decode_batch, 1e3 * max(_MIN_S, decoded.done_s - step.actions_ready_s)
            self._step_ms[batch] = _averaged(self._step_ms.get(batch), decode_ms / step.decode_steps)
        step.new_tokens = {
            request: count
            for robot in step.plans
            for request, count in self._schedulers[robot].commit(decoded.tokens).items()
        }
        began_s = max(delivered_s, decoded.began_s)
        done_s = max(began_s, decoded.done_s)

        def busy_s(moment_s: float) -> float:
            """Total time for which the engine has been busy until a moment of this step."""
            acting_s = min(moment_s, delivered_s) - step.arrived_s
            return self._busy_s + acting_s + max(0.0, moment_s - began_s)

        for request, count in step.new_tokens.items():
            if count == len(request.tokens):
                request.first_token_s = decoded.first_token_s.get(request.slot, done_s)
            if request.state is RequestState.FINISHED:
                request.finished_s = decoded.finished_s.get(request.slot, done_s)
                request.latency_s = busy_s(request.finished_s) - request.requested_busy_s
                request.after_s = busy_s(request.finished_s) - self._busy_s
                request.job_steps = count
        for plan in step.plans.values():
            for number, job in enumerate(plan.jobs):
                for request in job.rows:
                    request.job = number
        self._busy_s = busy_s(done_s)
        step.decode_s, step.work = done_s - began_s, decoded.work
        return step

    def close(self) -> None:
        """Free the text decoder's resources."""
        if self._decoder is not None:
            self._decoder.close()


def _averaged(before: float | None, sample: float) -> float:
    return sample if before is None else before + _NEW_WEIGHT * (sample - before)
