"""The example of docs/training.md: whoever copies it trains."""

import re
from pathlib import Path

import numpy as np

from oxygen.training import run
from oxygen.training.lessons import Lessons
from oxygen.training.statistics import measure, norms_of
from oxygen.transforms import Transform, embodiment

DOCUMENT = Path(__file__).parents[3] / "docs/training.md"


def test_the_documented_example_makes_batches_of_its_recordings(monkeypatch):
    begun = []
    monkeypatch.setattr(run, "train", lambda *given: begun.append(given))
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, str(DOCUMENT), "exec"), {})  # noqa: S102
    ((_, training, mixture, vocabulary),) = begun
    lessons = Lessons(
        mixture,
        model=training.model,
        transform=Transform(embodiment=embodiment(training.embodiment), norms=norms_of(measure(mixture))),
        tokenizer=vocabulary,
        tasks=training.tasks,
        recipe=training.recipe,
    )
    batch = lessons.batch(0)
    assert batch.images.shape == (64, 2, training.model.image_size, training.model.image_size, 3)
    assert np.asarray(batch.valid).all()
    assert np.asarray(batch.graded).any()
