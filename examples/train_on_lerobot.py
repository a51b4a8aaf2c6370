"""Trains on a dataset of LeRobot (v2, images in Parquet) with the columns of openpi's LIBERO conversion.

python examples/train_on_lerobot.py     # reads my_dataset in the current folder
"""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from configs.training import TrainConfig
from oxygen.model.config import TINY
from oxygen.robots import tokenizer
from oxygen.training.config import TrainingConfig
from oxygen.training.run import train
from oxygen.training.samples import Recording, Samples

root = Path("my_dataset")
lines = [json.loads(line) for line in (root / "meta/tasks.jsonl").read_text().splitlines()]
instructions = {line["task_index"]: line["task"] for line in lines}


def pixels(column):
    return np.stack([np.asarray(Image.open(io.BytesIO(cell["bytes"])).convert("RGB")) for cell in column])


def episodes():
    for file in sorted(root.glob("data/*/*.parquet")):  # one episode in each
        rows = pq.read_table(file).to_pydict()
        yield Recording(
            images={camera: pixels(rows[camera]) for camera in TINY.cameras},  # image, wrist_image
            state=np.array(rows["state"], np.float32),  # [step, 8]
            actions=np.array(rows["actions"], np.float32),  # [step, 7], as executed
            language=instructions[rows["task_index"][0]],
            texts={},  # {"narration": […], "memory": […], "textual_memory": […]}: one per step, "" if unknown
        )


samples = Samples.from_episodes(episodes(), TINY, every=2)  # a frame for every second step
training = TrainingConfig(
    model=TINY, embodiment="libero_compact", tasks=(), options=TrainConfig(steps=5000, data=(str(root),))
)
train(Path("runs/train/mine"), training, samples, tokenizer.tiny(), on_log=print)
