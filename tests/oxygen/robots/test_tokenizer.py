"""The vocabulary that ships with the package: small, complete, reproducible."""

import importlib.resources
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import UsageError
from oxygen.model.config import TINY
from oxygen.robots import tokenizer
from oxygen.robots.transforms import embodiment
from oxygen.tools import train_tokenizer

TINY_VOCABULARY = tokenizer.tiny()


def test_training_again_gives_the_same_bytes():
    shipped = (importlib.resources.files("oxygen") / "assets/tiny.model").read_bytes()
    assert train_tokenizer.train() == shipped
    assert len(shipped) <= 100_000


@given(st.text().filter(lambda text: "\0" not in text and "▁" not in text))
def test_any_text_comes_back(text):
    assert TINY_VOCABULARY.decode(TINY_VOCABULARY.encode(text)) == text


def test_every_libero_task_fits_in_the_tiny_policys_prompt():
    tasks = train_tokenizer.tasks()
    assert len(tasks) > 100
    robot = embodiment("libero_compact")
    state = np.zeros(robot.interface.observation.state_size)
    prompts = [robot.prompt.encode(task, state, TINY_VOCABULARY) for task in tasks]
    assert TINY_VOCABULARY.vocab_size == TINY.vocab_size
    assert max(map(len, prompts)) <= TINY.max_prompt


def test_line_breaks_and_bytes_have_tokens_of_their_own_and_unknown_tokens_are_left_out():
    (newline,) = TINY_VOCABULARY.encode("\n")
    assert newline in TINY_VOCABULARY.encode("pick up\nthe bowl")
    assert len({TINY_VOCABULARY.byte(value) for value in range(256)}) == 256
    spelt = [TINY_VOCABULARY.byte(value) for value in "ß€".encode()]
    assert TINY_VOCABULARY.decode([*spelt, 250_000]) == "ß€"


def test_a_vocabulary_without_bytes_is_one_line():
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["abc"]), model_writer=model, vocab_size=7, minloglevel=2
    )
    with pytest.raises(UsageError, match="no byte tokens"):
        tokenizer.SentencePieceTokenizer(model.getvalue()).byte(7)


def test_what_is_no_model_is_one_line(tmp_path):
    path = tmp_path / "some.model"
    with pytest.raises(UsageError, match="no SentencePiece model"):
        tokenizer.load(path)
    with pytest.raises(UsageError, match="directory"):
        tokenizer.load(tmp_path)
    for content in (b"", b"no model", train_tokenizer.train()[:-100]):
        path.write_bytes(content)
        with pytest.raises(UsageError, match="SentencePiece model") as caught:
            tokenizer.load(path)
        assert str(path) in str(caught.value)
