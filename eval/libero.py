"""`python -m eval.libero`: `eval.run` with LIBERO's suites as its default, and a demo."""

from configs.cli import run_app
from eval.run import build_app

SUITES = ("libero_spatial", "libero_object", "libero_goal", "libero_10")
"""The suites that papers report."""

app = build_app(
    "eval.libero",
    "Run a policy on LIBERO in one mode or several, and record success rates, latency, texts and videos."
    "\n\nDefaults are the published protocol; --suite takes libero_spatial, libero_object, libero_goal, "
    "libero_10 and libero_90, and the first four without it. Without any option of `What to run` or "
    "`Protocol` but clock and overlap, the small `demo` preset runs instead: the bundled policy, every task "
    "of one suite once, in the mode given and, to be compared with, in mode isolated. `--config demo` "
    "with options is the demo, changed by them. Initial states from 1000 on are sampled by LIBERO's own "
    "placement, without limit.",
    defaults={"suites": SUITES},
    demo="demo",
)

if __name__ == "__main__":
    run_app(app)
