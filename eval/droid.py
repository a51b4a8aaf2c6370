"""`oxygen-eval droid`: `eval.run` with DROID's suite as its default."""

from configs.cli import run_app
from eval.run import Demo, build_app

app = build_app(
    "droid",
    "Run a policy on DROID's station, and record success rates, progress, latency, texts and videos."
    "\n\nWith a policy or a suite, the published protocol is played: suite droid_tabletop, which takes joint "
    "velocities, or droid_tabletop_jointpos, which takes absolute joint positions. Without any option of "
    "what to run, the demo is: the bundled policy on three tasks, in two modes. Initial states from 1000 on "
    "are sampled anew for every seed.",
    defaults={"suites": ("droid_tabletop",), "policy": "tiny_droid"},
    demo=Demo(preset="demo_droid", plays="three tasks of droid_tabletop", episodes=9, minutes=1.5),
    smoke_preset="smoke_droid",
)

if __name__ == "__main__":
    run_app(app)
