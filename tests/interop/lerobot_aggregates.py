"""Run by LeRobot's Python: it aggregates the tasks of an `eval_info.json` as the file does."""

import json
import math
import sys
from pathlib import Path

import gymnasium
import torch
from lerobot.scripts import lerobot_eval

exported = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
metrics = {(task["task_group"], task["task_id"]): task["metrics"] for task in exported["per_task"]}
groups: dict = {}
for group, task in metrics:
    groups.setdefault(group, {})[task] = gymnasium.Env()
lerobot_eval.run_one = lambda group, task, _, **__: (group, task, metrics[group, task])
theirs = lerobot_eval.eval_policy_all(groups, torch.nn.Identity(), None, None, None, None, n_episodes=1)
for name, group in theirs["per_group"].items():
    ours = exported["per_group"][name]
    for field, value in group.items():
        if field == "predicted_video_paths":  # of policies that imagine videos, since 0.6
            continue
        assert ours[field] == value or math.isclose(ours[field], value), (name, field, ours[field], value)
for field, value in theirs["overall"].items():
    if field == "predicted_video_paths":
        continue
    ours = exported["overall"][field]
    clock = field in ("eval_s", "eval_ep_s")
    assert clock or ours == value or math.isclose(ours, value), (field, ours, value)
sys.stdout.write(f"{len(theirs['per_group'])}\n")
