"""LeRobot's policies in process: `--policy lerobot:PATH_OR_ID`. Needs the extra `lerobot`."""

import contextlib
import dataclasses
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lerobot
import numpy as np
import torch
from lerobot.configs import FeatureType, PreTrainedConfig
from lerobot.policies import get_policy_class, make_pre_post_processors
from lerobot.processor.env_processor import LiberoProcessorStep
from lerobot.utils.constants import ACTION
from torch.overrides import TorchFunctionMode

from configs.errors import check
from configs.paths import read_json_object
from configs.schema import Preset
from contracts.episode import EpisodeKey
from contracts.errors import UsageError, unknown
from contracts.hashing import hash_file, seed_of
from contracts.interface import Interface
from eval.policies.base import LoadedPolicy
from eval.policies.batches import PADDING, opened_batches
from eval.policies.hub import CONFIG, checkpoint_folder
from eval.policies.openpi import named
from eval.policies.python import in_one_line
from oxygen.robots.conventions import LIBERO
from oxygen.robots.openpi_keys import ACTION_PREFIX, OpenpiKeys

_WEIGHTS = "model.safetensors"
_OTHER_NAMES = {"image2": "wrist_image"}
"""Names that LeRobot's own LIBERO environment gives to cameras."""
_DRAWN = (torch.randn, torch.randn_like, torch.normal)


class LeRobotOptions(Preset):
    """Options of a LeRobot policy, the values of `--policy-kwargs`."""

    cameras: str | None = None  # the suite's names of its cameras, as `front=image,side=wrist_image`
    device: str | None = None  # such as `cuda:1`; by default that of its configuration

    @property
    def renamed(self) -> dict[str, str]:
        """The policy's name to the suite's name of each camera."""
        pairs = dict(_OTHER_NAMES)
        for pair in (self.cameras or "").split(",") if self.cameras else ():
            own, separator, camera = pair.strip().partition("=")
            if not (own and separator and camera):
                raise UsageError(f"policy argument cameras={self.cameras}: write cameras=OWN=SUITES,…")
            pairs[own] = camera
        return pairs


def open_lerobot(
    checkpoint: str, kwargs: Mapping[str, Any], *, suite: Interface, worlds: int = 1, batch_size: int = 1
) -> LoadedPolicy:
    """The policy of a checkpoint that LeRobot wrote: a folder, or a model of the Hub, as ID or ID@REVISION.

    Cameras, their sizes, state, actions and the length of chunks are the checkpoint's; the conventions of all
    of these are those of the suite. Refuses one that does not exist or fit the suite, or that LeRobot cannot
    load.
    """
    name = f"lerobot:{checkpoint}"
    options = check(LeRobotOptions, kwargs, source="policy arguments")
    folder = checkpoint_folder(checkpoint, name)
    kind = read_json_object(folder / CONFIG).get("type")
    if kind not in (known := PreTrainedConfig.get_known_choices()):
        raise unknown(f"type of policy {name}:", kind, known, remedy="Or install the LeRobot that wrote it.")
    with in_one_line(f"policy {name} cannot be loaded"):
        device = [] if options.device is None else [f"--device={options.device}"]
        config = PreTrainedConfig.from_pretrained(folder, cli_overrides=device)
    if options.device not in (None, config.device):  # LeRobot takes another one
        raise UsageError(f"policy argument device={options.device}: this machine has no such device")
    guides = (chunking := getattr(config, "rtc_config", None)) is not None and chunking.enabled
    if guides and batch_size > 1:
        raise UsageError(
            f"policy {name} does real-time chunking, for which LeRobot takes one delay per batch, and "
            f"batch_size is {batch_size}; give --batch-size 1"
        )
    declared = {"horizon": _chunk_of(config, name), "action_prefix": guides}
    keys = named(_keys(config, suite, options, name), name, declared)
    keys = dataclasses.replace(keys, history=config.n_obs_steps - 1)
    with in_one_line(f"policy {name} cannot be loaded"), contextlib.redirect_stdout(io.StringIO()):
        policy = LeRobotPolicy(config, folder, keys)
    with in_one_line(f"policy {name} cannot act"):
        policy.try_out()
    return opened_batches(
        policy,
        keys,
        {},
        worlds=worlds,
        batch_size=batch_size,
        lerobot={
            "version": lerobot.__version__,
            "type": config.type,
            "weights_sha256": hash_file(folder / _WEIGHTS),
            "cameras": {key: keys.images[key] for key in keys.images},
            "n_action_steps": keys.interface.horizon,
        },
    )


def _chunk_of(config: PreTrainedConfig, name: str) -> int:
    """The number of actions that the policy plays before it is asked again."""
    if getattr(config, "temporal_ensemble_coeff", None) is not None:
        raise UsageError(
            f"policy {name} averages overlapping chunks over time, which is LeRobot's own loop; set "
            f"temporal_ensemble_coeff to null and n_action_steps in its {CONFIG}"
        )
    if config.use_peft:
        raise UsageError(f"policy {name} is a PEFT adapter; merge it into its base, and give that")
    return int(getattr(config, "n_action_steps", 1))


def _keys(config: PreTrainedConfig, suite: Interface, options: LeRobotOptions, name: str) -> OpenpiKeys:
    """The policy's features as keys of observations; one that the suite does not have is a UsageError."""
    seen = suite.observation
    renamed, features = options.renamed, dict(config.input_features or {})
    visual = {key: each for key, each in features.items() if each.type is FeatureType.VISUAL}
    images: dict[str, str] = {}
    for key in visual:
        own = key.removeprefix("observation.").removeprefix("images.")
        images[key] = renamed.get(own, own)
        if own not in renamed and own not in seen.camera_names and len(visual) == len(seen.cameras) == 1:
            images[key] = seen.camera_names[0]
        if images[key] not in seen.camera_names:
            remedy = f"Say which one it is with --policy-kwargs cameras={own}=NAME."
            raise unknown(
                f"camera of policy {name} in {suite.name}:", images[key], seen.camera_names, remedy=remedy
            )
    sizes = {"observation.state": seen.state_size, "action": suite.action.size}
    numbers = {key: each for key, each in features.items() if key not in visual}
    for key, feature in {**numbers, **(config.output_features or {})}.items():
        if key not in sizes:
            raise UsageError(f"policy {name} needs {key}, which suites do not have; choose another policy")
        if tuple(feature.shape) != (sizes[key],):
            raise UsageError(
                f"policy {name} has {key} of shape {list(feature.shape)}, and {suite.name} of "
                f"[{sizes[key]}]; choose a policy or a suite of the same robot"
            )
    used = tuple(camera for camera in seen.cameras if camera.name in images.values())
    any_size = tuple(dataclasses.replace(camera, size=None) for camera in used)
    observation = dataclasses.replace(seen, cameras=any_size) if used else seen
    return OpenpiKeys(
        interface=dataclasses.replace(suite, observation=observation),
        images=images,
        state={key: tuple(part.name for part in seen.state) for key in numbers},
        declared_sizes={
            images[key]: (int(each.shape[1]), int(each.shape[2])) for key, each in visual.items()
        },
    )


class LeRobotPolicy:
    """A LeRobot policy with its processors. Its noise is a function of (episode key, query)."""

    def __init__(self, config: PreTrainedConfig, folder: Path, keys: OpenpiKeys) -> None:
        self.device = str(config.device)
        self.model = get_policy_class(config.type).from_pretrained(folder, config=config)
        self._before, self._after = make_pre_post_processors(
            config,
            pretrained_path=str(folder),
            preprocessor_overrides={"device_processor": {"device": self.device}},  # not that of its training
        )
        self._keys = keys
        self._mixed = config.use_amp
        self._is_liberos = keys.interface.observation.state == LIBERO.observation.state
        self._queries: dict[int, tuple[int, int]] = {}  # row to its episode's seed and its next query

    def reset(self, rows: Sequence[int], keys: Sequence[EpisodeKey]) -> None:
        """See `BatchInference`."""
        self._queries |= {row: (key.digest(), 0) for row, key in zip(rows, keys, strict=True)}

    def infer_batch(self, observations: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """See `BatchInference`."""
        *earlier, batch = map(self._batch, zip(*map(self._frames, observations), strict=True))
        self.model.reset()  # its queues hold one batch: every query starts anew
        for frame in earlier:  # with an action in its queue, it takes what is observed and computes nothing
            self.model._queues[ACTION].append(None)
            self.model.select_action(frame)
        steps = self._keys.interface.horizon or 1
        queries = [self._queries.get(seen["row"], (0, 0)) for seen in observations]
        mixed = torch.autocast(self.device.partition(":")[0]) if self._mixed else contextlib.nullcontext()
        with mixed, RowNoise([_generator(*query) for query in queries]):
            if self._keys.action_prefix:
                chunks = self._after(self._guided(batch))[:, :steps]
            else:
                actions = [self._after(self.model.select_action(dict(batch))) for _ in range(steps)]
                chunks = torch.stack(actions, dim=1)
        for seen, (seed, query) in zip(observations, queries, strict=True):  # one that fails is asked again
            self._queries[seen["row"]] = seed, query + 1
        return [{"actions": chunk} for chunk in chunks.float().cpu().numpy()]

    def _guided(self, batch: dict[str, Any]) -> torch.Tensor:
        """A chunk that LeRobot's real-time chunking guides towards the actions executed meanwhile."""
        with torch.inference_mode(mode=False), torch.no_grad():  # guidance needs gradients
            batch = {key: each.clone() if torch.is_tensor(each) else each for key, each in batch.items()}
            prefix = batch.pop(ACTION)
            delay = prefix.shape[1]
            return self.model.predict_action_chunk(
                batch, inference_delay=delay, prev_chunk_left_over=prefix if delay else None
            )

    def _frames(self, observation: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """What was observed, oldest first; copies of the first stand for what was before the episode."""
        seen = (*observation["history"], observation) if self._keys.history else (observation,)
        return (seen[0],) * (1 + self._keys.history - len(seen)) + seen

    def _batch(self, observations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = {"task": [seen["prompt"] for seen in observations]}
        for key in self._keys.images:
            pixels = torch.from_numpy(np.stack([seen[key] for seen in observations]))
            # Contiguous, as LeRobot makes them: convolutions round otherwise on channels-last memory.
            batch[key] = pixels.permute(0, 3, 1, 2).contiguous().float() / 255
        for key in self._keys.state:
            state = np.stack([seen[key] for seen in observations])
            batch[key] = _liberos_state(state) if self._is_liberos else torch.from_numpy(state).float()
        if self._keys.action_prefix:
            batch[ACTION] = torch.from_numpy(observations[0][ACTION_PREFIX])[None].float()
        return self._before(batch)

    def try_out(self) -> None:
        """Act once, so that what fails in every query is known before the first episode."""
        seen = self._keys.interface.observation
        images = {
            camera: np.zeros((*size, 3), np.uint8) for camera, size in self._keys.declared_sizes.items()
        }
        query = {**self._keys.write(images, np.zeros(seen.state_size), ""), "row": PADDING, "history": ()}
        query[ACTION_PREFIX] = np.zeros((1, self._keys.interface.action.size))
        with torch.inference_mode():
            (answer,) = self.infer_batch([query])
        found, own = answer["actions"].shape, self._keys.interface
        if found != (wanted := (own.horizon, own.action.size)):
            raise UsageError(f"its chunk has shape {list(found)}, its configuration says {list(wanted)}")


def _generator(seed: int, query: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(f"{seed}.{query}") % 2**63)


def _liberos_state(state: np.ndarray) -> torch.Tensor:
    """The states [row, 8] of LIBERO's robot as LeRobot's environment has them, to the last bit.

    It computes the rotation vector in float32, from the quaternion.
    """
    position, rotation, fingers = (torch.from_numpy(part) for part in np.split(state, (3, 6), axis=1))
    angle = rotation.norm(dim=1, keepdim=True)
    axis = torch.where(angle > 0, rotation / angle, rotation)
    quaternion = torch.cat((axis * torch.sin(angle / 2), torch.cos(angle / 2)), dim=1)
    robot = {"eef": {"pos": position, "quat": quaternion}, "gripper": {"qpos": fingers}}
    return LiberoProcessorStep().observation({"observation.robot_state": robot})["observation.state"]


class RowNoise(TorchFunctionMode):
    """Draws a batch's normal noise with a generator for each row: rows do not depend on each other."""

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self._generators = generators

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a function of PyTorch."""
        result = func(*args, **(kwargs or {}))
        if func in _DRAWN and result.ndim and len(result) == len(self._generators):
            for part, generator in zip(result, self._generators, strict=True):
                part.copy_(torch.empty(part.shape).normal_(generator=generator))
        return result
