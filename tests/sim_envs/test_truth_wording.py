"""Truth in words: what is written is read back, what is not ours is not read, and all is short enough."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.language_task import LanguageTaskConfig
from configs.load import load
from sim_envs.truth.ground_truth import Memory, Narration, Phase
from sim_envs.truth.nouns import PARTS
from sim_envs.truth.wording import WORDINGS, narrate, parse_memory, parse_narration, remember
from tests.sim_envs.vocabulary import ALL_TASKS, carried, fullest_memories, memories, narrations, tokens

WORDING = st.integers(0, WORDINGS - 1)


@given(narrations(), WORDING)
def test_a_narration_is_read_as_it_was_meant(narration, wording):
    assert parse_narration(narrate(narration, wording)) == narration


@given(memories(), WORDING)
def test_a_memory_is_read_as_it_was_meant(content, wording):
    memory = Memory(**content)
    assert parse_memory(remember(memory, wording)) == memory


@given(st.text() | st.text(alphabet="abcdefghijklmnopqrstuvwxyz ;.", max_size=60))
def test_any_text_can_be_given_and_nonsense_is_not_read(text):
    said = parse_narration(text)
    assert said is None or said.phase is Phase.DONE
    assert parse_memory(text) is None


@pytest.mark.parametrize("text", ["carrying the milk to the basket", " Carrying  the MILK to the basket. "])
def test_case_blanks_and_the_full_stop_do_not_matter(text):
    assert parse_narration(text) == Narration(phase=Phase.CARRY, object="milk", target="basket")


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_narration, ""),
        (parse_narration, "Carrying the spaceship to the basket."),
        (parse_narration, "Carrying the milk to the moon."),
        (parse_narration, "Opening the milk."),
        (parse_narration, "Placing the milk on the basket."),
        (parse_narration, "The milk is carried."),
        (parse_memory, ""),
        (parse_memory, "put the milk in the"),
        (parse_memory, "put the milk in the basket; the mi"),
        (parse_memory, "the milk is open"),
        (parse_memory, "the milk is on the table; the milk is on the floor"),
        (parse_memory, "opened the milk"),
    ],
)
def test_what_is_cut_off_makes_no_sense_or_is_outside_the_vocabulary_is_not_read(parse, text):
    assert parse(text) is None


def test_every_text_of_every_task_fits_its_language_task():
    limits = {name: load(LanguageTaskConfig, name).max_tokens for name in ("narration", "memory")}
    said_of = [said for task in ALL_TASKS for said in carried(task)]
    told = [memory for task in ALL_TASKS for memory in fullest_memories(task)]
    said_of += [
        Narration(phase=phase, object=part)
        for part in PARTS
        for phase in (Phase.APPROACH, Phase.OPEN, Phase.TURN_OFF, Phase.RETREAT)
    ]
    for wording in range(WORDINGS):
        assert max(tokens(narrate(said, wording)) for said in said_of) <= limits["narration"]
        assert max(tokens(remember(memory, wording)) for memory in told) <= limits["memory"]
