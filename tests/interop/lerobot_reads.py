"""Run by LeRobot's Python: what its reader makes of a dataset of `eval.collect`.

Prints the number of samples whose action chunk was compared.
"""

import sys

import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset

_HORIZON = 10

dataset = LeRobotDataset("me/demos", root=sys.argv[1])
rate = dataset.fps
chunked = LeRobotDataset(
    "me/demos", root=sys.argv[1], delta_timestamps={"action": [step / rate for step in range(_HORIZON)]}
)
for index in range(len(chunked)):
    sample = chunked[index]
    padded = sample["action_is_pad"].numpy()
    assert np.array_equal(padded, np.asarray(sample["oxygen.action_is_pad"])), index
    ours, theirs = np.asarray(sample["oxygen.action_chunk"]), sample["action"].numpy()
    assert np.array_equal(ours[~padded], theirs[~padded]), index
    assert dataset[index]["action"].shape == theirs[0].shape, index
sys.stdout.write(f"{len(chunked)}\n")
