"""Language tasks in YAML: every kind of arrivals, sampling, and what is refused."""

import pytest
import yaml

from configs.errors import UsageError
from configs.language_task import LanguageTaskConfig
from configs.load import load
from oxygen.presets.language_tasks import language_task
from oxygen.robots import tokenizer
from oxygen.serving.language import Burst, EveryN, Poisson, RandomLength, stop_token
from oxygen.serving.requests import GREEDY, Sampling


@pytest.fixture
def read(tmp_path):
    def of(**content):
        file = tmp_path / "mine.yaml"
        file.write_text(yaml.safe_dump({"name": "mine", "prompt": "Say: ", "max_tokens": 9, **content}))
        return language_task(load(LanguageTaskConfig, str(file)))

    return of


def random_length(min_tokens, max_tokens, n=1):
    inner = {"kind": "every_n", "n": n}
    return {"kind": "random_length", "arrivals": inner, "min_tokens": min_tokens, "max_tokens": max_tokens}


@pytest.mark.parametrize(
    ("content", "arrivals"),
    [
        ({"kind": "every_n", "n": 4}, EveryN(4)),
        ({"kind": "burst", "n": 2, "every": 8}, Burst(n=2, every=8)),
        ({"kind": "poisson", "rate": 0.5, "seed": 3}, Poisson(rate=0.5, seed=3)),
        (random_length(4, 9, n=2), RandomLength(arrivals=EveryN(2), min_tokens=4, max_tokens=9, seed=0)),
    ],
)
def test_arrivals_are_built_by_kind(read, content, arrivals):
    assert read(arrivals=content).arrivals == arrivals


def test_by_default_a_task_is_requested_at_every_query_greedy_and_ended_by_the_end_token(read):
    assert (read().arrivals, read().sampling) == (EveryN(1), GREEDY)
    sampled = read(sampling={"temperature": 0.7, "top_k": 40})
    assert sampled.sampling == Sampling(temperature=0.7, top_k=40)
    vocabulary = tokenizer.tiny()
    assert stop_token(read(), vocabulary) == vocabulary.eos
    assert [stop_token(read(stop=stop), vocabulary) for stop in (".", "\n")] == [750, 4]
    with pytest.raises(UsageError, match=r"stop 'done' is 2 tokens \('d', 'one'\); give a single one"):
        stop_token(read(stop="done"), vocabulary)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"arrivals": {"kind": "evry_n", "n": 1}}, "did you mean 'every_n'"),
        ({"arrivals": {"kind": "every_n", "n": 0}}, "arrivals.every_n.n"),
        ({"arrivals": {"kind": "burst", "n": 2**16 + 1, "every": 1}}, "arrivals.burst.n"),
        ({"arrivals": {"kind": "burst", "n": 1, "evry": 2}}, "arrivals.burst.ev"),
        ({"arrivals": {"kind": "poisson", "rate": -1}}, "arrivals.poisson.rate"),
        ({"arrivals": random_length(9, 4)}, "max_tokens is 4"),
        ({"arrivals": random_length(9, 40)}, "up to 40 tokens, its max_tokens is 9"),
        ({"sampling": {"temperature": -1}}, "sampling.temperature"),
        ({"sampling": {"top_k": 0}}, "sampling.top_k"),
        ({"prompt": ""}, "prompt is ''"),
        ({"stop": ""}, "at least 1 character"),
    ],
)
def test_an_invalid_language_task_is_refused_in_one_line(read, content, said):
    with pytest.raises(UsageError, match=said) as refusal:
        read(**content)
    assert "\n" not in str(refusal.value)
