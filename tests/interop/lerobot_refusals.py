"""Prints why copies of a LeRobot checkpoint cannot be played: `python lerobot_refusals.py FOLDER`."""

import json
import shutil
import sys
from pathlib import Path

from contracts.errors import UsageError
from eval.policies.lerobot import open_lerobot
from sim_envs.suite import open_suite

good = Path(sys.argv[1])


def changed(name, **changes):
    """A copy with another configuration; None removes a file."""
    copy = Path(shutil.copytree(good, good.with_name(name)))
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | changes))
    return copy


no_weights = changed("no_weights")
(no_weights / "model.safetensors").unlink()
no_processor = changed("no_processor")
(no_processor / "policy_preprocessor.json").unlink()
ensembling = changed("ensembling", temporal_ensemble_coeff=0.01, n_action_steps=1)
features = json.loads((good / "config.json").read_text())["input_features"]
environment = {"observation.environment_state": {"type": "ENV", "shape": [4]}}
for checkpoint, suite, kwargs in (
    (good, "gym_reacher", {}),
    (good, "gym_reacher", {"cameras": "exterior_image_1_left=image,wrist_image_left=image"}),
    (good, "droid_tabletop", {"cameras": "exterior_image_1_left=front"}),
    (good, "droid_tabletop", {"cameras": "front"}),
    (good, "droid_tabletop", {"device": "cuda:9"}),
    (no_weights, "droid_tabletop", {}),
    (no_processor, "droid_tabletop", {}),
    (ensembling, "droid_tabletop", {}),
    (changed("unknown", type="acd"), "droid_tabletop", {}),
    (changed("privileged", input_features=features | environment), "droid_tabletop", {}),
    (changed("broken", dim_model=63), "droid_tabletop", {}),
):
    try:
        opened = open_lerobot(str(checkpoint), kwargs, suite=open_suite(suite).interface)
        sys.stdout.write(f"opened, with {opened.inputs}\n")
    except UsageError as error:
        sys.stdout.write(f"{error}\n")
