"""Train the tiny policy's SentencePiece model: `python -m oxygen.tools.train_tokenizer [OUT]`.

The corpus is the instructions of LIBERO's tasks, and sentences in which a robot narrates.
"""

import importlib.resources
import io
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from configs.exits import OneLineParser, exit_code_of
from configs.paths import usable_file

_BUNDLED = Path(__file__).parents[1] / "assets/tiny.model"

VOCAB_SIZE = 768
"""256 byte tokens, control tokens, and pieces of words."""

_STATE = "Task: 0 1 2 3 4 5 6 7 8 9, State: ;"


def tasks() -> list[str]:
    """The instructions of LIBERO's 130 tasks, by their names and by their definitions."""
    return _lines("libero_tasks.txt")


def _lines(name: str) -> list[str]:
    return (importlib.resources.files("oxygen") / "assets" / name).read_text(encoding="utf-8").splitlines()


def things(sentences: Sequence[str]) -> list[str]:
    """The noun phrases of the tasks: from `the` to the next preposition or conjunction."""
    joint = r" (?:and|on|in|to|at|of|under|from|next|between)\b"
    found = set()
    for sentence in sentences:
        found |= set(re.findall(rf"the ((?:(?!{joint}).)+)", sentence))
    return sorted(found)


def corpus() -> Iterator[str]:
    """The sentences to train on, in a fixed order."""
    sentences = tasks()
    names = things(sentences)
    yield from sentences
    yield _STATE
    places = itertools.cycle(reversed(names))
    # Sentences in which a robot narrates, with placeholders `{thing}` and `{place}`.
    for template, name in itertools.product(_lines("robot_sayings.txt"), names):
        yield template.format(thing=name, place=next(places))


def train() -> bytes:
    """The serialized model."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=corpus(),
        model_writer=model,
        model_type="bpe",
        vocab_size=VOCAB_SIZE,
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        byte_fallback=True,
        user_defined_symbols=["\n"],
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        split_digits=True,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def main(arguments: Sequence[str]) -> int:
    """Train and write the model; returns the exit code."""
    parser = OneLineParser(prog="python -m oxygen.tools.train_tokenizer", description=__doc__)
    parser.add_argument("out", type=Path, nargs="?", default=_BUNDLED, help=f"default: {_BUNDLED}")

    def run() -> None:
        out: Path = parser.parse_args(arguments).out
        usable_file(out, "the output")
        out.write_bytes(train())
        sys.stdout.write(f"{out}: {out.stat().st_size} bytes\n")

    return exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
