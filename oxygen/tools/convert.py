"""`python -m oxygen.tools.convert SOURCE TARGET`: convert a checkpoint of a known policy to safetensors."""

import sys
from collections.abc import Sequence
from pathlib import Path

from configs.exits import OneLineParser, exit_code_of
from configs.paths import usable_file


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    parser = OneLineParser(prog="python -m oxygen.tools.convert", description=__doc__)
    parser.add_argument("source", help="a checkpoint: openpi's folder, safetensors, or a URL of either")
    parser.add_argument("target", type=Path, help="a new folder, or a new .safetensors file")
    parser.add_argument("--dtype", help="float32 or bfloat16; default: each tensor's own")
    parser.add_argument(
        "--model", help="the policy, or the one it was fine-tuned from; default: by sizes and norm stats"
    )
    parser.add_argument("--embodiment", help="the robot; default: that policy's")
    parser.add_argument("--tokenizer", help="a file or URL; default: that policy's")

    def run() -> None:
        options = parser.parse_args(arguments)
        if not options.target.exists():
            usable_file(options.target, "the target")
        from oxygen.presets.policies import evaluation_command, read_model_policy
        from oxygen.tools.conversion import convert  # JAX, which --help does not need
        from oxygen.weights.card import CARD

        file = convert(
            options.source,
            options.target,
            dtype=options.dtype,
            model=options.model,
            robot=options.embodiment,
            tokenizer=options.tokenizer,
        )
        sys.stdout.write(f"{file}: {file.stat().st_size / 1e6:.1f} MB\n")
        if (options.target / CARD).is_file():
            robot = str(read_model_policy(str(options.target / CARD)).embodiment)
            sys.stdout.write(f"The policy: {evaluation_command(str(options.target), robot)}\n")
        elif file != options.target:
            sys.stdout.write("No policy.yaml: give --model, and --tokenizer if that policy has none\n")

    return exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
