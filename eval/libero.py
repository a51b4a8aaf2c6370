"""`oxygen-eval libero`: `eval.run` with LIBERO's suites as its default, and a demo."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from typing_extensions import override

from configs.cli import run_app
from configs.paths import absolute
from configs.schema import PROTOCOL, WHAT
from contracts.errors import UsageError
from eval.run import Demo, WorldOptions, build_app

SUITES = ("libero_spatial", "libero_object", "libero_goal", "libero_10")
"""The suites that papers report."""


class LiberoOptions(WorldOptions):
    """Options of LIBERO-plus and LIBERO-PRO.

    Attributes:
        libero_plus: A checkout of LIBERO-plus. Default: OXYGEN_LIBERO_PLUS, or what `oxygen-eval setup
            libero-plus` installed.
        libero_pro: A copy of LIBERO-PRO. Default: OXYGEN_LIBERO_PRO, or what `oxygen-eval setup libero-pro`
            unpacked.
        plus_instruction: What suites libero_plus_* tell the policy: vanilla (LIBERO's instruction; default),
            published (with the task's suffix, as the published runners do), or bddl (the text of the BDDL
            file). Perturbed instructions are told in any case.
        plus_noise: How their sensor noise is drawn: episode (from the episode's key; default), or published
            (from NumPy's global generator, after the draws of the reset).
    """

    libero_plus: Annotated[Path | None, WHAT] = None
    libero_pro: Annotated[Path | None, WHAT] = None
    plus_instruction: Annotated[Literal["published", "vanilla", "bddl"] | None, PROTOCOL] = None
    plus_noise: Annotated[Literal["episode", "published"] | None, PROTOCOL] = None

    @override
    def as_flags(self, suites: Sequence[str]) -> dict[str, Any]:
        for suite in suites:
            if re.fullmatch(r"libero_pro_\w+_env", suite):
                raise UsageError(
                    f"{suite}: LIBERO-PRO's perturbed environments were never released; give a suite "
                    "that ends in _lan, _swap, _object or _task"
                )
        # Worker processes inherit environment variables.
        copies = {"OXYGEN_LIBERO_PLUS": self.libero_plus, "OXYGEN_LIBERO_PRO": self.libero_pro}
        os.environ.update({name: str(absolute(path)) for name, path in copies.items() if path is not None})
        given = self.model_dump(include={"plus_instruction", "plus_noise"}, exclude_none=True)
        return {"environment": given} if given else {}


app = build_app(
    "libero",
    "Run a policy on LIBERO, and record success rates, latency, texts and videos."
    "\n\nWith --policy or --suite it plays the published protocol: libero_spatial, libero_object, "
    "libero_goal and libero_10, or the suites that --suite names (libero_90, libero_plus_* and libero_pro_*, "
    "too). Without options of the group What to run it plays the demo: the bundled policy, every task of one "
    "suite once, in two modes; `--config demo` changes it by further options. Initial states from 1000 on "
    "are sampled by LIBERO's own placement.",
    defaults={"suites": SUITES},
    worlds=LiberoOptions,
    demo=Demo(preset="demo", plays="ten tasks of libero_object", episodes=10, minutes=1),
)

if __name__ == "__main__":
    run_app(app)
