"""`oxygen-eval media`: an episode of two runs side by side, on one clock of simulated time."""

import dataclasses
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import Names, Numbers, ranges, run_app
from configs.console import visible_text
from configs.paths import shown, usable_file
from contracts.episode import EpisodeResult, Outcome, solved
from contracts.errors import UsageError, pluralize
from eval.records.reader import RunIdentity, RunRecords
from eval.records.schema import RunFolder
from eval.report.labels import labels_of
from eval.report.pairing import require_one_world, require_same_episodes
from eval.rollout.recorder import EpisodeCaptions
from videos.mp4 import Mp4Writer, Picture, VideoError, iterate_pictures
from videos.panel import Caption
from videos.side_by_side import Side, compose_pair, first_camera

_LAST_S = 1.5  # duration of the last frame, seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PlayedEpisode:
    """An episode of one of the runs; `name` is the run's, `times` the suite's rate and limit."""

    run: RunRecords
    identity: RunIdentity
    name: str
    result: EpisodeResult
    times: Mapping[str, float]

    def _captions(self) -> Iterator[Caption]:
        run, result = self.identity, self.result
        captions = EpisodeCaptions(
            result.key,
            assets=run.assets.name,
            instructions={0: result.language},
            policy=run.policy,
            mode=run.mode,
            has_texts=result.requests.requested > 0,
            clock=run.clock,
            perturb=run.perturb,
            **self.times,
        )
        for query in self.run.queries(result.key):
            captions.add(query)
            for step in range(query.step, query.step + query.steps):
                yield captions.at(step)
        yield captions.at(result.steps)

    def sides(self) -> Iterator[Side]:
        """The episode at every control step, then without end as it ended, with the outcome.

        Raises:
            VideoError: The video is damaged, or of another version.
        """
        video, steps = self.run.folder.path / str(self.result.video), self.result.steps
        frames, count, side = itertools.islice(iterate_pictures(video), steps + 1), 0, None
        for frame, caption in zip(frames, self._captions(), strict=False):
            try:
                view = first_camera(frame)
            except ValueError as error:
                raise VideoError(f"{video}: {error}; play the episode again") from None
            outcome = self.result.outcome.value if count == steps else None
            side, count = Side(name=self.name, view=view, caption=caption, outcome=outcome), count + 1
            yield side
        if side is None or count <= steps:
            raise VideoError(f"{video} and its query log end after {count} control steps")
        yield from itertools.repeat(side)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodePair:
    """The same episode of two runs."""

    sides: tuple[_PlayedEpisode, ...]  # the episode in A and in B
    why: str  # one line on the episode and how it ended in both
    control_hz: float  # frames per second

    @property
    def frames(self) -> int:
        """Number of frames; the last shows both outcomes."""
        return 1 + max(side.result.steps for side in self.sides)

    def pictures(self) -> Iterator[Picture]:
        """The frames, one per control step. The shorter episode repeats its last frame.

        Raises:
            VideoError: A video is damaged, or of another version.
        """
        both = zip(*(side.sides() for side in self.sides), strict=True)
        for step, (left, right) in enumerate(itertools.islice(both, self.frames)):
            yield compose_pair((left, right), time_s=step / self.control_hz)

    def write(self, path: Path) -> None:
        """Write the video, at real-time speed.

        Raises:
            VideoError: A video is damaged, or of another version, or the encoder failed; no file is left.
        """
        writer: Mp4Writer | None = None
        partial = path.with_name(f".{path.name}.partial.mp4")
        try:
            for number, picture in enumerate(self.pictures(), start=1):
                height, width, _ = picture.shape
                writer = writer or Mp4Writer(partial, width=width, height=height, fps=self.control_hz)
                writer.write(picture, times=1 if number < self.frames else round(_LAST_S * self.control_hz))
            assert writer is not None
            writer.close()
            partial.replace(path)
        finally:
            if writer is not None:
                writer.kill()
            partial.unlink(missing_ok=True)


def find_pair(
    run_a: RunRecords,
    run_b: RunRecords,
    *,
    suites: Sequence[str] = (),
    task_ids: Sequence[int] = (),
    init_ids: Sequence[int] = (),
) -> EpisodePair:
    """The most informative episode with a video in both runs, of the suites, tasks and states given, if any.

    One that only one of the runs solved; else the one whose lengths differ most.

    Raises:
        UsageError: The runs cannot be compared, have no such episode in common, or no videos of it.
    """
    identities = require_one_world(run_a, run_b, partial=True)
    runs, names = (run_a, run_b), labels_of(identities)
    common = _common_episodes(run_a, run_b, {"suite": suites, "task_id": task_ids, "init_id": init_ids})
    shown = [
        pair
        for pair in common
        if all(
            each.outcome is not Outcome.ERROR
            and each.video is not None
            and (run.folder.path / each.video).is_file()
            for run, each in zip(runs, pair, strict=True)
        )
    ]
    if not shown:
        raise UsageError(
            f"{run_a.folder.run_id} and {run_b.folder.run_id} have {pluralize(len(common), 'episode')} in "
            "common, and none with a video in both; run them with --video all"
        )

    pair = min(shown, key=lambda x: (solved(x[0]) == solved(x[1]), -abs(x[0].steps - x[1].steps), x[0].key))
    key = pair[0].key
    suite = run_a.folder.read_manifest()["protocol"][key.suite]["suite"]
    hz = float(suite["control_hz"])
    times = {"control_hz": hz, "limit_s": suite["max_steps"] / hz}
    sides = tuple(
        _PlayedEpisode(run=run, identity=identity, name=name, result=result, times=times)
        for run, identity, name, result in zip(runs, identities, names, pair, strict=True)
    )
    ends = ", ".join(
        f"{side.name} {side.result.outcome.value.replace('_', ' ')} at {side.result.steps / hz:.2f} s"
        for side in sides
    )
    why = f"{key.suite} task {key.task_id}, init {key.init_id}, seed {key.seed}: {ends}."
    return EpisodePair(sides=sides, why=why, control_hz=hz)


def _common_episodes(
    run_a: RunRecords, run_b: RunRecords, chosen: Mapping[str, Sequence[object]]
) -> list[tuple[EpisodeResult, EpisodeResult]]:
    """The episodes of both runs, with the chosen parts of keys if any are chosen; UsageError if none."""
    a, b = run_a.episodes, run_b.episodes
    keys, both = sorted(a.keys() & b.keys()), f"{run_a.folder.run_id} and {run_b.folder.run_id}"
    if not keys:
        require_same_episodes(run_a, run_b)
        raise UsageError(f"{both} have no episode in common; name other runs")
    common = [
        (a[key], b[key])
        for key in keys
        if all(not allowed or getattr(key, part) in allowed for part, allowed in chosen.items())
    ]
    if not common:
        tasks, states = (",".join(ranges(getattr(k, part) for k in keys)) for part in ("task_id", "init_id"))
        known = ", ".join(dict.fromkeys(key.suite for key in keys))
        raise UsageError(
            f"{both} have no such episode in common; they have tasks {tasks} of {known}, initial states "
            f"{states}"
        )
    return common


app = App(name="oxygen-eval media")


@app.default
def main(
    run: Path,
    other: Path,
    /,
    *,
    suites: Annotated[Names, Parameter(name="--suite")] = (),
    task_ids: Numbers = (),
    init_ids: Numbers = (),
    output: Annotated[Path, Parameter(alias="-o")] = Path("side_by_side.mp4"),
) -> None:
    """Show both runs' videos of an episode beside each other.

    The episode is one that only one of the runs solved if there is one, else the one whose lengths differ
    most.

    Args:
        run: Folder of a run with videos.
        other: Folder of another, to show on the right.
        suites: Suites from which the episode is chosen. Default: all.
        task_ids: Tasks from which it is chosen, as `0 3 7`, `0,3,7` or `0-4`. Default: all.
        init_ids: Initial states from which it is chosen. Default: all.
        output: The file to write.
    """
    runs = RunRecords(RunFolder(run)), RunRecords(RunFolder(other))
    pair = find_pair(*runs, suites=suites, task_ids=task_ids, init_ids=init_ids)
    path = usable_file(output, "--output")
    if path.suffix.lower() != ".mp4":
        raise UsageError(f"cannot write {str(output)!r}; --output takes a file whose name ends in .mp4")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        pair.write(path)
    except VideoError as error:
        raise UsageError(str(error)) from None
    sys.stdout.write(f"{visible_text(pair.why)}\n{shown(path)}\n")


if __name__ == "__main__":
    run_app(app)
