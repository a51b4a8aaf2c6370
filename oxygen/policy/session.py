"""The policy's state of one robot's episode: its queries, and the contents of its next reply."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from configs.errors import UsageError
from configs.latency import ActionPrefix
from oxygen.model.guidance import Guidance
from oxygen.policy.reply import EpisodeEnd, Reply, Text, TextRequest, TextTimes
from oxygen.robots.tokenizer import Tokenizer
from oxygen.robots.transforms import Transform
from oxygen.serving.engine import EngineStep
from oxygen.serving.requests import DecodeJob, DecodeWork, Request, RequestState
from oxygen.serving.runner import ProgramSizes
from oxygen.typing import Float32, Float64


class Session:
    """The state of one robot's episode."""

    def __init__(
        self,
        robot: int,
        tasks: Sequence[str],
        tokenizer: Tokenizer,
        *,
        alone: ProgramSizes | None = None,
        first_query: int = 0,
    ) -> None:
        """Start an episode.

        Args:
            robot: The robot's number.
            tasks: Names of the language tasks.
            tokenizer: The vocabulary.
            alone: Program shapes for serving the robot alone; its replies then report its own work. If None,
                they report the work of all robots.
            first_query: Number of the next query.
        """
        self._alone = alone
        self._robot = robot
        self._tasks = tasks
        self._tokenizer = tokenizer
        self.queries = first_query
        self._last: tuple[Float32[np.ndarray, "horizon action"], Float64[np.ndarray, " state"]] | None = None
        self._timings_ms: Mapping[str, float] | None = None
        self.acted_ms: Mapping[str, float] = {}
        self._reply: Reply | None = None
        self._prompt_cut = 0
        self._finished: list[Text] = []
        self._dropped: list[TextRequest] = []
        self._tokens = 0

    @property
    def is_open(self) -> bool:
        """Whether a query is waiting for its reply."""
        return self._timings_ms is not None or self._reply is not None

    def guidance(
        self, prefix: ActionPrefix, transform: Transform, state: Float64[np.ndarray, " state"]
    ) -> Guidance:
        """Guidance of the next chunk towards the last one, which is kept normalised.

        Args:
            prefix: The part of the last chunk that is being executed.
            transform: The robot's.
            state: Its state now.

        Raises:
            UsageError: The last chunk has no such action.
        """
        horizon = 0 if self._last is None else len(self._last[0])
        if self._last is None or prefix.first >= horizon:
            raise UsageError(
                f"action prefix {prefix}: the last chunk of the episode has {horizon} actions; leave it out "
                "if no chunk is being executed"
            )
        chunk = transform.moved(*self._last, state)
        return Guidance.towards(chunk, first=prefix.first, delay=prefix.delay, horizon=horizon)

    def begin_query(
        self,
        chunk: Float32[np.ndarray, "horizon action"],
        state: Float64[np.ndarray, " state"],
        timings_ms: Mapping[str, float],
        prompt_cut: int,
    ) -> None:
        """Record a query's normalised actions, state, stage times, and tokens cut from its prompt."""
        self._last, self._prompt_cut = (chunk, state), prompt_cut
        self._timings_ms = self.acted_ms = timings_ms
        self.queries += 1

    def add(self, step: EngineStep) -> None:
        """Add the texts of a completed engine step; if it served a query of this robot, prepare the reply."""
        jobs = step.plan.jobs
        if self._alone is not None:  # as if they were alone, others' jobs do not exist
            jobs = tuple(job for job in jobs if any(each.robot == self._robot for each in job.rows))
        for request, tokens in step.new_tokens.items():
            if request.robot == self._robot:
                self._tokens += tokens
                if request.state is RequestState.FINISHED:
                    job = jobs.index(step.plan.jobs[request.job])
                    self._finished.append(self._text(request, job))
        self._dropped += self._own(step.plan.dropped)
        if self._timings_ms is None:
            return
        work = step.work
        if self._alone is not None:
            work = tuple(_work_alone(job, step, self._robot, self._alone) for job in jobs)
        finished, dropped, tokens = self._collected()
        decode_ms = 1e3 * step.decode_s
        frame_ms = self._timings_ms["action"] + decode_ms
        self._reply = Reply(
            timings_ms={**self._timings_ms, "decode": decode_ms, "frame": frame_ms},
            requested=self._own(step.plan.requested),
            finished=finished,
            dropped=dropped,
            tokens=tokens,
            tokens_per_frame=step.decode_steps,
            work=work,
            prompt_cut=self._prompt_cut,
        )
        self._timings_ms = None

    def take_reply(self) -> Reply | None:
        """Return the reply to the last query and forget it."""
        reply, self._reply = self._reply, None
        return reply

    def end(self, cancelled: Sequence[Request], compiles: int) -> EpisodeEnd:
        """The unfinished and unreported rest of the episode."""
        finished, dropped, tokens = self._collected()
        return EpisodeEnd(
            cancelled=len(cancelled),
            requests=self._own(cancelled),
            reply=self.take_reply(),
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

    def _text(self, request: Request, job: int) -> Text:
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
            job=job,
            job_steps=request.job_steps,
            times=TextTimes(
                requested_s=request.requested_s,
                first_token_s=request.first_token_s,
                finished_s=request.finished_s,
            ),
        )

    def _own(self, requests: Iterable[Request]) -> tuple[TextRequest, ...]:
        return tuple(
            TextRequest(task=self._tasks[request.task], request_id=request.request_id, query=request.query)
            for request in requests
            if request.robot == self._robot
        )


def _work_alone(job: DecodeJob, step: EngineStep, robot: int, alone: ProgramSizes) -> DecodeWork:
    """The work of a decode job if its robot were served alone, by programs of those sizes."""
    rows = [request for request in job.rows if request.robot == robot]
    new = sum(request.robot == robot for request in job.new)
    if job.to_the_end:  # a stop token is noticed one step later, a limit at once
        steps = min(1 + max(len(request.tokens) for request in rows), max(each.limit for each in rows))
        batch = alone.batch_of(1 if job.own_prefill else len(rows))
    else:
        before = {request: len(request.tokens) - step.new_tokens.get(request, 0) for request in rows}
        steps = min(step.decode_steps, max(each.limit - before[each] for each in rows))
        batch = alone.batch_of(1) if job.own_prefill else alone.rows[-1]
    fork = alone.forks[0] if job.own_prefill else alone.forks[-1]
    prefills = int(job.own_prefill and new > 0)
    return DecodeWork(prefills=prefills, forks=-(-new // fork), steps=steps, batch=batch)
