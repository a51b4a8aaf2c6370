"""Language tasks that a model cannot serve are refused in one line, before anything is compiled."""

import pytest

from configs.errors import UsageError
from oxygen.policy.vector_policy import create_vector_policy
from oxygen.robots import tokenizer
from oxygen.serving.language import LanguageTask
from oxygen.serving.requests import Sampling
from tests.oxygen.conftest import SMALL


def test_to_draw_among_more_tokens_than_there_are_is_refused():
    sampling = Sampling(temperature=0.7, top_k=SMALL.vocab_size + 1)
    task = LanguageTask(name="narration", prompt="Narrate: ", max_tokens=4, sampling=sampling)
    with pytest.raises(UsageError, match="'narration': top_k is 769, the model has 768 tokens"):
        create_vector_policy(SMALL, weights=0, tokenizer=tokenizer.tiny(), tasks=[task])
