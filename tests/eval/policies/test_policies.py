"""Policies by their presets: a checkpoint is what acts, and one that means other numbers is refused."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from configs.errors import UsageError
from configs.interface import Camera
from configs.schema import RunConfig
from eval.policies.base import Policy
from eval.policies.engine import EnginePolicy
from eval.policies.resolved import open_policies, resolve_policy
from eval.policies.serving import ImageBlock
from eval.rollout.plan import EpisodePlan, TaskPlan, check_playable
from oxygen.model import params
from oxygen.model.config import TINY
from oxygen.robots.conventions import LIBERO
from oxygen.tools.convert import main
from sim_envs.fake import FakeWorld
from sim_envs.world import EpisodeKey, Observation
from tests.eval.doubles import libero_object, without_physics
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


def policy_of(config: RunConfig) -> Policy:
    """The policy, in a world that it does not read."""
    (served,) = open_policies(resolve_policy(config), [config])
    return served.in_world(libero_object(), FakeWorld())


def actions_of(config: RunConfig) -> np.ndarray:
    """What a policy with a model does in the first query of an episode."""
    policy, world = policy_of(config), FakeWorld(image_size=64)
    assert isinstance(policy.batch, EnginePolicy)
    world.reset(init_id=0, seed=7, settle_steps=0)
    policy.reset(KEY)
    return policy.act(world.observe())


def test_a_checkpoint_is_loaded_with_its_own_statistics(preset, tmp_path):
    """Its weights are random ones, and its actions span half the range: so they are half as large."""
    untrained = tmp_path / "untrained.yaml"
    untrained.write_text("{name: untrained, kind: oxygen, model: tiny, embodiment: libero}")
    random = actions_of(RunConfig(policy=str(untrained), **SILENT))
    trained = actions_of(RunConfig(policy=preset, **SILENT))
    np.testing.assert_allclose(trained, random / 2, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_random_weights_and_statistics_elsewhere_replace_those_of_the_checkpoint(preset, tmp_path):
    """Doubled ranges, doubled actions."""
    ours = actions_of(RunConfig(policy=preset, **SILENT))
    random = actions_of(RunConfig(policy=preset, random_weights=True, **SILENT))
    np.testing.assert_allclose(ours, random / 2, rtol=0, atol=1e-5)
    content = yaml.safe_load(Path(preset).read_text(encoding="utf-8"))
    statistics = {"state": moments(8, 1.0), "actions": moments(7, 1.0)}
    (tmp_path / "norm_stats.json").write_text(json.dumps({"norm_stats": statistics}))
    file = tmp_path / "other.yaml"
    file.write_text(yaml.safe_dump({**content, "norm_stats": str(tmp_path / "norm_stats.json")}))
    np.testing.assert_allclose(actions_of(RunConfig(policy=str(file), **SILENT)), 2 * ours, atol=1e-5)


def test_a_checkpoint_of_openpis_is_refused_with_two_ways_to_use_it(preset):
    folder = Path(preset).parent
    with pytest.raises(UsageError, match=rf"oxygen\.tools\.convert {folder} TARGET.*weights: {folder}"):
        resolve_policy(RunConfig(policy=str(folder)))


@pytest.mark.slow
def test_a_converted_checkpoint_is_a_policy(preset, tmp_path, capsys):
    folder = tmp_path / "ours"
    options = ("--model", "tiny", "--embodiment", "libero", "--tokenizer", "oxygen/assets/tiny.model")
    assert main([str(Path(preset).parent), str(folder), *options]) == 0
    assert capsys.readouterr().out.endswith(f"The policy: python -m eval.libero --policy {folder}\n")
    resolved = resolve_policy(RunConfig(policy=str(folder)))
    assert (resolved.policy.name, resolved.policy.embodiment, resolved.tasks) == ("ours", "libero", ())
    np.testing.assert_array_equal(
        actions_of(RunConfig(policy=str(folder), **SILENT)), actions_of(RunConfig(policy=preset, **SILENT))
    )


def test_missing_weights_are_refused_before_a_tokenizer_is_downloaded(preset, tmp_path, monkeypatch):
    monkeypatch.setattr("oxygen.weights.source.complete", lambda url, _: pytest.fail(f"downloads {url}"))
    content = yaml.safe_load(Path(preset).read_text(encoding="utf-8"))
    weights, tokenizer = str(tmp_path / "absent"), "https://example.org/tokenizer.model"
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({**content, "weights": weights, "tokenizer": tokenizer}))
    with pytest.raises(UsageError, match=r"there is no checkpoint at .*absent"):
        actions_of(RunConfig(policy=str(file), **SILENT))


@pytest.mark.parametrize("name", ["tiny", "small", "pi05_libero", "pi05_base"])
def test_policies_for_libero_have_its_conventions(name, monkeypatch):
    """Before either is loaded."""
    without_physics(monkeypatch)
    suite, resolved = libero_object(), resolve_policy(RunConfig(policy=name))
    plan = EpisodePlan(tasks=(TaskPlan(suite=suite, task=suite.tasks()[0], keys=(KEY,)),))
    check_playable(plan, policy=name, interface=resolved.interface, horizon=resolved.horizon)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"policy": "tiny"}, ("narration", "memory")),
        ({"policy": "expert"}, ("narration", "memory")),
        ({"policy": "small"}, ("narration", "memory")),
        ({"policy": "pi05_libero"}, ()),
        ({"policy": "pi05_libero", "random_weights": True}, ("narration", "memory")),
        ({"policy": "pi05_libero", "language_tasks": ("memory",)}, ("memory",)),
    ],
)
def test_trained_texts_are_requested_by_default(options, names):
    assert resolve_policy(RunConfig(**options)).task_names == names


def test_remarks_on_texts_are_printed_only_in_modes_with_texts():
    resolved = resolve_policy(RunConfig(policy="pi05_libero"))
    variants = [RunConfig(mode="actions"), RunConfig(mode="unified")]
    assert "pi05_libero was not trained on texts, so none are requested" in resolved.remark_for(variants)
    assert resolved.remark_for(variants[:1]) is None


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
