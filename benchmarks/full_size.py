"""`python -m benchmarks.full_size`: the published π0.5 at full size in bfloat16, with random weights.

One query: prefill, ten denoising steps, three decode steps. Measures its memory, and its time without an
accelerator.
"""

import argparse
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import record
from oxygen.model.config import preset
from oxygen.policy.factory import create_vector_policy
from oxygen.robots import tokenizer
from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.language import LanguageTask
from oxygen.serving.scheduler import Mode

DECODE_STEPS = 3


def measure(name: str) -> dict[str, Any]:
    """Seconds and peak memory of building the policy `name` and of one query after the warm-up."""
    config = preset(name)
    task = LanguageTask(name="narration", prompt="Narrate: ", max_tokens=DECODE_STEPS)
    began = time.perf_counter()
    policy = create_vector_policy(
        config,
        weights=0,
        tokenizer=tokenizer.tiny(),
        tasks=[task],
        engine=EngineConfig(mode=Mode.SHARED, slots=1, rows=1),
    )
    built = time.perf_counter()
    images = {
        camera: np.full((config.image_size, config.image_size, 3), 128, np.uint8) for camera in config.cameras
    }
    observation = {"images": images, "state": np.zeros(8), "prompt": "put the bowl on the plate"}
    (actions,) = policy.act([observation])
    assert actions is not None
    assert np.isfinite(actions).all()
    (reply,) = policy.settle()
    assert reply is not None
    return {
        "policy": name,
        "dtype": config.dtype,
        "build_and_warm_up_s": round(built - began, 1),
        "timings_ms": {stage: round(value, 1) for stage, value in reply.timings_ms.items()},
        "denoise_steps": config.denoise_steps,
        "decode_steps": reply.tokens,
        "compiles_after_warm_up": policy.compiles_after_warm_up,
        "peak_memory_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="pi05_libero")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/full_size.json"))
    options = parser.parse_args()
    row = measure(options.policy)
    record("full_size", row, options.output)


if __name__ == "__main__":
    main()
