"""Prompts of training samples are composed as in rollouts, with true, late, own or no texts."""

import dataclasses

import numpy as np

from configs.feedback import Feedback
from oxygen.serving.language import LanguageTask
from oxygen.training.batches import PromptTexts, true_texts
from tests.oxygen.training.conftest import MODEL, RECIPE, VOCABULARY, changed, samples, training_batches

MEMORY = LanguageTask(
    name="memory",
    prompt="Remember: ",
    max_tokens=24,
    feedback=(Feedback(field="memory", format="Memory: {text}", empty="none"),),
)
FRAMES = 20


def episode(fed=None):
    """An episode of 20 frames, four a second, whose memory counts them, after another of five frames."""
    counted = tuple(f"lifted it {number} times" for number in range(5 + FRAMES))
    return dataclasses.replace(
        samples(5 + FRAMES),
        texts={"memory": counted, "narration": (*["lift: it"] * (4 + FRAMES), "")},
        frame_index=np.concatenate([np.arange(5), np.arange(FRAMES)]),
        fps=4.0,
        fed=fed,
    )


def prompts(row, task=MEMORY, fed=None, **recipe):
    """All prompts that a frame may have, without its instruction."""
    recipe = {"feedback_none": 0.0, "feedback_own": 0.0, **recipe}
    texts = PromptTexts(episode(fed), [task], changed(RECIPE, **recipe))
    rng = np.random.default_rng(0)
    drawn = {texts.prompt("lift it", row, rng) for _ in range(200)}
    return {prompt.removeprefix("lift it\nMemory: ") for prompt in drawn}


def test_true_texts_are_up_to_the_delay_old():
    assert prompts(15, feedback_delay_s=0.0) == {"lifted it 15 times"}
    assert prompts(15, feedback_delay_s=0.5) == {f"lifted it {number} times" for number in (13, 14, 15)}


def test_a_look_back_adds_to_the_delay_and_no_text_is_older_than_its_episode():
    late = dataclasses.replace(MEMORY, feedback=(dataclasses.replace(MEMORY.feedback[0], lookback_s=1.0),))
    assert prompts(15, late, feedback_delay_s=0.0) == {"lifted it 11 times"}
    assert prompts(6, feedback_delay_s=1.0) == {"lifted it 5 times", "lifted it 6 times", "none"}


def test_some_prompts_have_no_text_and_some_the_policys_own():
    fed = ({"memory": "lifted it twice"},) * (5 + FRAMES)
    shown = prompts(15, fed=fed, feedback_delay_s=0.0, feedback_none=0.3, feedback_own=0.3)
    assert shown == {"lifted it 15 times", "none", "lifted it twice"}
    unknown = prompts(15, feedback_delay_s=0.0, feedback_none=0.3, feedback_own=0.3)
    assert unknown == {"lifted it 15 times", "none"}


def test_a_task_with_two_fields_is_trained_on_the_answer_that_is_read():
    fields = (
        Feedback(field="memory", format="Memory: {text}", answer="Memory: {text}"),
        Feedback(field="subtask", format="Subtask: {text}", answer="Subtask: {text}"),
    )
    plan = LanguageTask(name="plan", prompt="Plan: ", max_tokens=24, feedback=fields)
    answers = true_texts(episode(), plan)
    assert answers[0] == "Memory: lifted it 0 times\nSubtask: lift: it"
    assert answers[-1] == ""
    assert prompts(15, plan, feedback_delay_s=0.0) == {"lifted it 15 times\nSubtask: lift it"}
    remember = dataclasses.replace(MEMORY, name="remember", feedback=fields[:1])
    assert true_texts(episode(), remember)[2] == "Memory: lifted it 2 times"


def test_a_batch_has_the_prompts_of_the_policy():
    """A prompt of training has the tokens that the transform makes of the composed prompt."""
    part = episode()
    model = dataclasses.replace(MODEL, prompt_buckets=(64,))
    recipe = changed(RECIPE, feedback_none=0.0, feedback_delay_s=0.0)
    batches = training_batches((part,), model=model, tasks=(MEMORY,), options=recipe)
    batch = batches.batch(0)
    read = [
        VOCABULARY.decode(tokens[1:length].tolist())
        for tokens, length in zip(np.asarray(batch.prompt), np.asarray(batch.length), strict=True)
    ]
    known = {f"{part.language[row]} Memory: {part.texts['memory'][row]}\n" for row in range(len(part))}
    assert set(read) <= known
    assert (np.asarray(batches.batch(0).prompt) == np.asarray(batch.prompt)).all()
