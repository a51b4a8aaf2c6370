"""The bundled vocabulary is complete; prompts are openpi's, and one too long is cut."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import UsageError
from oxygen.model.config import TINY
from oxygen.robots import tokenizer
from oxygen.robots.tokenizer import CompactStatePrompt, InstructionPrompt, StatePrompt
from oxygen.robots.transforms import embodiment
from tests.sim_envs.vocabulary import ALL_TASKS

VOCABULARY = tokenizer.tiny()


@given(st.text().filter(lambda text: "\0" not in text and "▁" not in text))
def test_any_text_comes_back(text):
    assert VOCABULARY.decode(VOCABULARY.encode(text)) == text


def test_every_libero_task_fits_in_the_tiny_policys_prompt():
    robot = embodiment("libero_compact")
    state = np.zeros(robot.interface.observation.state_size)
    prompts = [robot.prompt.encode(task.language, state, VOCABULARY) for task in ALL_TASKS]
    assert VOCABULARY.vocab_size == TINY.vocab_size
    assert max(map(len, prompts)) <= TINY.max_prompt


def test_line_breaks_and_bytes_have_tokens_of_their_own_and_unknown_tokens_are_left_out():
    (newline,) = VOCABULARY.encode("\n")
    assert newline in VOCABULARY.encode("pick up\nthe bowl")
    assert len({VOCABULARY.byte(value) for value in range(256)}) == 256
    spelt = [VOCABULARY.byte(value) for value in "ß€".encode()]
    assert VOCABULARY.decode([*spelt, 250_000]) == "ß€"


def test_what_is_no_model_or_has_no_bytes_is_one_line(tmp_path, other_vocabulary):
    with pytest.raises(UsageError, match="no byte tokens"):
        other_vocabulary.byte(7)
    path = tmp_path / "some.model"
    with pytest.raises(UsageError, match="no SentencePiece model"):
        tokenizer.load(path)
    with pytest.raises(UsageError, match="directory"):
        tokenizer.load(tmp_path)
    for content in (b"", b"no model", VOCABULARY.serialized[:-100]):
        path.write_bytes(content)
        with pytest.raises(UsageError, match="SentencePiece model") as caught:
            tokenizer.load(path)
        assert str(path) in str(caught.value)


(NEWLINE,) = VOCABULARY.encode("\n")
STATE = np.linspace(-1.0, 1.0, 8)

instructions = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0▁"), max_size=60)


@pytest.mark.golden
def test_both_prompts_are_openpis(openpi_transforms):
    task, state = str(openpi_transforms["prompt.task"]), openpi_transforms["prompt.state"]
    assert tokenizer.clean_prompt(task) == str(openpi_transforms["prompt.without_state"])
    assert tokenizer.state_bins(state).tolist() == openpi_transforms["prompt.bins"].tolist()
    assert StatePrompt().text(task, state) == str(openpi_transforms["prompt.with_state"])


@given(st.floats(-1, 1, exclude_max=True))
def test_a_bin_holds_its_number(x):
    (number,) = tokenizer.state_bins(np.array([x]))
    assert 0 <= number <= 255
    assert -1 + number / 128 <= x < -1 + (number + 1) / 128


@pytest.mark.parametrize("language", ["", "  ", "Ünïcode 汉字 🤖", "pick_up\nthe bowl"])
def test_a_prompt_is_one_line_break_after_its_words(language):
    for prompt in (InstructionPrompt(), StatePrompt()):
        tokens = prompt.encode(language, STATE, VOCABULARY)
        assert (tokens[0], tokens.count(NEWLINE)) == (VOCABULARY.bos, 1)


@given(instructions, st.lists(st.floats(-2, 2), min_size=1, max_size=8))
def test_prompts_come_back_from_their_tokens_and_the_published_liberos_ignores_the_state(language, state):
    tokens = StatePrompt().encode(language, np.array(state), VOCABULARY)
    assert VOCABULARY.decode(tokens[1:]) == StatePrompt().text(language, np.array(state))
    tokens = InstructionPrompt().encode("pick up the bowl", np.array(state), VOCABULARY)
    assert VOCABULARY.decode(tokens[1:]) == "pick up the bowl\n"


def test_what_is_no_text_is_refused():
    for language, why in ((None, "NoneType"), (b"bowl", "bytes"), ("\ud800", "UTF-8")):
        with pytest.raises(UsageError, match=why):
            InstructionPrompt().encode(language, STATE, VOCABULARY)


@given(instructions, st.lists(st.floats(-1, 1, exclude_max=True), min_size=8, max_size=8))
def test_the_compact_prompt_says_each_number_in_one_token_of_its_own_bin(language, state):
    said = InstructionPrompt().encode(language, STATE, VOCABULARY)
    tokens = CompactStatePrompt().encode(language, np.array(state), VOCABULARY)
    assert tokens[: len(said)] == said
    assert tokens[len(said) :] == [*map(VOCABULARY.byte, tokenizer.state_bins(np.array(state)).tolist())]
    *_, below, above = CompactStatePrompt().encode("", np.array([-9.0, 9.0]), VOCABULARY)
    assert (below, above) == (VOCABULARY.byte(0), VOCABULARY.byte(255))


@given(st.text(st.sampled_from("abc bowl"), max_size=80), st.integers(10, 40))
def test_a_compact_prompt_that_is_too_long_loses_the_instructions_end_and_never_the_state(language, longest):
    whole = CompactStatePrompt().encode(language, STATE, VOCABULARY)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept = tokenizer.fitted(CompactStatePrompt(), language, STATE, VOCABULARY, longest=longest).tolist()
    assert len(kept) == min(longest, len(whole))
    assert kept[-9:] == whole[-9:] == [NEWLINE, *whole[-8:]]
    assert kept[:-9] == whole[: len(kept) - 9]
    assert len(caught) == (len(whole) > longest)


def test_openpis_prompts_lose_their_end_as_in_openpi():
    for prompt in (InstructionPrompt(), StatePrompt()):
        whole = prompt.encode(" bowl" * 30, STATE, VOCABULARY)
        with pytest.warns(UserWarning, match=f"prompt cut by {len(whole) - 10} of its {len(whole)} tokens: "):
            kept = tokenizer.fitted(prompt, " bowl" * 30, STATE, VOCABULARY, longest=10)
        assert kept.tolist() == whole[:10]
