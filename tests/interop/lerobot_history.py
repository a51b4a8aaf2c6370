"""Prints how far our chunks are from those of LeRobot's own loop: `python lerobot_history.py FOLDER`.

It gives a policy that was trained on several control steps every observation, we the last ones in a query.
"""

import sys

import numpy as np
import torch

from contracts.episode import EpisodeKey
from contracts.observation import Observation
from eval.policies.lerobot import RowNoise, _generator, open_lerobot
from sim_envs.suite import open_suite

opened = open_lerobot(sys.argv[1], {}, suite=open_suite("droid_tabletop").interface, worlds=2, batch_size=2)
(rows,), history = opened.groups, opened.history
policy, keys = rows._policy, rows._policy._keys
steps, rng = keys.interface.horizon, np.random.default_rng(0)
episodes = [
    [
        Observation(
            images={
                camera: rng.integers(256, size=(96, 96, 3), dtype=np.uint8) for camera in opened.image_sizes
            },
            state=rng.normal(size=8),
            language="",
        )
        for _ in range(steps + 1)
    ]
    for _ in range(2)
]
started = [EpisodeKey(suite="droid_tabletop", task_id=0, init_id=row, seed=7) for row in range(2)]
ours: list[list[np.ndarray]] = [[], []]
for row, key in enumerate(started):
    rows.reset(row, key)
for step in (0, steps):
    queries = {
        row: Observation(
            images=seen[step].images,
            state=seen[step].state,
            language="",
            history=tuple(seen[max(0, step - history) : step]),
        )
        for row, seen in enumerate(episodes)
    }
    for row, chunk in rows.act(queries).items():
        ours[row].append(chunk)
farthest = 0.0
for row, seen in enumerate(episodes):
    policy.model.reset()
    for step, observation in enumerate(seen):
        query = keys.write(observation.images, observation.state, "")
        batch = policy._batch([query])
        assert all(batch[image].is_contiguous() for image in keys.images), "its convolutions round otherwise"
        with torch.inference_mode(), RowNoise([_generator(started[row].digest(), step // steps)]):
            action = policy._after(policy.model.select_action(batch))
        chunk, place = divmod(step, steps)
        farthest = max(farthest, float(np.abs(action.numpy()[0] - ours[row][chunk][place]).max()))
sys.stdout.write(f"{history} {farthest}\n")
