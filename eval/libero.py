"""`oxygen-eval libero`: `eval.run` with LIBERO's suites as its default, and a demo."""

from configs.cli import run_app
from eval.run import Demo, build_app

SUITES = ("libero_spatial", "libero_object", "libero_goal", "libero_10")
"""The suites that papers report."""

app = build_app(
    "libero",
    "Run a policy on LIBERO, and record success rates, latency, texts and videos."
    "\n\nWith --policy or --suite it plays the published protocol: libero_spatial, libero_object, "
    "libero_goal and libero_10, or the suites that --suite names (libero_90, too). Without options of the "
    "group What to run it plays the demo: the bundled policy, every task of one suite once, in two modes; "
    "`--config demo` changes it by further options. Initial states from 1000 on are sampled by LIBERO's own "
    "placement.",
    defaults={"suites": SUITES},
    demo=Demo(preset="demo", plays="ten tasks of libero_object", episodes=10, minutes=1),
)

if __name__ == "__main__":
    run_app(app)
