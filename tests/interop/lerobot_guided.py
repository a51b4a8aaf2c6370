"""Prints the first actions of a LeRobot policy with real-time chunking: `python lerobot_guided.py FOLDER`.

The policy of the folder predicts chunks as π0 does: LeRobot's guidance around a denoiser that knows only 0.
"""

import functools
import sys

import numpy as np
import torch
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.act.modeling_act import ACTPolicy
from lerobot.policies.rtc import RTCConfig, RTCProcessor

from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.observation import Observation
from eval.policies.lerobot import open_lerobot
from sim_envs.suite import open_suite

STEPS = 10


def predict(policy, batch, *, inference_delay=None, prev_chunk_left_over=None):
    del policy, batch
    rtc, chunk = RTCProcessor(RTCConfig(execution_horizon=STEPS)), torch.zeros(1, STEPS, 8)
    for step in range(STEPS):
        time = 1 - step / STEPS
        denoiser = functools.partial(torch.mul, other=1 / time)
        velocity = rtc.denoise_step(chunk, prev_chunk_left_over, inference_delay, time, denoiser)
        chunk = chunk - velocity / STEPS
    return chunk


ACTPolicy.predict_action_chunk = predict
ACTConfig.rtc_config = RTCConfig()
suite = open_suite("droid_tabletop").interface
policy = open_lerobot(sys.argv[1], {}, suite=suite).in_world(None, None)
policy.reset(EpisodeKey(suite="droid_tabletop", task_id=0, init_id=0, seed=7))
images = {name: np.zeros((96, 96, 3), np.uint8) for name in suite.observation.camera_names}
for executing in (np.empty((0, 8)), np.full((3, 8), 0.05)):
    seen = Observation(images=images, state=np.zeros(8), language="", executing=executing)
    sys.stdout.write(f"{policy.act(seen)[:, 0].round(3).tolist()}\n")
try:
    open_lerobot(sys.argv[1], {}, suite=suite, worlds=2, batch_size=2)
except UsageError as error:
    sys.stdout.write(f"{error}\n")
