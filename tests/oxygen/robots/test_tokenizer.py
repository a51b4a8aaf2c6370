"""The vocabulary that ships with the package: small, complete, reproducible."""

import functools
import http.server
import importlib.resources
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import UsageError
from oxygen.model.config import TINY
from oxygen.robots import tokenizer
from oxygen.robots.transforms import LIBERO_COMPACT
from oxygen.tools import train_tokenizer

TINY_VOCABULARY = tokenizer.tiny()


def test_training_again_gives_the_same_bytes():
    shipped = (importlib.resources.files("oxygen") / "assets/tiny.model").read_bytes()
    assert train_tokenizer.train() == shipped
    assert len(shipped) <= 100_000


@given(st.text().filter(lambda text: "\0" not in text and "▁" not in text))
def test_any_text_comes_back(text):
    assert TINY_VOCABULARY.decode(TINY_VOCABULARY.encode(text)) == text


def test_a_line_break_is_one_token_of_its_own():
    (newline,) = TINY_VOCABULARY.encode("\n")
    assert newline not in TINY_VOCABULARY.encode("pick up the bowl")
    assert newline in TINY_VOCABULARY.encode("pick up\nthe bowl")


def test_every_libero_task_fits_in_the_tiny_policys_prompt():
    tasks = train_tokenizer.tasks()
    assert len(tasks) > 100
    state = np.zeros(LIBERO_COMPACT.interface.observation.state_size)
    prompts = [LIBERO_COMPACT.prompt.encode(task, state, TINY_VOCABULARY) for task in tasks]
    assert max(map(len, prompts)) <= TINY.max_prompt


def test_the_tiny_policy_has_an_embedding_for_every_token():
    assert TINY_VOCABULARY.vocab_size == TINY.vocab_size
    special = {TINY_VOCABULARY.bos, TINY_VOCABULARY.eos}
    assert len(special) == 2
    assert not special & set(TINY_VOCABULARY.encode("put the bowl on the plate"))


def test_every_byte_has_a_token_that_spells_it():
    tokens = [TINY_VOCABULARY.byte(value) for value in range(256)]
    assert len(set(tokens)) == 256
    assert TINY_VOCABULARY.decode([TINY_VOCABULARY.byte(value) for value in "ß€".encode()]) == "ß€"


def test_a_vocabulary_without_bytes_is_one_line():
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["abc"]), model_writer=model, vocab_size=7, minloglevel=2
    )
    with pytest.raises(UsageError, match="no byte tokens"):
        tokenizer.SentencePieceTokenizer(model.getvalue()).byte(7)


def test_tokens_outside_the_vocabulary_are_left_out():
    tokens = TINY_VOCABULARY.encode("put the bowl")
    assert TINY_VOCABULARY.decode([*tokens, 250_000]) == "put the bowl"


def test_an_absent_model_file_is_one_line(tmp_path):
    with pytest.raises(UsageError, match="no SentencePiece model"):
        tokenizer.load(tmp_path / "absent.model")
    path = tmp_path / "some.model"
    path.write_bytes(train_tokenizer.train())
    assert tokenizer.load(path).encode("bowl") == TINY_VOCABULARY.encode("bowl")


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_a_model_is_read_from_a_url_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("OXYGEN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "some.model").write_bytes(train_tokenizer.train())
    handler = functools.partial(QuietHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/some.model"
        assert tokenizer.load(url).encode("bowl") == TINY_VOCABULARY.encode("bowl")
        server.shutdown()
    assert tokenizer.load(url).vocab_size == TINY_VOCABULARY.vocab_size


def test_bytes_that_are_no_model_are_one_line(tmp_path):
    for content in (b"", b"no model", train_tokenizer.train()[:-100]):
        path = tmp_path / "some.model"
        path.write_bytes(content)
        with pytest.raises(UsageError, match="SentencePiece model") as caught:
            tokenizer.load(path)
        assert str(path) in str(caught.value)
    with pytest.raises(UsageError, match="directory"):
        tokenizer.load(tmp_path)
