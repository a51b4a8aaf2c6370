"""Samples of datasets and recordings, mixtures and statistics; batches, prompted as in rollouts."""

import dataclasses
import json
from pathlib import Path

import jaxtyping
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import UsageError
from contracts.prompt import PromptField
from eval.collect.episode import png_cells
from oxygen.model import config
from oxygen.model.config import PRESETS
from oxygen.robots.images import resized
from oxygen.robots.norms import QuantileNorm, read_statistics, write_statistics
from oxygen.robots.transforms import LIBERO, Transform
from oxygen.serving.language import LanguageTask
from oxygen.training import checkpoint
from oxygen.training.batches import PromptTexts, TrainingBatches, text_targets, true_texts
from oxygen.training.samples import Recording, Samples, measure, shuffled_rows
from tests.oxygen.training.conftest import (
    MODEL,
    RECIPE,
    TASKS,
    VOCABULARY,
    changed,
    samples,
    training_batches,
)


@given(seed=st.integers(0, 99), size=st.integers(1, 20), total=st.integers(1, 30))
def test_every_epoch_shows_every_frame_once(seed, size, total):
    batches = -(-3 * total // size)
    rows = np.concatenate([shuffled_rows(seed, batch, size, total) for batch in range(batches)])
    for epoch in range(3):
        assert sorted(rows[epoch * total : (epoch + 1) * total]) == list(range(total))


def test_a_mixture_concatenates_its_parts():
    parts = samples(5, seed=0), samples(3, seed=1)
    mixture = Samples.joined(parts)
    assert len(mixture) == 8
    rows = np.array([7, 0, 5, 4, 5])
    whole = np.concatenate([part.images[0] for part in parts])
    np.testing.assert_array_equal(mixture.pixels(rows), whole[rows])
    np.testing.assert_array_equal(mixture.state[5:], parts[1].state)
    assert mixture.texts["narration"][5:] == parts[1].texts["narration"]
    assert mixture.language[:5] == parts[0].language
    with pytest.raises(UsageError, match="datasets do not match"):
        Samples.joined((samples(3), samples(3, horizon=20)))


def broken(**arrays):
    """Good samples, some of their arrays changed by a function."""
    good = samples(4)
    before = {"images": good.images[0], "state": good.state, "actions": good.actions, "valid": good.valid}
    after = {name: change(before[name]) for name, change in arrays.items()}
    after |= {"images": (after["images"],)} if "images" in after else {}
    return dataclasses.replace(good, **after)


def with_value(array, value):
    array = array.copy()
    array[2, ..., -1] = value
    return array


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": lambda a: a[:3]}, r"columns of \[3, 4, 4"),
        ({"images": lambda a: a.astype(np.float32) / 255}, r"images: float32 of \(4, 2, 28, 28, 3\)"),
        ({"images": lambda a: a[:, 0]}, r"images: uint8 of \(4, 28, 28, 3\)"),
        ({"images": lambda a: a[:, :, :20]}, "side, side, 3"),
        ({"images": lambda a: np.moveaxis(a, -1, 2)}, "side, side, 3"),
        ({"state": lambda a: with_value(a, np.nan)}, "state: frame 2 holds nan"),
        ({"state": lambda a: a[:, None]}, r"state: float32 of \(4, 1, 8\)"),
        ({"state": lambda a: a.astype(np.int32)}, "state: int32"),
        ({"actions": lambda a: with_value(a, -np.inf)}, "actions: frame 2 holds -inf"),
        ({"actions": lambda a: a[:, 0]}, r"\(frames, steps, channels\)"),
        ({"valid": lambda a: a.astype(np.int64)}, "valid: int64"),
        ({"valid": lambda a: a[:, :4]}, r"valid: bool of \(4, 4\).*\(4, 12\)"),
    ],
)
def test_invalid_arrays_are_refused(arrays, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as outside of tests
    with pytest.raises(UsageError, match=message):
        broken(**arrays)


def test_samples_must_fit_the_model_and_its_tasks():
    for images in (lambda a: a[:, :1], lambda a: a[:, :, :14, :14]):
        with pytest.raises(UsageError, match="small-for-training takes image, wrist_image at 28x28"):
            training_batches(parts=(broken(images=images),))
    without = dataclasses.replace(samples(4), texts={"memory": ("Done.",) * 4})
    with pytest.raises(UsageError, match="'narration'"):
        training_batches(parts=(without,))


def test_a_batch_equals_the_policys_own_inputs():
    part = samples(8)
    data = training_batches()
    batch, rows = data.batch(3), shuffled_rows(RECIPE.seed, 3, RECIPE.batch, 8)
    transform = Transform.of(LIBERO, measure(part, LIBERO))
    for place, row in enumerate(rows):
        images = dict(zip(MODEL.cameras, part.images[0][row], strict=True))
        observation = {"images": images, "state": part.state[row], "prompt": part.language[row]}
        served = transform.inputs(observation, VOCABULARY, MODEL)
        np.testing.assert_array_equal(batch.images[place], served.images[0])
        np.testing.assert_array_equal(batch.prompt[place][: batch.length[place]], served.prompt[0])
        restored = transform.outputs(np.asarray(batch.actions[place]), part.state[row])
        np.testing.assert_allclose(restored, part.actions[row, : MODEL.horizon], atol=1e-5)


def test_a_batch_is_a_function_of_seed_and_number():
    model = dataclasses.replace(MODEL, prompt_buckets=(64,))

    def batch(seed, number):
        options = changed(RECIPE, state_noise=0.3, seed=seed)
        data = training_batches(options=options, embodiment="libero_state", model=model)
        return np.asarray(data.batch(number).prompt).tobytes()

    assert batch(0, 5) == batch(0, 5)
    assert len({batch(0, 5), batch(0, 6), batch(1, 5)}) == 3


def prompts_of(data: TrainingBatches, number: int) -> list[str]:
    """The prompts of a batch, read back from their tokens."""
    batch = data.batch(number)
    lines = zip(np.asarray(batch.prompt), np.asarray(batch.length), strict=True)
    return [VOCABULARY.decode(line[1:length].tolist()).strip() for line, length in lines]


def test_the_wording_of_an_instruction_is_sampled_anew_in_every_batch():
    soup = ("pick up the alphabet soup", "take the alphabet soup", "get the alphabet soup")

    def drawn(seed):
        data = training_batches(options=changed(RECIPE, seed=seed), wordings={soup[0]: soup})
        return [prompts_of(data, number) for number in range(20)]

    batches = drawn(0)
    assert {line for batch in batches for line in batch if "soup" in line} == set(soup)
    assert {line for batch in batches for line in batch if "milk" in line} == {"pick up the milk"}
    assert drawn(0) == batches != drawn(1)


def test_rows_without_texts_are_frames_that_have_actions():
    whole = samples(8)
    valid = whole.valid.copy()
    valid[::2] = False
    parts = (dataclasses.replace(whole, valid=valid),)
    data = training_batches(options=changed(RECIPE, text_rows=2), parts=parts)
    batches = [np.asarray(data.batch(number).valid).any(axis=1) for number in range(8)]
    assert all(acting[2:].all() for acting in batches)
    with_text = np.concatenate([acting[:2] for acting in batches])
    assert with_text.mean() == 0.5, "texts are sampled from all frames"


def test_targets_follow_the_suffix_and_end_with_the_stop_token_or_at_max_tokens():
    task = dataclasses.replace(TASKS[0], max_tokens=3)
    tokens, targets, mask = text_targets(task, ["Grasping the alphabet soup."], VOCABULARY)[0]
    suffix = VOCABULARY.encode(task.prompt)
    assert tokens[: len(suffix)].tolist() == suffix
    assert np.flatnonzero(mask).tolist() == [len(suffix) - 1 + number for number in range(3)]
    assert VOCABULARY.eos not in targets[mask == 1]
    line_break, full_stop = (VOCABULARY.encode(stop)[0] for stop in ("\n", "."))
    ends = {None: [full_stop, VOCABULARY.eos], "\n": [full_stop, line_break], ".": [full_stop]}
    for stop, last in ends.items():
        task = dataclasses.replace(TASKS[0], stop=stop)
        _, targets, mask = text_targets(task, ["Grasping the soup."], VOCABULARY)[0]
        message = targets[mask == 1].tolist()
        assert message[-len(last) :] == last
        assert message.count(last[-1]) == 1


def test_statistics_are_of_valid_actions_and_are_read_as_written(tmp_path):
    part = samples(50)
    measured = measure(part, LIBERO)
    wild = np.where(part.valid[..., None], part.actions, 1e6).astype(np.float32)
    assert measure(dataclasses.replace(part, actions=wild), LIBERO) == measured
    write_statistics(tmp_path / "assets" / "norm_stats.json", measured)
    assert read_statistics(tmp_path / "assets" / "norm_stats.json", state=8, actions=7) == measured


def test_a_channel_that_hardly_moves_keeps_its_few_movements_in_range():
    part = samples(1000)
    actions = part.actions.copy()
    actions[..., 3] = 0.0
    actions[17, :, 3] = 0.5
    actions[..., 4] = 0.25
    norm = QuantileNorm.of(measure(dataclasses.replace(part, actions=actions), LIBERO)["actions"])
    normalised = norm.normalise(actions)
    assert np.abs(normalised[..., 3]).max() <= 1
    np.testing.assert_allclose(normalised[..., 4], 0, atol=1e-5)
    np.testing.assert_allclose(norm.restore(normalised), actions, atol=1e-6)


MEMORY = LanguageTask(
    name="memory",
    prompt="Remember: ",
    max_tokens=24,
    feedback=(PromptField(field="memory", format="Memory: {text}", empty="none"),),
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
        PromptField(field="memory", format="Memory: {text}", answer="Memory: {text}"),
        PromptField(field="subtask", format="Subtask: {text}", answer="Subtask: {text}"),
    )
    plan = LanguageTask(name="plan", prompt="Plan: ", max_tokens=24, feedback=fields)
    answers = true_texts(episode(), plan)
    assert answers[0] == "Memory: lifted it 0 times\nSubtask: lift: it"
    assert answers[-1] == ""
    assert prompts(15, plan, feedback_delay_s=0.0) == {"lifted it 15 times\nSubtask: lift it"}
    remember = dataclasses.replace(MEMORY, name="remember", feedback=fields[:1])
    assert true_texts(episode(), remember)[2] == "Memory: lifted it 2 times"


def test_a_batch_has_the_prompts_of_the_policy():
    part = episode()
    model = dataclasses.replace(MODEL, prompt_buckets=(64,))
    recipe = changed(RECIPE, feedback_none=0.0, feedback_delay_s=0.0)
    batches = training_batches((part,), model=model, tasks=(MEMORY,), options=recipe)
    known = {f"{part.language[row]} Memory: {part.texts['memory'][row]}" for row in range(len(part))}
    assert set(prompts_of(batches, 0)) <= known


EXAMPLE = Path(__file__).parents[3] / "examples/train_on_lerobot.py"
STEPS = 5


def recording(seed: int = 0, *, steps: int = STEPS, **changed) -> Recording:
    """An episode with numbered actions and landscape images."""
    rng = np.random.default_rng(seed)
    cameras, shape = ("spare", *MODEL.cameras), (steps, 20, 30, 3)
    content = {
        "images": {camera: rng.integers(0, 256, shape, dtype=np.uint8) for camera in cameras},
        "state": rng.normal(size=(steps, 8)),
        "actions": np.repeat(np.arange(steps, dtype=np.float64)[:, None], 7, axis=1),
        "language": f"errand {seed}",
        "texts": {"narration": [f"Step {step}." for step in range(steps)]},
    }
    return Recording(**{**content, **changed})


def test_a_frame_has_the_next_actions_of_its_episode_and_the_models_cameras_resized():
    episode = recording()
    found = Samples.from_episodes(iter([episode]), MODEL)
    ahead = np.arange(STEPS)[:, None] + np.arange(MODEL.horizon)
    np.testing.assert_array_equal(found.valid, ahead < STEPS)
    np.testing.assert_array_equal(found.actions[..., 0], np.minimum(ahead, STEPS - 1))
    assert found.actions.dtype == np.float32
    for step in range(STEPS):
        for place, camera in enumerate(MODEL.cameras):
            seen = resized(episode.images[camera][step], MODEL.image_size)
            np.testing.assert_array_equal(found.images[0][step, place], seen)


def test_episodes_are_concatenated_and_no_chunk_reaches_into_the_next():
    found = Samples.from_episodes([recording(0), recording(1, steps=4)], MODEL, every=2)
    assert found.language == ("errand 0",) * 3 + ("errand 1",) * 2
    assert found.texts["narration"] == ("Step 0.", "Step 2.", "Step 4.", "Step 0.", "Step 2.")
    left = np.minimum([5, 3, 1, 4, 2], MODEL.horizon)
    np.testing.assert_array_equal(found.valid.sum(axis=1), left)
    np.testing.assert_array_equal(found.state[3:], recording(1, steps=4).state[::2].astype(np.float32))
    timed = Samples.from_episodes([recording(0), recording(1, steps=4)], MODEL, every=2, control_hz=20.0)
    assert (timed.frame_index.tolist(), set(timed.fps.tolist())) == ([0, 1, 2, 0, 1], {10.0})
    with pytest.raises(UsageError, match="give `control_hz` to Samples"):
        PromptTexts(found, [MEMORY], RECIPE)


def test_mismatched_recordings_are_refused():
    with pytest.raises(UsageError, match=r"'errand 0'.*'narration': 1.*the same number"):
        recording(texts={"narration": ["Done."]})
    with pytest.raises(UsageError, match="no episodes"):
        Samples.from_episodes([], MODEL)
    with pytest.raises(UsageError, match="episodes do not match"):
        Samples.from_episodes([recording(), recording(texts={})], MODEL)
    with pytest.raises(UsageError, match="lacks 'image'"):
        Samples.from_episodes([recording(images={"left": np.zeros((STEPS, 9, 9, 3), np.uint8)})], MODEL)


def write_lerobot(root: Path, episodes: list[Recording]) -> None:
    """A dataset of LeRobot's version 2.0, as openpi's conversion of LIBERO writes it."""
    (root / "data/chunk-000").mkdir(parents=True)
    (root / "meta").mkdir()
    tasks = [{"task_index": number, "task": each.language} for number, each in enumerate(episodes)]
    (root / "meta/tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    for number, episode in enumerate(episodes):
        columns = {camera: png_cells(episode.images[camera]) for camera in MODEL.cameras}
        columns |= {"state": episode.state.tolist(), "actions": episode.actions.tolist()}
        columns |= {"task_index": [number] * len(episode)}
        pq.write_table(pa.table(columns), root / f"data/chunk-000/episode_{number:06d}.parquet")


@pytest.mark.slow
def test_the_example_trains_on_a_lerobot_dataset(tmp_path, monkeypatch, capsys):
    """The example as it is, with a small model and two steps of four samples."""
    model = dataclasses.replace(MODEL, name="small-for-recordings", prompt_buckets=(32,))
    monkeypatch.setitem(PRESETS, model.name, model)
    monkeypatch.setattr(config, "TINY", model)
    monkeypatch.chdir(tmp_path)
    write_lerobot(tmp_path / "my_dataset", [recording(seed) for seed in range(2)])
    example = EXAMPLE.read_text(encoding="utf-8")
    short = example.replace("steps=5000,", "steps=2, batch=4,")
    assert short != example
    exec(compile(short, str(EXAMPLE), "exec"), {})  # noqa: S102
    assert checkpoint.newest(Path("runs/train/mine/checkpoints")).name == "step_0000002"
    assert capsys.readouterr().out.startswith("2 {")
