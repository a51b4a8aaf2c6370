"""The conclusion of an evaluation in one sentence, which leads with what is known, and remarks on it."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

from contracts.episode import EpisodeResult, graded_only, solved
from contracts.errors import UsageError, pluralize
from eval.metrics.noninferiority import Verdict, exceeds
from eval.metrics.rows import rate_of
from eval.metrics.statistics import Rate
from eval.records.reader import RunRecords
from eval.report.comparison import Comparison, Outcomes, PairTable, compare
from eval.report.comparison_verdict import Judgements, corrected, judge_all
from eval.report.perturbations import conclude_perturbed, control_of, perturbed_rows
from eval.report.table import percentage

Judged = tuple[Comparison, Judgements]
"""A comparison and its verdicts."""

_FEWEST = 5  # unsolved episodes that point to a mismatch
_HARDLY_M = 0.05  # length of the path of an end effector that hardly moves


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conclusion:
    """What runs of the same episodes show, each compared with the first."""

    sentence: str
    judged: Mapping[str, Judged]  # by label of the run that is compared
    remarks: Sequence[str]  # signs of a mismatch, and why runs cannot be compared, in a line each


def conclude_runs(labels: Sequence[str], runs: Sequence[RunRecords]) -> Conclusion:
    """Compare runs with the first, by its declared margins; of unfinished runs only common episodes.

    Runs of perturbed episodes are compared with their control.
    """
    remarks = [
        f"{label}: {'; '.join(signs)}. Check what its actions mean (docs/conventions.md)."
        for label, run in zip(labels, runs, strict=True)
        if (signs := list(_signs_of_a_mismatch(graded_only(list(run.episodes.values())))))
    ]
    if len(runs) == 1:
        episodes = list(runs[0].episodes.values())
        known = conclude_run(labels[0], rate_of(episodes), len(episodes))
        return Conclusion(sentence=known, judged={}, remarks=remarks)
    identities = [run.identity for run in runs]
    judged: dict[str, Judged] = {}
    for label, run, identity in zip(labels[1:], runs[1:], identities[1:], strict=True):
        control = control_of(identity, identities)
        first = 0 if control is None else identities.index(control)
        done = identities[first].status == identity.status == "complete"
        try:
            comparison = compare(runs[first], run, partial=not done or control is not None)
        except UsageError as error:
            remarks.append(f"{label} is not compared with {labels[first]}: {error}.")
            continue
        judged[label] = comparison, judge_all(comparison, identities[0].margin, identities[0].time_margin)
    sentence = "No verdict: no two runs can be compared."
    if perturbed := perturbed_rows(judged):
        sentence = conclude_perturbed(perturbed)
    elif judged:
        sentence = conclude(labels[0], judged)
    return Conclusion(sentence=sentence, judged=judged, remarks=remarks)


def _signs_of_a_mismatch(graded: Sequence[EpisodeResult]) -> Iterator[str]:
    """What points to actions in other conventions than the robot's, rather than to a poor policy."""
    clipped, steps = sum(each.clipped_steps for each in graded), sum(each.steps for each in graded)
    if 2 * clipped > steps:
        yield f"in {100 * clipped / steps:.0f} % of its control steps, actions were clipped to the limits"
    if len(graded) < _FEWEST or any(map(solved, graded)):
        return
    if all(each.motion.gripper_toggles == 0 for each in graded):
        yield f"its gripper never changed in {len(graded)} episodes"
    paths = [each.motion.path_length_m for each in graded]
    if (farthest := max((path for path in paths if path is not None), default=math.inf)) < _HARDLY_M:
        yield f"its arm moved at most {100 * farthest:.1f} cm in an episode"


def conclude_run(label: str, rate: Rate | None, n_episodes: int) -> str:
    """The success rate of a run with its interval; errors are not failures.

    With more errors than a verdict allows, the sentence begins with them.
    """
    if not n_episodes:
        return "No episode is recorded yet."
    n_errors = n_episodes - (rate.of if rate else 0)
    failed = f"{n_errors} of {pluralize(n_episodes, 'episode')} ended in an error"
    if rate is None:
        return f"No episode of {label} is graded: {failed}."
    between = f"95 % interval {_percent(rate.low)} to {_percent(rate.high)} %"
    solved = f"{label} solved {_percent(rate.percent)} % of {pluralize(rate.of, 'episode')} ({between})"
    if exceeds(n_errors, n_episodes):
        return f"Too many errors for a verdict: {failed}; of the others, {solved}."
    return f"{solved}."


def conclude(first: str, judged: Mapping[str, Judged]) -> str:
    """The conclusion of the comparisons of other runs, by name, with the first one."""
    if len(judged) == 1:
        ((label, (comparison, judgements)),) = judged.items()
        apart = "" if comparison.overall.paired else "; their episodes are not paired"
        return f"{_conclude_pair(first, label, comparison, judgements)}{apart}."
    return f"{_conclude_several(first, judged)}; the report compares each with {first}."


def _conclude_pair(a: str, b: str, comparison: Comparison, judgements: Judgements) -> str:
    pairs, success, time = comparison.overall, judgements.success, _time(b, comparison)
    episodes, interval = pairs.size, pairs.ci95
    if success.verdict is Verdict.TOO_MANY_ERRORS or interval is None:
        return success.sentence.rstrip(".")
    if pairs.agrees and comparison.actions.bitwise_equal and not time:
        return f"{b} and {a} acted alike, bit for bit: both solved {pairs.both} of {episodes}"
    rates = _against(pairs.b, pairs.a, pairs)
    if interval.low > 0 or interval.high < 0:
        words = "more" if interval.low > 0 else "fewer"
        within = f", though at most {success.margin:g} points" if interval.low > -success.margin else ""
        known = f"{b} solved significantly {words} episodes than {a}: {rates}"
        return f"{known}{within if interval.high < 0 else ''}" + (f"; {time}" if time else "")
    if success.verdict is Verdict.NON_INFERIOR:
        known = f"{b} is as good as {a} within {success.margin:g} points: {rates}"
        return known + (f"; {time}" if time else "")
    of_a, of_b = sum(pairs.a.solved), sum(pairs.b.solved)
    same = f"the same {of_a}" if of_a else "none"
    solved = f"both solved {same}" if pairs.agrees else f"{b} solved {of_b}, {a} {of_a}"
    if time:
        return f"{time}; {episodes} cannot tell the success rates apart ({solved})"
    times = " or in time to success" if comparison.time_ratio else ""
    return f"{episodes} cannot tell {b} and {a} apart in success ({solved}){times}"


def _time(b: str, comparison: Comparison, *, whose: str = "the") -> str:
    """How much faster or slower B was, if its interval says that it was either."""
    times = comparison.time_ratio
    if times is None or times.ci95 is None or times.ci95.low <= 1 <= times.ci95.high:
        return ""
    where = f"in the {pluralize(times.n_pairs, 'episode')} that both solved"
    if times.ratio < 1:
        return f"{b} reached the goal in {times.ratio:.2f} of {whose} time {where}"
    return f"{b} took {times.ratio:.2f} times as long to reach the goal {where}"


def _conclude_several(first: str, judged: Mapping[str, Judged]) -> str:
    """The best run against the first, corrected for their number (Holm), and the fastest one."""
    margin = next(iter(judged.values()))[1].success.margin
    verdicts = corrected({label: comparison.overall for label, (comparison, _) in judged.items()}, margin)
    others = {name: judged[name][0] for name, each in verdicts.items() if each is not Verdict.TOO_MANY_ERRORS}
    if not others:
        return "No verdict: too many episodes ended in an error"
    best = max(others, key=lambda name: others[name].overall.difference or 0.0)
    pairs = others[best].overall
    solved = _against(pairs.b, pairs.a, pairs)
    if all(each.overall.agrees for each in others.values()):
        runs = f"All {1 + len(judged)} runs"
        known = f"{runs} solved the same {pairs.both} of {pluralize(pairs.graded, 'episode')}"
    elif verdicts[best] is Verdict.SUPERIOR:
        known = f"{best} solved most, significantly more than {first}: {solved}"
    elif all(verdicts[name] is Verdict.INFERIOR for name in others):
        against = _against(pairs.a, pairs.b, pairs)
        known = f"{first} solved most, significantly more than the next, {best}: {against}"
    else:
        known = f"No run solved significantly more than {first}; the best other, {best}: {solved}"
    ratios = {name: each.time_ratio.ratio for name, each in others.items() if each.time_ratio}
    fastest = min(ratios, key=ratios.__getitem__, default=best)
    time = _time(fastest, others[fastest], whose=f"{first}'s") if ratios.get(fastest, 1.0) < 1 else ""
    return known + (f"; {time}" if time else "")


def _against(one: Outcomes, other: Outcomes, pairs: PairTable) -> str:
    return f"{_percent(one.percent)} % against {_percent(other.percent)} % of {pairs.size}"


def _percent(value: float | None) -> str:
    return percentage(value, 0)
