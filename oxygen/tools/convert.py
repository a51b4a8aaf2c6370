"""`python -m oxygen.tools.convert SOURCE TARGET`: any checkpoint of a known policy becomes safetensors."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from configs.exits import OneLineParser, exit_code_of
from configs.paths import usable_file


def main(arguments: Sequence[str]) -> int:
    """Convert what the command line names; returns the exit code."""
    parser = OneLineParser(prog="python -m oxygen.tools.convert", description=__doc__)
    parser.add_argument("source", help="a checkpoint: openpi's folder, safetensors, or a URL of either")
    parser.add_argument("target", type=Path, help="a new folder, or a new .safetensors file")
    parser.add_argument("--dtype", help="cast to float32 or bfloat16; by default every tensor keeps its type")
    parser.add_argument(
        "--model", help="the policy it is, or was fine-tuned from; by default what sizes and norm stats tell"
    )
    parser.add_argument("--embodiment", help="the robot it acts in; by default that policy's own")
    parser.add_argument("--tokenizer", help="a file or URL; by default that policy's own")
    return exit_code_of(lambda: _run(parser.parse_args(arguments)))


def _run(options: argparse.Namespace) -> int:
    if not options.target.exists():
        usable_file(options.target, "the target")
    from oxygen.tools.conversion import convert  # JAX, which --help does not need

    file = convert(
        options.source,
        options.target,
        dtype=options.dtype,
        model=options.model,
        robot=options.embodiment,
        tokenizer=options.tokenizer,
    )
    sys.stdout.write(f"{file}: {file.stat().st_size / 1e6:.1f} MB\n")
    if file != options.target:
        sys.stdout.write(_use_of(options.target))
    return 0


def _use_of(folder: Path) -> str:
    from oxygen.weights.card import CARD

    if (folder / CARD).is_file():
        return f"The policy: python -m eval.libero --policy {folder}\n"
    return "No policy.yaml: name a --model whose parameters these are, and a --tokenizer if it has none\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
