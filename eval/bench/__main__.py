"""`oxygen-eval bench`: OxyGen's experiment on any policy."""

import os
import sys
from collections.abc import Sequence

from configs.exits import exit_code_of
from configs.paths import usable_file
from eval.bench.options import read


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark; returns the exit code.

    0; 1 if modes differ in their actions; 2 for bad input (one line); 130 for Ctrl-C.
    """

    def run() -> int:
        options = read(arguments)
        for option, file in {"--output": options.output, "--save-profile": options.save_profile}.items():
            if file is not None:
                usable_file(file, option)
        # Two processes share the device's memory in `parallel`, so neither may preallocate all of it. All
        # runs allocate alike, with or without that mode.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        from eval.bench.experiment import run_experiment  # imports JAX, which --help does not need
        from eval.bench.serving import find_model
        from oxygen.model.compile_cache import use_compile_cache

        model = find_model(
            options.policy,
            random_weights=options.random_weights,
            dtype=options.dtype,
            prompt_tokens=options.prompt_tokens,
        )
        use_compile_cache()
        return run_experiment(options, model)

    return exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
