"""Actions with and without an adapter are the same bits in every mode; its texts are equal in all modes."""

import dataclasses

import numpy as np
import pytest

from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.language import LanguageTask
from oxygen.serving.scheduler import Mode
from oxygen.weights.adapter import AdapterSource
from tests.oxygen.conftest import SMALL, small_policy

pytestmark = pytest.mark.usefixtures("compiled_soon")

TASK = LanguageTask(name="memory", prompt="Memory: ", max_tokens=6)


def answers(mode, adapter):
    """Actions of three queries, and the text of each; unified decodes a text within its query."""
    engine = EngineConfig(mode=mode, slots=2, rows=1)
    policy = small_policy(engine, tasks=[TASK], adapter=adapter)
    rng, chunks, texts = np.random.default_rng(0), [], []
    policy.reset(0, 11)
    for _ in range(3):
        images = {name: rng.integers(0, 256, (16, 16, 3), np.uint8) for name in SMALL.cameras}
        observation = {"images": images, "state": np.zeros(8), "prompt": "open the drawer"}
        (actions,) = policy.act({0: observation}).values()
        (reply,) = policy.complete().values()
        chunks.append(actions.tobytes())
        texts += [text.text for text in reply.finished]
    policy.close()
    return chunks, texts


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["exact", "published"])
def test_actions_are_the_same_bits_in_every_mode(mask):
    adapter = AdapterSource(rank=4, mask=mask)
    without, silent = answers(Mode.ACTIONS, None)
    assert silent == []
    _, base_texts = answers(Mode.ISOLATED, None)
    found = {mode: answers(mode, adapter) for mode in Mode}
    assert all(chunks == without for chunks, _ in found.values())
    _, wanted = found[Mode.ISOLATED]
    assert wanted != base_texts
    assert found[Mode.PARALLEL][1] == found[Mode.SHARED][1] == wanted
    assert found[Mode.UNIFIED][1] == wanted[: len(found[Mode.UNIFIED][1])] != []


@pytest.mark.slow
def test_a_row_of_the_batch_does_not_change_its_text():
    adapter, texts = AdapterSource(rank=4, mask="published"), []
    for robots in (1, 2):
        engine = EngineConfig(mode=Mode.SHARED, slots=2, rows=2, robots=robots)
        config = dataclasses.replace(SMALL, prompt_buckets=(SMALL.max_prompt,))
        policy = small_policy(engine, config=config, tasks=[TASK], adapter=adapter)
        images = {name: np.full((16, 16, 3), 90, np.uint8) for name in SMALL.cameras}
        observation = {"images": images, "state": np.zeros(8), "prompt": "open the drawer"}
        policy.act(dict.fromkeys(range(robots), observation))
        texts.append([text.text for reply in policy.complete().values() for text in reply.finished])
    assert texts[1] == texts[0] * 2
