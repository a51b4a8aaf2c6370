"""`python -m eval.droid`: `eval.run` with DROID's suite as its default."""

from configs.cli import run_app
from eval.run import build_app

app = build_app(
    "eval.droid",
    "Run a policy on DROID's station in one mode or several, and record success rates, progress, latency, "
    "texts and videos."
    "\n\nDefaults are the published protocol on suite droid_tabletop, which takes joint velocities; "
    "--suite droid_tabletop_jointpos takes absolute joint positions. Without any option of `What to run` or "
    "`Protocol` but clock and overlap, the small `demo_droid` preset runs instead: the bundled policy on "
    "three tasks, in the mode given and, to be compared with, in mode isolated. Initial states from 1000 on "
    "are sampled anew for every seed, as many as you like.",
    defaults={"suites": ("droid_tabletop",), "policy": "tiny_droid"},
    demo="demo_droid",
    smoke_preset="smoke_droid",
)

if __name__ == "__main__":
    run_app(app)
