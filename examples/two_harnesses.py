"""One policy in two harnesses: trains LeRobot's ACT on demonstrations from here, and plays it there and here.

    python examples/two_harnesses.py            # hours on two cores
    python examples/two_harnesses.py --quick    # an untrained policy

Needs this project and lerobot 0.6.1 with its extras dataset, training and libero in one environment, with
mujoco 3.2.3. Stages that are complete in the output folder are not repeated.
"""

import argparse
import importlib.metadata
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import av
import yaml

from eval.records.schema import RunFolder

SUITE, TASKS, PIXELS = "libero_object", (2, 3), 32
ACT = """
    --policy.type=act --policy.device=cpu --policy.push_to_hub=false --policy.pretrained_backbone_weights=null
    --policy.use_vae=false --policy.dim_model=128 --policy.n_heads=4 --policy.dim_feedforward=512
    --policy.n_encoder_layers=2 --policy.dropout=0 --policy.chunk_size=10 --policy.n_action_steps=8
    --policy.optimizer_lr=3e-4 --policy.optimizer_lr_backbone=3e-4 --batch_size=16 --num_workers=0 --seed=0
    --wandb.enable=false --save_freq=100 --log_freq=20
"""
"""An ACT that learns on processors: small images, a backbone from scratch, no VAE, a high learning rate."""


def main() -> None:
    """Collect, train, play in both harnesses, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--checkpoint", type=Path, help="a trained policy (pretrained_model), not to train one"
    )
    parser.add_argument("--steps", type=int, default=2000, help="optimization steps")
    parser.add_argument("--episodes", type=int, default=10, help="per task, at most LeRobot's 10 videos")
    parser.add_argument("--output", type=Path, default=Path("runs/two_harnesses"))
    parser.add_argument("--quick", action="store_true", help="2 steps, an episode per task of 40 steps")
    options = parser.parse_args()
    if not 1 <= options.episodes <= 10:
        parser.error(f"--episodes is {options.episodes}; give 1 to 10")
    if options.quick:
        options.steps, options.episodes = 2, 1
    limit = 40 if options.quick else None
    output = options.output.resolve()
    checkpoint = options.checkpoint and options.checkpoint.resolve()
    if checkpoint is None:
        checkpoint = trained(output, steps=options.steps, demonstrations=1 if options.quick else 12)
    last = options.episodes - 1
    results = {
        "lerobot-eval": there(checkpoint, output / "lerobot", episodes=options.episodes, limit=limit),
        "oxygen-eval": here(checkpoint, output / "oxygen", last=last, limit=limit),
    }
    print(table(results))  # noqa: T201
    theirs, ours = results.values()
    if wrong := [
        f"task {task}, state {state}"
        for task, state in theirs
        if theirs[task, state] != ours.get((task, state))
    ]:
        sys.exit(f"The harnesses differ in {'; '.join(wrong)}.")


def trained(output: Path, *, steps: int, demonstrations: int) -> Path:
    """The last checkpoint of a policy that LeRobot trains on our demonstrations."""
    data, policy = output / "demonstrations", output / "act"
    tasks = " ".join(map(str, TASKS))
    if not (data / "meta/info.json").is_file():
        run(
            f"eval collect --suite {SUITE} --task-ids {tasks} --expert-noise 0.2 "
            f"--init-ids 1000-{999 + demonstrations} --image-size {PIXELS} --output {data}"
        )
    checkpoint = policy / "checkpoints/last/pretrained_model"
    if not (policy / f"checkpoints/{steps:06d}").is_dir():
        how = f"--dataset.repo_id=me/demos --dataset.root={data} --output_dir={policy} {ACT}"
        if checkpoint.is_dir():
            how = f"--config_path={checkpoint / 'train_config.json'} --resume=true"
        run(f"lerobot.scripts.lerobot_train {how} --steps={steps}")
    return checkpoint


Episodes = dict[tuple[int, int], tuple[bool, int]]
"""Task and initial state to success and control steps."""


def there(checkpoint: Path, output: Path, *, episodes: int, limit: int | None) -> Episodes:
    """What `lerobot-eval` finds. Its videos have a frame per control step."""
    if not (output / "eval_info.json").is_file():
        renamed = json.dumps({"observation.images.image2": "observation.images.wrist_image"})
        length = f"--env.episode_length={limit}" if limit else ""
        run(
            f"lerobot.scripts.lerobot_eval --policy.path={checkpoint} --policy.device=cpu {length} "
            f"--env.type=libero --env.task={SUITE} --env.task_ids=[{','.join(map(str, TASKS))}] "
            f"--env.observation_height={PIXELS} --env.observation_width={PIXELS} "
            f"--eval.n_episodes={episodes} --eval.batch_size=1 --output_dir={output}",
            f"--rename_map={renamed}",
        )
    found: Episodes = {}
    for task in json.loads((output / "eval_info.json").read_text())["per_task"]:
        played = zip(task["metrics"]["successes"], task["metrics"]["video_paths"], strict=True)
        for state, (success, video) in enumerate(played):
            found[task["task_id"], state] = success, frames_in(video)
    return found


def frames_in(video: str) -> int:
    """The number of frames of a video."""
    with av.open(video) as opened:
        return sum(1 for _ in opened.decode(video=0))


def here(checkpoint: Path, output: Path, *, last: int, limit: int | None) -> Episodes:
    """What `oxygen-eval libero --protocol lerobot` finds."""
    tasks = " ".join(map(str, TASKS))
    if not list(output.glob("*/results.json")):
        length = f"--max-steps {limit}" if limit else ""
        run(
            f"eval libero --policy lerobot:{checkpoint} --protocol lerobot --suite {SUITE} "
            f"--task-ids {tasks} --init-ids 0-{last} --camera-size {PIXELS} {length} --video none "
            f"--output-dir {output}"
        )
    (results,) = output.glob("*/results.json")
    episodes = RunFolder(results.parent).episodes()
    return {
        (key.task_id, key.init_id): (each.outcome == "success", each.steps) for key, each in episodes.items()
    }


def table(results: dict[str, Episodes]) -> str:
    """Markdown: a row per harness, with the episodes whose outcome and steps are those of the first one."""
    first = next(iter(results.values()))
    lines = ["| harness | solved | control steps | equal episodes |", "|---|---|---|---|"]
    for name, played in results.items():
        solved, steps = (sum(column) for column in zip(*played.values(), strict=True))
        equal = sum(first.get(key) == each for key, each in played.items())
        lines.append(f"| {name} | {solved} of {len(played)} | {steps} | {equal} of {len(first)} |")
    return "\n".join(lines)


def run(command: str, *more: str) -> None:
    """Run a module's command on one thread; its failure ends the script."""
    words = [sys.executable, "-m", *shlex.split(command), *more]
    print("$", shlex.join(words), flush=True)  # noqa: T201
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    with tempfile.TemporaryDirectory() as folder:  # without LIBERO's configuration its import asks questions
        root = importlib.metadata.distribution("hf-libero").locate_file("libero/libero")
        places = {"bddl_files": "bddl_files", "init_states": "init_files", "assets": "assets"}
        config = {name: f"{root}/{place}" for name, place in places.items()}
        Path(folder, "config.yaml").write_text(yaml.safe_dump({"benchmark_root": str(root), **config}))
        environment = {"LIBERO_CONFIG_PATH": folder, "MUJOCO_GL": "egl", **os.environ, **own}
        code = subprocess.run(words, env=environment, check=False).returncode
    if code:
        sys.exit(code)


if __name__ == "__main__":
    main()
