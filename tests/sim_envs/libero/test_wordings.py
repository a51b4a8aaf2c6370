"""Instructions in other words: the same things and places, and words held out that training never says."""

import collections

from oxygen.robots import tokenizer
from sim_envs.libero.tasks import SUITES, list_tasks
from sim_envs.libero.wordings import wordings
from sim_envs.suite import open_suite
from tests.sim_envs.vocabulary import ALL_TASKS

LONGEST = 22
"""Tokens of an instruction that the bundled policy has room for."""


VERBS = {"pick", "up", "put", "place", "take", "grab", "set", "goes", "go", "push", "slide", "shove", "stack"}
VERBS |= {"open", "pull", "get", "close", "closed", "shut", "turn", "switch", "power", "please"}
LITTLE_WORDS = {"and", "then", "it", "them", "they"}


def nouns(words: str) -> collections.Counter[str]:
    """The words of things and places, how often each."""
    return collections.Counter(word for word in words.split() if word not in VERBS | LITTLE_WORDS)


def test_every_task_can_be_said_in_other_words_of_the_same_things_and_places_none_of_them_twice():
    for task in ALL_TASKS:
        training, held_out = wordings(task.language, "training"), wordings(task.language, "held_out")
        assert training[0] == task.language
        assert len(training) >= 5
        assert len(held_out) == 3
        said = [*training, *held_out]
        assert len(set(said)) == len(said)
        for words in said:
            assert nouns(words) == nouns(task.language), words
            assert len(words) <= 1.7 * len(task.language)
            assert words == words.lower()


def test_training_never_says_what_is_held_out_but_says_its_words_of_the_same_task():
    suites = [open_suite(suite, assets="standins").training_wordings() for suite in SUITES]
    training = {instruction: shown for suite in suites for instruction, shown in suite.items()}
    said = {words for all_of_one in training.values() for words in all_of_one}
    assert set(training) == {task.language for task in ALL_TASKS}
    for task in ALL_TASKS:
        known = {word for words in training[task.language] for word in words.split()}
        for words in wordings(task.language, "held_out"):
            assert words not in said
            assert set(words.split()) <= known


def test_the_bundled_policy_has_room_for_every_wording():
    vocabulary = tokenizer.tiny()
    for task in (task for suite in SUITES[:3] for task in list_tasks(suite)):
        for words in (*wordings(task.language, "training"), *wordings(task.language, "held_out")):
            assert len(vocabulary.encode(words)) <= LONGEST
