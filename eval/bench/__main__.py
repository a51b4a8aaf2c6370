"""`python -m eval.bench`: OxyGen's experiment on any policy, and the floors of its stages."""

import os
import sys
import time
from collections.abc import Sequence

from configs.errors import UsageError
from configs.signals import ends_at_once
from eval.bench.options import Options, read

_INPUT_ERROR, _INTERRUPTED = 2, 130


def main(arguments: Sequence[str]) -> int:
    """Measure, and return the exit code.

    It is 0, 1 where modes differ in their actions, 2 for bad input (one line), 130 for Ctrl-C.
    """
    began = time.perf_counter()
    try:
        with ends_at_once():
            options = read(arguments)
            # Two processes share the device's memory in `parallel`, so neither may take all of it when it
            # starts. Whether that mode is asked for or not: how memory is had must not differ.
            os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
            return _run(options, began)
    except UsageError as error:
        sys.stderr.write(f"error: {error}\n")
        return _INPUT_ERROR
    except KeyboardInterrupt:
        return _INTERRUPTED


def _run(options: Options, began: float) -> int:
    from eval.bench.subject import find  # takes JAX, which --help does not need
    from oxygen.model.compile_cache import use_compile_cache

    subject = find(
        options.policy,
        random_weights=options.random_weights,
        dtype=options.dtype,
        prompt_tokens=options.prompt_tokens,
    )
    use_compile_cache()
    if options.roofline:
        from eval.bench.floors import report_floors

        return report_floors(options, subject)
    from eval.bench.experiment import run_experiment

    return run_experiment(options, subject, began=began)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
