"""Policies by presets or checkpoints: what acts, what it writes, what is refused, and what conforms."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from configs.load import load
from configs.schema import PolicyConfig, RunConfig
from configs.training import TrainConfig
from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.interface import Camera
from contracts.observation import Observation
from eval.policies.base import Policy
from eval.policies.engine import EnginePolicy
from eval.policies.interprocess import ImageBlock
from eval.policies.opening import open_policies
from eval.policies.resolved import resolve_policy
from eval.policies.scripted import open_scripted
from eval.records.protocol import format_inputs
from eval.rollout.plan import EpisodePlan, TaskPlan
from eval.rollout.prepare import check_playable
from eval.testing import check_policy
from oxygen.model import params
from oxygen.model.config import PRESETS, TINY
from oxygen.robots import tokenizer
from oxygen.robots.conventions import LIBERO
from oxygen.serving.language import LanguageTask
from oxygen.tools.convert import main
from oxygen.training import checkpoint
from oxygen.training.config import TrainingConfig
from oxygen.weights.source import CARD, RECORD
from sim_envs.fake import FakeWorld
from tests.eval.doubles import FakePolicy, libero_object
from tests.oxygen.weights.test_weights import save_orbax

pytestmark = pytest.mark.usefixtures("compiled_soon")

KEY = EpisodeKey(suite="libero_object", task_id=0, init_id=0, seed=7)
SILENT = {"mode": "actions", "language_tasks": ()}
"""Nothing is said, and nothing compiled for it."""


def moments(size, half_range):
    """Normalization statistics of `size` numbers."""
    edges = {"q01": [-half_range] * size, "q99": [half_range] * size}
    return {"mean": [0.0] * size, "std": [1.0] * size, **edges}


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    """A policy of ours as openpi publishes its own: Orbax parameters, norm stats, a tokenizer."""
    folder = tmp_path_factory.mktemp("checkpoint")
    save_orbax(folder / "params", params.random_params(TINY, 0))
    stats = folder / "assets" / "physical-intelligence" / "libero" / "norm_stats.json"
    stats.parent.mkdir(parents=True)
    stats.write_text(json.dumps({"norm_stats": {"state": moments(8, 1.0), "actions": moments(7, 0.5)}}))
    file = folder / "mine.yaml"
    content = {
        "name": "mine",
        "kind": "oxygen",
        "description": "A checkpoint on disk.",
        "model": "tiny",
        "embodiment": "libero",
        "weights": str(folder),
        "tokenizer": "oxygen/assets/tiny.model",
    }
    file.write_text(yaml.safe_dump(content))
    return str(file)


def changed(file, folder, **changes):
    """The YAML file with changes, in another folder."""
    target = folder / Path(file).name
    target.write_text(yaml.safe_dump({**yaml.safe_load(Path(file).read_text(encoding="utf-8")), **changes}))
    return str(target)


def policy_of(config: RunConfig) -> Policy:
    """The policy, in a world that it does not read."""
    (served,) = open_policies(resolve_policy(config), [config])
    return served.in_world(libero_object(), FakeWorld())


def observed() -> Observation:
    return FakeWorld(image_size=64).observe()


def actions_of(config: RunConfig) -> np.ndarray:
    """What a policy with a model does in the first query of an episode."""
    policy = policy_of(config)
    assert isinstance(policy.batch, EnginePolicy)
    policy.reset(KEY)
    return policy.act(observed())


@pytest.fixture(scope="module")
def untrained_actions(tmp_path_factory):
    """What random weights do with actions that span the whole range."""
    file = tmp_path_factory.mktemp("untrained") / "untrained.yaml"
    file.write_text("{name: untrained, kind: oxygen, model: tiny, embodiment: libero}")
    return actions_of(RunConfig(policy=str(file), **SILENT))


def test_a_checkpoint_is_loaded_with_its_own_statistics(preset, untrained_actions):
    """Its weights are random ones, and its actions span half the range: so they are half as large."""
    trained = actions_of(RunConfig(policy=preset, **SILENT))
    np.testing.assert_allclose(trained, untrained_actions / 2, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_random_weights_and_statistics_elsewhere_replace_those_of_the_checkpoint(preset, tmp_path):
    ours = actions_of(RunConfig(policy=preset, **SILENT))
    random = actions_of(RunConfig(policy=preset, random_weights=True, **SILENT))
    np.testing.assert_allclose(ours, random / 2, rtol=0, atol=1e-5)
    statistics = {"state": moments(8, 1.0), "actions": moments(7, 1.0)}
    (tmp_path / "norm_stats.json").write_text(json.dumps({"norm_stats": statistics}))
    file = changed(preset, tmp_path, norm_stats=str(tmp_path / "norm_stats.json"))
    np.testing.assert_allclose(actions_of(RunConfig(policy=file, **SILENT)), 2 * ours, atol=1e-5)


def test_a_checkpoint_of_openpis_is_refused_with_two_ways_to_use_it(preset):
    folder = Path(preset).parent
    with pytest.raises(UsageError, match=rf"oxygen\.tools\.convert {folder} TARGET.*weights: {folder}"):
        resolve_policy(RunConfig(policy=str(folder)))


@pytest.mark.slow
def test_a_converted_checkpoint_is_a_policy(preset, tmp_path, capsys):
    folder = tmp_path / "ours"
    options = ("--model", "tiny", "--embodiment", "libero", "--tokenizer", "oxygen/assets/tiny.model")
    assert main([str(Path(preset).parent), str(folder), *options]) == 0
    assert capsys.readouterr().out.endswith(f"The policy: oxygen-eval libero --policy {folder}\n")
    resolved = resolve_policy(RunConfig(policy=str(folder)))
    assert (resolved.policy.name, resolved.policy.embodiment, resolved.tasks) == ("ours", "libero", ())
    np.testing.assert_array_equal(
        actions_of(RunConfig(policy=str(folder), **SILENT)), actions_of(RunConfig(policy=preset, **SILENT))
    )


def test_missing_weights_are_refused_before_a_tokenizer_is_downloaded(preset, tmp_path, monkeypatch):
    monkeypatch.setattr("oxygen.weights.source._download", lambda url, _: pytest.fail(f"downloads {url}"))
    weights, tokenizer = str(tmp_path / "absent"), "https://example.org/tokenizer.model"
    file = changed(preset, tmp_path, weights=weights, tokenizer=tokenizer)
    with pytest.raises(UsageError, match=r"there is no checkpoint at .*absent"):
        actions_of(RunConfig(policy=file, **SILENT))


@pytest.mark.parametrize("name", ["tiny", "small", "pi05_libero", "pi05_base"])
def test_policies_for_libero_have_its_conventions(name):
    suite, resolved = libero_object(), resolve_policy(RunConfig(policy=name))
    plan = EpisodePlan(tasks=(TaskPlan(suite=suite, task=suite.tasks()[0], keys=(KEY,)),))
    check_playable(plan, interface=resolved.interface)


def test_a_declared_size_is_served_by_resizing_unless_images_would_be_enlarged_or_are_rotated():
    suite, sizes = libero_object(), LIBERO.observation.camera_sizes
    plan = EpisodePlan(tasks=(TaskPlan(suite=suite, task=suite.tasks()[0], keys=(KEY,)),))
    for size in ((128, 128), (256, 256), (100, 512)):
        check_playable(plan, interface=of_size(size), image_sizes=dict.fromkeys(sizes, size))
    with pytest.raises(
        UsageError, match="renders 256 × 256, which is not enlarged: declare at most 256 × 256"
    ):
        check_playable(plan, interface=of_size((512, 512)), image_sizes=dict.fromkeys(sizes, (512, 512)))
    with pytest.raises(UsageError, match="has 128 × 128 pixels, rotated by 180°, environment"):
        check_playable(plan, interface=of_size((128, 128)))  # of a policy that gets images as they are
    upright = of_size((128, 128), rotated_deg=0)
    with pytest.raises(UsageError, match="pixels, rotated by 0°, environment"):
        check_playable(plan, interface=upright, image_sizes=dict.fromkeys(sizes, (128, 128)))


def of_size(size, **changes):
    seen = LIBERO.observation
    cameras = tuple(dataclasses.replace(each, size=size, **changes) for each in seen.cameras)
    return dataclasses.replace(LIBERO, observation=dataclasses.replace(seen, cameras=cameras))


LEARNT = {"pi05_libero": (), "tiny": ("narration", "memory"), "tiny_memory": ("memory",)}
"""Policies, and the texts that they were trained on."""


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"policy": "tiny"}, ("narration", "memory")),
        ({"policy": "expert"}, ("narration", "memory")),
        ({"policy": "small"}, ("narration", "memory")),
        ({"policy": "pi05_libero"}, ()),
        *(({"policy": name, "random_weights": True}, texts) for name, texts in LEARNT.items()),
        ({"policy": "pi05_libero", "language_tasks": ("memory",)}, ("memory",)),
    ],
)
def test_trained_texts_are_requested_by_default(options, names):
    assert resolve_policy(RunConfig(**options)).task_names == names


def test_images_of_several_sizes_go_through_shared_memory_pixel_for_pixel():
    cameras = (Camera(name="front", size=(4, 6)), Camera(name="wrist", size=(2, 3)))
    observation = dataclasses.replace(LIBERO.observation, cameras=cameras)
    block = ImageBlock.fitting([dataclasses.replace(LIBERO, observation=observation)])
    images = {"front": np.arange(72), "wrist": np.arange(18)}
    shown = {
        name: image.astype(np.uint8).reshape(-1, image.size // 12, 3)[::-1] for name, image in images.items()
    }
    seen = Observation(images=shown, state=np.arange(8.0), language="lift it", feedback={"memory": "none"})
    read = block.read(block.write(seen))
    np.testing.assert_equal(dataclasses.asdict(read), dataclasses.asdict(seen))
    larger = dataclasses.replace(seen, images=dict.fromkeys("abcdefghij", np.zeros((32, 64, 3), np.uint8)))
    with pytest.raises(ValueError, match="have 61440 bytes; the suite's interface declares"):
        block.write(larger)
    del read
    block.close()


def write_checkpoint(folder, *, step=7, seed=0, data="none", **training):
    """A checkpoint of `tiny`'s sizes with random parameters, whose actions span half the range."""
    writer = checkpoint.CheckpointWriter(
        training=TrainingConfig(
            model=TINY,
            embodiment="libero",
            tasks=(LanguageTask(name="narration", prompt="Narrate: ", max_tokens=8),),
            options=TrainConfig(steps=step, seed=seed, data=(str(data),)),
            **training,
        ),
        statistics={"state": moments(8, 1.0), "actions": moments(7, 0.5)},
        tokenizer=tokenizer.tiny().serialized,
        frames=12_345,
    )
    writer.write_policy(folder, params.random_params(TINY, seed), step=step)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "step_0000007"
    write_checkpoint(folder)
    return folder


@pytest.mark.slow
def test_a_checkpoint_of_a_training_has_its_own_statistics_and_answers_its_language_tasks(
    trained, untrained_actions
):
    actions = actions_of(RunConfig(policy=str(trained), **SILENT))
    np.testing.assert_allclose(actions, untrained_actions / 2, rtol=0, atol=1e-5)
    config = RunConfig(mode="isolated", policy=str(trained), language_tasks=("narration",))
    policy = policy_of(config)
    policy.reset(KEY)
    policy.act(observed())
    reply = policy.complete()
    assert [text.task for text in reply.finished] == ["narration"]
    assert reply.tokens > 0


def rewritten(folder, target, **changes):
    """The checkpoint's card and record in another folder, with the card changed."""
    shutil.copyfile(folder / RECORD, target / RECORD)
    changed(folder / CARD, target, **changes)
    return str(target)


def test_its_trained_language_tasks_are_the_default_and_others_are_refused(trained, tmp_path):
    for mode in ("actions", "unified"):
        resolved = resolve_policy(RunConfig(mode=mode, policy=str(trained)))
        assert [task.name for task in resolved.tasks] == ["narration"]
        assert resolved.remark is None
    with pytest.raises(UsageError, match=r"not learnt language task 'memory'.*it has learnt narration"):
        resolve_policy(RunConfig(policy=str(trained), language_tasks=("narration", "memory")))
    learnt = {"narration": "Tell: ", "poem": "Rhyme: "}
    resolved = resolve_policy(RunConfig(policy=rewritten(trained, tmp_path, language_tasks=learnt)))
    assert resolved.tasks == ()
    assert "narration, poem: name its file with --language-tasks" in resolved.remark
    other = rewritten(trained, tmp_path, language_tasks={"narration": "Say: "})
    with pytest.raises(UsageError, match=r"with prompt 'Narrate: '.*'Say: '"):
        resolve_policy(RunConfig(policy=other, language_tasks=("narration",)))


def test_a_policy_without_texts_decodes_them_only_as_a_load(trained, tmp_path):
    silent = rewritten(trained, tmp_path, language_tasks={})
    resolved = resolve_policy(RunConfig(policy=silent))
    assert resolved.tasks == ()
    variants = [RunConfig(mode="actions"), RunConfig(mode="unified")]
    assert "was not trained on texts, so none are requested; --lang" in resolved.remark_for(variants)
    assert resolved.remark_for(variants[:1]) is None
    loaded = resolve_policy(RunConfig(policy=silent, language_tasks=("memory",)))
    assert [task.name for task in loaded.tasks] == ["memory"]
    assert "will be noise" in loaded.remark
    assert resolve_policy(RunConfig(policy=silent, language_tasks=())).remark is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"horizon": 99}, "horizon 10; 'tiny' now has 99"),
        ({"prompt_buckets": (48,)}, r"prompt_buckets \[32\]; 'tiny' now has \[48\]"),
        ({"siglip": dataclasses.replace(TINY.siglip, depth=3)}, "siglip.depth 4; 'tiny' now has 3"),
        ({"noise_scale": 0.5}, None),  # training does not use it
    ],
)
def test_a_checkpoint_of_a_model_that_has_changed_since_is_refused(trained, monkeypatch, change, message):
    monkeypatch.setitem(PRESETS, "tiny", dataclasses.replace(TINY, **change))
    policy = RunConfig(policy=str(trained), language_tasks=())
    if message is None:
        assert resolve_policy(policy).policy.model == "tiny"
        return
    with pytest.raises(UsageError, match=f"was trained with {message}.*Train it again"):
        resolve_policy(policy)


def test_a_checkpoint_with_a_record_of_no_sizes_is_refused(trained, tmp_path):
    shutil.copyfile(trained / CARD, tmp_path / CARD)
    for content, message in (("{", "not JSON"), ("{}", "not what training writes")):
        (tmp_path / RECORD).write_text(content)
        with pytest.raises(UsageError, match=message):
            resolve_policy(RunConfig(policy=str(tmp_path), language_tasks=()))


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("mine/checkpoints/step_0000501", "no checkpoint at .*Nearest: .*step_0000500, .*step_0001000$"),
        ("mien/checkpoints/step_0001000", "no checkpoint at .*Nearest: .*mine/checkpoints/step_0001000, "),
        ("mine", r"is the folder of a training; .*checkpoints/step_0001000$"),
        ("mine/checkpoints", r"is the folder of a training; .*checkpoints/step_0001000$"),
        ("mine/model.safetensors", "is a file; give the folder"),
        ("pi05:ft@2000", r"pi05:ft@2000 is not a checkpoint: it holds nothing"),
        (".", r"policy\.yaml"),
        ("exp", r"it holds several; give one, such as the newest that is complete: .*/exp/2000$"),
        ("exp/2000", r"exp/2000 has weights, but no policy\.yaml\. Convert them"),
    ],
)
def test_another_path_names_the_nearest_checkpoints(tmp_path, place, said):
    for step in ("step_0000500", "step_0001000"):
        folder = tmp_path / "runs/mine/checkpoints" / step
        folder.mkdir(parents=True)
        (folder / CARD).touch()
    (tmp_path / "runs/mine/model.safetensors").touch()
    (tmp_path / "runs/pi05:ft@2000").mkdir()
    for step, content in (("2000", b"\2\0\0\0\0\0\0\0{}"), ("4000.orbax-checkpoint-tmp-0", b"")):
        (tmp_path / "runs/exp" / step).mkdir(parents=True)
        (tmp_path / "runs/exp" / step / "model.safetensors").write_bytes(content)
    with pytest.raises(UsageError, match=said):
        resolve_policy(RunConfig(policy=str(tmp_path / "runs" / place)))


@pytest.mark.parametrize("policy", ["noop", "random", pytest.param("tiny", marks=pytest.mark.slow)])
def test_policies_that_ship_conform(policy):
    check_policy(policy_of(RunConfig(mode="unified", policy=policy)), observed(), replan_steps=10)


class Still:
    """openpi's two methods."""

    embodiment = "libero"

    def infer(self, obs):
        return {"actions": np.zeros((10, 7))}

    def reset(self):
        pass


def test_classes_objects_and_functions_are_accepted():
    for given in (Still, Still(), lambda: Still(), FakePolicy):  # noqa: PLW0108
        check_policy(given, observed(), replan_steps=5)
    with pytest.raises(UsageError, match="policy dict lacks infer, reset"):
        check_policy({}, observed())


class Drifting(FakePolicy):
    drift = 0.0

    def act(self, observation):
        self.drift += 0.01
        return super().act(observation) + self.drift


class Careless(FakePolicy):
    def act(self, observation):
        observation.state[0] += 1
        return super().act(observation)


class Silent(FakePolicy):
    def complete(self):
        return None


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Drifting(), "had other actions after other episodes"),
        (Careless(), "changed the observation's state"),
        (Silent(), "should return a Reply"),
        (FakePolicy(actions=np.zeros((10, 6))), "an action has 6 numbers"),
        (FakePolicy(actions=np.zeros((3, 7))), "3 actions, a rollout executes 5"),
        (FakePolicy(actions=np.full((10, 7), np.nan)), "not finite"),
    ],
)
def test_a_broken_contract_is_one_line(policy, said):
    with pytest.raises(AssertionError, match=said) as caught:
        check_policy(policy, observed(), replan_steps=5)
    assert "\n" not in str(caught.value).split("\nassert")[0]


@pytest.mark.parametrize(
    ("name", "seen"), [("noop", "nothing"), ("random", "nothing"), ("expert", "privileged state")]
)
def test_baselines_see_nothing_and_the_expert_the_state_of_the_simulator(name, seen):
    opened = open_scripted(load(PolicyConfig, name), (), RunConfig())
    assert format_inputs(opened.inputs) == seen
