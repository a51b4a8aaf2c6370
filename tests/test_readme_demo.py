"""`python -m scripts.readme_demo`: from two runs to README's block, picture and clip."""

import dataclasses

import pytest
from PIL import Image

from configs.cli import run_app
from configs.errors import UsageError
from eval.records.schema import Share, TextScores
from scripts.pages import replace_block
from scripts.readme_demo import app
from tests.eval.conftest import evaluate
from tests.eval.rollout.test_variants import ASKED, Stage, begin

BEGIN, END = "<!-- demo: begin. Written by a command. -->", "<!-- demo: end -->"
PAGE = f"# Title\n\n{BEGIN}\nstale\n{END}\n\nThe rest.\n"


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Two finished runs with videos, turned into runs under a clock whose first one takes longer."""
    Stage(monkeypatch)
    begun = begin(tmp_path / "runs", ASKED.model_copy(update={"video": "all"}))
    evaluate(*begun)
    share = {"all": Share(hits=3, of=4), "f1": Share(hits=3, of=4)}
    late = TextScores(texts=4, not_graded=0, oracle=0, staleness_s=3.0, at_request=share, on_delivery=share)
    for run, seconds in zip((each.folder for each in begun), (8.0, 4.0), strict=True):
        manifest = run.read_manifest()
        clock = {"kind": "profile", "profile": {"device": "Jetson AGX Thor"}, "while_waiting": "continue"}
        protocol = {suite: {**world, "clock": clock} for suite, world in manifest["protocol"].items()}
        config = {**manifest["config"], "clock": "profile:jetson-thor", "while_waiting": "continue"}
        run.write_manifest({**manifest, "protocol": protocol, "config": config})
        for result in run.episodes().values():
            timed = {"simulated_s": seconds, "queries": 12, "texts": {"narration": late, "memory": late}}
            run.append(dataclasses.replace(result, **timed))
    return [each.folder.path for each in begun]


def test_two_runs_become_a_clip_and_a_table(tmp_path, runs):
    readme = tmp_path / "README.md"
    readme.write_text(PAGE)
    (tmp_path / "docs").mkdir()
    with pytest.raises(SystemExit) as stopped:
        run_app(app, [*map(str, runs), "--readme", str(readme)])
    assert stopped.value.code == 0
    page = readme.read_text()
    assert page.startswith(f"# Title\n\n{BEGIN}\n\n")
    assert page.endswith(f"{END}\n\nThe rest.\n")
    assert "stale" not in page
    for part in (
        "| `isolated` | 4 of 4 | 51 – 100 % | 8.0 s | 1.50 Hz | 75.0 → 75.0 % | 75.0 → 75.0 % | 750 ms |",
        "| `unified` | 4 of 4 | 51 – 100 % | 4.0 s | 3.00 Hz |",
        "the same 4 episodes, each played in both before the next; outcomes that differ in 0 of 4.",
        "each query takes as long as profile jetson-thor says (Jetson AGX Thor)",
    ):
        assert part in page
    with Image.open(tmp_path / "docs/rollout.webp") as clip:
        assert clip.n_frames >= 4


@pytest.mark.parametrize("page", ["# None\n", f"{END}\n{BEGIN}\n", PAGE * 2])
def test_a_page_without_its_two_markers_is_refused(page):
    with pytest.raises(UsageError, match="demo: begin"):
        replace_block(page, "demo", "new")
