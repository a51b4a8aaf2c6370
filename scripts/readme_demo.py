"""`python -m scripts.readme_demo RUN OTHER`: README's demo, a clip and the table of two runs."""

import datetime as dt
import math
from pathlib import Path

from cyclopts import App

from configs.cli import run_app
from eval.media import EpisodePair, find_pair
from eval.metrics.success import summarize
from eval.records.reader import read_identity
from eval.records.schema import RunFolder
from eval.report import result_tables as columns
from eval.report.comparison import compare
from eval.report.comparison_verdict import judge_all
from eval.report.table import format_clock_of, in_markdown
from eval.report.table import to_markdown as table_markdown
from scripts.pages import replace_block
from videos.mp4 import save_clip, save_still

README = Path(__file__).parents[1] / "README.md"
_CLIP_WIDTH, _CLIP_BYTES = 880, 2_000_000
_PICTURES_HZ, _MAX_PICTURES, _LAST_MS = 10, 120, 2500
"""Pictures a second, at most so many in all; the last one, which shows the outcome, lasts longer."""

app = App(name="python -m scripts.readme_demo")


@app.default
def main(run: Path, other: Path, /, *, readme: Path = README) -> None:
    """Write the demo's block of README, `docs/rollout.jpg` and `docs/rollout.webp`.

    Args:
        run: Folder of a run on a clock on which time passes, with videos.
        other: Folder of a run of the same episodes in another mode.
        readme: The page whose block is replaced.
    """
    runs = RunFolder(run), RunFolder(other)
    pair = find_pair(*runs)
    picture = (
        "[![An episode of two runs side by side: camera, what is said, time and latency](docs/rollout.webp)]"
        "(docs/rollout.jpg)"
    )
    block = f"{picture}\n\n{to_markdown(*runs, pair.why)}"
    page = replace_block(readme.read_text(encoding="utf-8"), "demo", block)
    _write_pictures(pair, readme.parent / "docs")
    readme.write_text(page, encoding="utf-8")


def to_markdown(run: RunFolder, other: RunFolder, why: str) -> str:
    """Caption of the clip, a row for each run, verdicts, and how the runs were played."""
    shown, manifests = read_identity(run), [each.read_manifest() for each in (run, other)]
    comparison = compare(run, other)
    judged = judge_all(comparison, shown.margin, shown.time_margin)
    verdicts = "\n".join(f"- {in_markdown(each.sentence)}" for each in (judged.success, judged.time) if each)
    pairs = comparison.overall
    began, *_ = sorted(dt.datetime.fromisoformat(manifest["started"]) for manifest in manifests)
    *_, ended = sorted(dt.datetime.fromisoformat(manifest["finished"]) for manifest in manifests)
    minutes, seconds = divmod(round((ended - began).total_seconds()), 60)
    hardware = manifests[0]["attempts"][0]["hardware"]
    note = (
        f"`{comparison.a.mode}` and `{comparison.b.mode}`: the same {pairs.graded} episodes, each played in "
        f"both before the next; outcomes that differ in {pairs.only_a + pairs.only_b} of {pairs.graded}. "
        f"Simulated time passes while the policy computes: {in_markdown(format_clock_of(shown))}. Texts are "
        f"graded when they were requested → on delivery. Played on {hardware['cores']} cores "
        f"({in_markdown(hardware['processor'])}); {minutes} min {seconds} s from start to finish. Another "
        "processor may round the last bits otherwise, and a text differs where two tokens are almost "
        "equally likely."
    )
    caption = f"*`{shown.policy}`, assets {shown.assets.name}, {in_markdown(why)}*"
    numbers = [columns.N, columns.SUCCESS, columns.INTERVAL, columns.TIME, columns.QUERIES]
    numbers += [columns.text_column("narration"), columns.text_column("memory"), columns.STALENESS]
    rows = [(read_identity(each).mode, summarize(each.path)["overall"]) for each in (run, other)]
    table = table_markdown(columns.labelled("mode", numbers, [rows]))
    return "\n\n".join([caption, table, verdicts, note])


def _write_pictures(pair: EpisodePair, docs: Path) -> None:
    """A still at two thirds of the episode, and a clip."""
    last = pair.frames - 1
    apart = max(1, round(pair.control_hz / _PICTURES_HZ), math.ceil(last / _MAX_PICTURES))
    frames = [*range(apart // 2, last, apart), last]
    pictures = [picture for frame, picture in enumerate(pair.pictures()) if frame in frames]
    save_still(docs / "rollout.jpg", pictures[2 * len(pictures) // 3])
    lasting = [*[round(1e3 * apart / pair.control_hz)] * (len(pictures) - 1), _LAST_MS]
    save_clip(
        docs / "rollout.webp", pictures, milliseconds=lasting, width=_CLIP_WIDTH, most_bytes=_CLIP_BYTES
    )


if __name__ == "__main__":
    run_app(app)
