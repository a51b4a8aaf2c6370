"""Serves a LeRobot policy from an environment of its own; in a common one, `--policy lerobot:PATH` plays it.

    uv pip install 'lerobot[dataset,training]==0.6.1' websockets msgpack
    python examples/serve_lerobot.py --checkpoint outputs/train/checkpoints/last/pretrained_model
    oxygen-eval libero --policy ws://localhost:8000

Cameras, image size, state and actions are read from the policy's own features. Without --checkpoint, a small
ACT with random weights is served, to try the connection.
"""

import argparse
import dataclasses
import sys
from typing import Any

import numpy as np
import torch
from lerobot.configs import FeatureType, PolicyFeature, PreTrainedConfig
from lerobot.policies import get_policy_class, make_pre_post_processors
from lerobot.policies.act.configuration_act import ACTConfig
from openpi_server import policy_server


@dataclasses.dataclass(frozen=True, kw_only=True)
class Robot:
    """What openpi's observations and actions of a robot hold."""

    cameras: tuple[str, ...]
    state: dict[str, int]  # key to its numbers, which a policy of LeRobot has in one array, in this order
    actions: int  # numbers


LIBERO = Robot(cameras=("image", "wrist_image"), state={"observation/state": 8}, actions=7)
DROID = Robot(
    cameras=("exterior_image_1_left", "wrist_image_left"),
    state={"observation/joint_position": 7, "observation/gripper_position": 1},
    actions=8,
)
ROBOTS = {"libero": LIBERO, "droid": DROID, "droid_jointpos": DROID}
OTHER_NAMES = {"image2": "wrist_image"}
"""Names that LeRobot's own LIBERO environment gives to cameras."""


class LeRobotPolicy:
    """Maps openpi's observations to those of the policy's features, and returns whole action chunks."""

    def __init__(self, checkpoint: str | None, robot: str, renamed: dict[str, str]) -> None:
        config = PreTrainedConfig.from_pretrained(checkpoint) if checkpoint else small_act()
        check_numbers(config, ROBOTS[robot])
        self._images, size = images_of(config.input_features, ROBOTS[robot], OTHER_NAMES | renamed)
        self._state = ROBOTS[robot].state
        policy_class = get_policy_class(config.type)
        self._policy = policy_class.from_pretrained(checkpoint) if checkpoint else policy_class(config)
        self._policy.eval()
        on_device = {"device_processor": {"device": str(config.device)}}  # not that of its training
        self._before, self._after = make_pre_post_processors(
            config, pretrained_path=checkpoint, preprocessor_overrides=on_device
        )
        self._horizon = config.n_action_steps
        self.metadata = {"embodiment": robot, "horizon": self._horizon, "image_resolution": size}

    @torch.inference_mode()
    def infer(self, observation: dict[str, Any]) -> np.ndarray:
        """Actions [horizon, action]."""
        batch: dict[str, Any] = {
            name: torch.from_numpy(observation[key].copy()).permute(2, 0, 1).float() / 255
            for name, key in self._images.items()
        }
        state = np.concatenate([np.ravel(observation[key]) for key in self._state])
        batch["observation.state"] = torch.from_numpy(state).float()
        batch = self._before({**batch, "task": observation["prompt"]})
        self._policy.reset()  # a query's observation stands for all that the policy was trained on
        steps = [self._after(self._policy.select_action(dict(batch))) for _ in range(self._horizon)]
        return torch.stack(steps, dim=1)[0].numpy()


def images_of(
    features: dict[str, PolicyFeature], robot: Robot, renamed: dict[str, str]
) -> tuple[dict[str, str], list[int] | None]:
    """Each image feature's key in openpi's observations, and the height and width of all."""
    keys, sizes = {}, set()
    for name, feature in features.items():
        if feature.type is FeatureType.VISUAL:
            own = name.removeprefix("observation.").removeprefix("images.")
            camera = renamed.get(own, own)
            if camera not in robot.cameras:
                sys.exit(
                    f"the policy's camera {own} is none of {', '.join(robot.cameras)}; say which one it is "
                    f"with --cameras {own}=NAME, or choose another --robot"
                )
            keys[name] = f"observation/{camera}"
            sizes.add(feature.shape[1:])
    if len(sizes) > 1:
        sys.exit(f"the policy's images have several sizes, {sorted(sizes)}; openpi's clients send one")
    return keys, list(sizes.pop()) if sizes else None


def check_numbers(config: PreTrainedConfig, robot: Robot) -> None:
    """Refuses a policy with the state or actions of another robot, or with other inputs."""
    numbers = {"observation.state": sum(robot.state.values()), "action": robot.actions}
    for name, feature in (config.input_features | config.output_features).items():
        if feature.type is not FeatureType.VISUAL and feature.shape != (numbers.get(name),):
            sys.exit(
                f"the policy's {name} has shape {feature.shape}, the robot's observations and actions have "
                f"{numbers}; choose another --robot"
            )


def small_act() -> ACTConfig:
    """An ACT of a few million parameters, to be initialised at random."""
    names = [f"observation.images.{camera}" for camera in LIBERO.cameras]
    images = {name: PolicyFeature(FeatureType.VISUAL, (3, 224, 224)) for name in names}
    return ACTConfig(
        input_features={**images, "observation.state": PolicyFeature(FeatureType.STATE, (8,))},
        output_features={"action": PolicyFeature(FeatureType.ACTION, (7,))},
        pretrained_backbone_weights=None,
        dim_model=64,
        dim_feedforward=128,
        chunk_size=10,
        n_action_steps=10,
        device="cpu",
    )


def renaming(given: str) -> tuple[str, str]:
    """A camera's two names, from `front=image`."""
    name, _, camera = given.partition("=")
    return name, camera


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", help="a folder with a policy of lerobot-train, or a model of the Hub")
    parser.add_argument("--robot", default="libero", choices=list(ROBOTS))
    parser.add_argument("--cameras", nargs="+", default=[], type=renaming, metavar="POLICYS=OPENPIS")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    policy = LeRobotPolicy(arguments.checkpoint, arguments.robot, dict(arguments.cameras))
    with policy_server(policy.infer, policy.metadata, port=arguments.port) as server:
        print(f"serving at ws://localhost:{server.socket.getsockname()[1]}", flush=True)  # noqa: T201
        server.serve_forever()
